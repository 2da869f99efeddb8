"""Shuts down a team with members in every possible state; a member that does not end in time is a fault."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import shoal
from shoal.core.events import AgentEnded, Event, Finished, MemberRested, ToolFinished
from shoal.core.messages import ToolUse
from shoal.testing import messages_server
from shoal.testing.replies import Answer, Body, Drip, Sayable, Stall, context_too_long

GRACE, DYING = 1.0, 5.0
PATIENCE = 60.0
"""Seconds until every member is in its state."""
COMMANDS = {
    "tool": "trap '' TERM; mktemp at-work-XXXXXX; sleep 1000 & sleep 1000",
    "stopped": "mktemp at-work-XXXXXX; sleep 1000 & kill -STOP $$; sleep 1000",
}
ASKED = {"silent": Stall(), "dripping": Drip(seconds=0.5)}
FIRST, THEN = (*COMMANDS, *ASKED), ("idle", "full")
"""States of members that hold a task, and of those that would take one if it were free."""
STATES = (*FIRST, *THEN)
_NAME = re.compile(r"You are (\w+)-(\d+), a member of the team")


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    ended: int
    slowest: float
    """Seconds from the request to the end."""
    faults: tuple[str, ...]


class Minds:
    """Replies of the lead and its members, and the faults of their provider."""

    def __init__(self, each: int) -> None:
        self._each = each
        self.hanging: Counter[str] = Counter()

    def think(self, body: Body) -> Sayable:
        found = _NAME.search(json.dumps(body["system"]))
        spoken = sum(message["role"] == "assistant" for message in body["messages"])
        if found is None:
            return self._lead(json.dumps(body["messages"][-1]), spoken)
        state, number = found.groups()
        if state in FIRST and not spoken:
            task = 1 + FIRST.index(state) * self._each + int(number)
            return _use("TaskUpdate", taskId=str(task), status="in_progress")
        return self._member(state, json.dumps(body["messages"]))

    def _lead(self, last: str, spoken: int) -> Sayable:
        if not spoken:
            return _use("TeamCreate", team_name="crew")
        if "You lead the team" in last:
            count = len(FIRST) * self._each
            return [_use("TaskCreate", subject=f"task {n}", description="d") for n in range(count)]
        if "is on the board" in last or "Spawn the rest" in last:
            states = FIRST if "is on the board" in last else THEN
            return [
                _use("Agent", name=name, description=name, prompt="Begin.") for name in self._names(states)
            ]
        if "End them" in last:
            end = {"type": "shutdown_request", "reason": "all is done"}
            return [_use("SendMessage", to=name, message=end) for name in self._names(STATES)]
        return "Good."

    def _member(self, state: str, heard: str) -> Sayable:
        asked = re.findall(r'request_id\\+": \\+"([^"\\]+)', heard)
        if state in COMMANDS:
            return _use("Bash", command=COMMANDS[state], timeout=600_000)
        if state in ASKED:
            self.hanging[state] += 1
            return Answer(content=(), faults=(ASKED[state],))
        if state == "full":
            return Answer(content=(), faults=(context_too_long(),))
        if not asked:
            return "Ready."
        answer = {"type": "shutdown_response", "request_id": asked[-1], "approve": True}
        return _use("SendMessage", to="team-lead", message=answer)

    def _names(self, states: tuple[str, ...]) -> Iterator[str]:
        return (f"{state}-{n}" for state in states for n in range(self._each))


class Watch:
    """Records events of the members."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self.rested: set[str] = set()
        self.asked: dict[str, float] = {}
        self.ended: dict[str, float] = {}

    def hear(self, event: Event) -> None:
        now = time.monotonic()
        match event:
            case MemberRested(agent=agent):
                self.rested.add(agent)
            case ToolFinished(agent="lead", tool="SendMessage", preview=said):
                for name in re.findall(r"\w+-\d+", said)[:1]:
                    self.asked.setdefault(f"{name}@crew", now)
            case AgentEnded(agent=agent):
                self.ended.setdefault(agent, now)
            case _:
                return
        self._news.set()

    async def until(self, true: Callable[[], bool]) -> bool:
        """Return True if the condition became true in time. It is checked at each event and every 0.2 s."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not true():
                    self._news.clear()
                    try:
                        async with asyncio.timeout(0.2):
                            await self._news.wait()
                    except TimeoutError:
                        continue
        except TimeoutError:
            return False
        return True


async def run(place: Path, each: int, backend: str = "in-process") -> Tally:
    """Shut down a team with `members_per_state` members in each state."""
    project, minds, watch = place / "project", Minds(each), Watch()
    project.mkdir(parents=True)
    async with messages_server(minds.think, keep_requests=False) as server:
        os.environ |= {
            "SHOAL_HOME": str(place / "home"),
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "key",
        }
        own = {
            "shutdown_grace": GRACE,
            "max_concurrent": 1000,
            "fan_out_preview": None,
            "teammate_mode": backend,
        }
        async with shoal.open(
            cwd=project,
            model="anthropic:claude-sonnet-4-5",
            skip_permissions=True,
            settings=json.dumps({"shoal": own}),
        ) as session:
            session.watch(watch.hear)
            faults = await _shut_down(session, minds, watch, each, project)
    faults += _left(place / "home", project, watch, each)
    took = [watch.ended[agent] - asked for agent, asked in watch.asked.items() if agent in watch.ended]
    return Tally(ended=len(watch.ended), slowest=max(took, default=0.0), faults=tuple(faults))


async def _shut_down(session: Any, minds: Minds, watch: Watch, each: int, project: Path) -> list[str]:
    await _said(session, "Begin.")
    busy = len(COMMANDS) * each
    if not await watch.until(
        lambda: (
            len(_at_work(project)) == busy
            and all(minds.hanging[state] >= each for state in ASKED)
            and len(_stopped(project)) == each
        )
    ):
        return [
            f"not all are in their state: {len(_at_work(project))} at work, {dict(minds.hanging)} hanging"
        ]
    await _said(session, "Spawn the rest.")
    if not await watch.until(lambda: len(watch.rested) == len(THEN) * each):
        return [f"not all are in their state: {len(watch.rested)} rest"]
    await _said(session, "End them.")
    await watch.until(lambda: len(watch.ended) == len(STATES) * each)
    return []


async def _said(session: Any, prompt: str) -> None:
    async for event in session.run(prompt):
        if isinstance(event, Finished) and event.error is not None:
            raise event.error


def _left(home: Path, project: Path, watch: Watch, each: int) -> Iterator[str]:
    for name in (f"{state}-{n}@crew" for state in STATES for n in range(each)):
        if name not in watch.ended:
            yield f"{name} has not ended"
        elif name not in watch.asked:
            yield f"{name} was not asked"
        elif (took := watch.ended[name] - watch.asked[name]) > GRACE + DYING:
            yield f"{name} took {took:.1f} s to end"
    config = json.loads((home / "teams/crew/config.json").read_text())
    yield from (f"{each['name']} is still in the roster" for each in config["members"][1:])
    for path in (home / "tasks/crew").glob("[0-9]*.json"):
        task = json.loads(path.read_text())
        if task["status"] != "pending" or task.get("owner"):
            yield f"task {task['id']} is {task['status']} with {task.get('owner')}"
    yield from (f"process {pid} still runs" for pid in _in(project))


def _in(project: Path) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cwd").readlink() == project:
                yield int(entry.name)
        except OSError:
            continue


def _at_work(project: Path) -> list[Path]:
    return list(project.glob("at-work-*"))


def _stopped(project: Path) -> list[int]:
    return [pid for pid in _in(project) if _state(pid) == "T"]


def _state(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


_calls = iter(range(1_000_000))


def _use(tool: str, /, **given: Any) -> ToolUse:
    return ToolUse(id=f"call-{next(_calls)}", name=tool, input=given)
