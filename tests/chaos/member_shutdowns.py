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
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.events import AgentEnded, Event, MemberWentIdle, RunFinished, ToolFinished
from shoal.testing import messages_server
from shoal.testing.mock_replies import (
    MockReply,
    ReplyLike,
    RequestBody,
    SlowStreamFault,
    StalledStreamFault,
    make_context_length_fault,
)

SHUTDOWN_GRACE, EXIT_SECONDS = 1.0, 5.0
STATE_TIMEOUT = 60.0
"""Seconds until every member is in its state."""
COMMANDS = {
    "tool": "trap '' TERM; mktemp at-work-XXXXXX; sleep 1000 & sleep 1000",
    "stopped": "mktemp at-work-XXXXXX; sleep 1000 & kill -STOP $$; sleep 1000",
}
HANGING_FAULTS = {"silent": StalledStreamFault(), "dripping": SlowStreamFault(seconds=0.5)}
TASK_STATES, IDLE_STATES = (*COMMANDS, *HANGING_FAULTS), ("idle", "full")
"""States of members that hold a task, and of those that would take one if it were free."""
STATES = (*TASK_STATES, *IDLE_STATES)
_NAME = re.compile(r"You are (\w+)-(\d+), a member of the team")


class ShutdownTally(msgspec.Struct, frozen=True, kw_only=True):
    ended: int
    slowest: float
    """Seconds from the request to the end."""
    faults: tuple[str, ...]


class ShutdownScript:
    """Replies of the lead and its members, and the faults of their provider."""

    def __init__(self, members_per_state: int) -> None:
        self._members_per_state = members_per_state
        self.hanging_requests: Counter[str] = Counter()

    def choose_reply(self, body: RequestBody) -> ReplyLike:
        found = _NAME.search(json.dumps(body["system"]))
        spoken = sum(message["role"] == "assistant" for message in body["messages"])
        if found is None:
            return self._reply_as_lead(json.dumps(body["messages"][-1]), spoken)
        state, number = found.groups()
        if state in TASK_STATES and not spoken:
            task = 1 + TASK_STATES.index(state) * self._members_per_state + int(number)
            return _make_tool_use("TaskUpdate", taskId=str(task), status="in_progress")
        return self._reply_as_member(state, json.dumps(body["messages"]))

    def _reply_as_lead(self, last: str, spoken: int) -> ReplyLike:
        if not spoken:
            return _make_tool_use("TeamCreate", team_name="crew")
        if " lead the team" in last:
            count = len(TASK_STATES) * self._members_per_state
            return [_make_tool_use("TaskCreate", subject=f"task {n}", description="d") for n in range(count)]
        if "is on the board" in last or "Spawn the rest" in last:
            states = TASK_STATES if "is on the board" in last else IDLE_STATES
            return [
                _make_tool_use("Agent", name=name, description=name, prompt="Begin.")
                for name in self._list_names(states)
            ]
        if "End them" in last:
            end = {"type": "shutdown_request", "reason": "all is done"}
            return [_make_tool_use("SendMessage", to=name, message=end) for name in self._list_names(STATES)]
        return "Good."

    def _reply_as_member(self, state: str, heard: str) -> ReplyLike:
        asked = re.findall(r'request_id\\+": \\+"([^"\\]+)', heard)
        if state in COMMANDS:
            return _make_tool_use("Bash", command=COMMANDS[state], timeout=600_000)
        if state in HANGING_FAULTS:
            self.hanging_requests[state] += 1
            return MockReply(content=(), faults=(HANGING_FAULTS[state],))
        if state == "full":
            return MockReply(content=(), faults=(make_context_length_fault(),))
        if not asked:
            return "Ready."
        answer = {"type": "shutdown_response", "request_id": asked[-1], "approve": True}
        return _make_tool_use("SendMessage", to="team-lead", message=answer)

    def _list_names(self, states: tuple[str, ...]) -> Iterator[str]:
        return (f"{state}-{n}" for state in states for n in range(self._members_per_state))


class MemberWatch:
    """Records events of the members."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self.idle_agents: set[str] = set()
        self.requested_at: dict[str, float] = {}
        self.ended_at: dict[str, float] = {}

    def record_event(self, event: Event) -> None:
        now = time.monotonic()
        match event:
            case MemberWentIdle(agent=agent):
                self.idle_agents.add(agent)
            case ToolFinished(agent="lead", tool="SendMessage", preview=said):
                for name in re.findall(r"\w+-\d+", said)[:1]:
                    self.requested_at.setdefault(f"{name}@crew", now)
            case AgentEnded(agent=agent):
                self.ended_at.setdefault(agent, now)
            case _:
                return
        self._changed.set()

    async def wait_until(self, condition: Callable[[], bool]) -> bool:
        """Return True if the condition became true in time. It is checked at each event and every 0.2 s."""
        try:
            async with asyncio.timeout(STATE_TIMEOUT):
                while not condition():
                    self._changed.clear()
                    try:
                        async with asyncio.timeout(0.2):
                            await self._changed.wait()
                    except TimeoutError:
                        continue
        except TimeoutError:
            return False
        return True


async def run_shutdown_chaos(
    directory: Path, members_per_state: int, backend: str = "in-process"
) -> ShutdownTally:
    """Shut down a team with `members_per_state` members in each state."""
    project, minds, watch = directory / "project", ShutdownScript(members_per_state), MemberWatch()
    project.mkdir(parents=True)
    async with messages_server(minds.choose_reply, keep_requests=False) as server:
        os.environ |= {
            "SHOAL_HOME": str(directory / "home"),
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "key",
        }
        own = {
            "shutdown_grace": SHUTDOWN_GRACE,
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
            session.subscribe(watch.record_event)
            faults = await _shut_down_team(session, minds, watch, members_per_state, project)
    faults += _find_leftovers(directory / "home", project, watch, members_per_state)
    took = [
        watch.ended_at[agent] - asked
        for agent, asked in watch.requested_at.items()
        if agent in watch.ended_at
    ]
    return ShutdownTally(ended=len(watch.ended_at), slowest=max(took, default=0.0), faults=tuple(faults))


async def _shut_down_team(
    session: Any, script: ShutdownScript, watch: MemberWatch, each: int, project: Path
) -> list[str]:
    await _run_prompt(session, "Begin.")
    busy = len(COMMANDS) * each
    if not await watch.wait_until(
        lambda: (
            len(_list_work_files(project)) == busy
            and all(script.hanging_requests[state] >= each for state in HANGING_FAULTS)
            and len(_list_stopped(project)) == each
        )
    ):
        working = len(_list_work_files(project))
        return [f"not all are in their state: {working} at work, {dict(script.hanging_requests)} hanging"]
    await _run_prompt(session, "Spawn the rest.")
    if not await watch.wait_until(lambda: len(watch.idle_agents) == len(IDLE_STATES) * each):
        return [f"not all are in their state: {len(watch.idle_agents)} rest"]
    await _run_prompt(session, "End them.")
    await watch.wait_until(lambda: len(watch.ended_at) == len(STATES) * each)
    return []


async def _run_prompt(session: Any, prompt: str) -> None:
    async for event in session.run(prompt):
        if isinstance(event, RunFinished) and event.error is not None:
            raise event.error


def _find_leftovers(home: Path, project: Path, watch: MemberWatch, each: int) -> Iterator[str]:
    for name in (f"{state}-{n}@crew" for state in STATES for n in range(each)):
        if name not in watch.ended_at:
            yield f"{name} has not ended"
        elif name not in watch.requested_at:
            yield f"{name} was not asked"
        elif (took := watch.ended_at[name] - watch.requested_at[name]) > SHUTDOWN_GRACE + EXIT_SECONDS:
            yield f"{name} took {took:.1f} s to end"
    config = json.loads((home / "teams/crew/config.json").read_text())
    yield from (f"{each['name']} is still in the roster" for each in config["members"][1:])
    for path in (home / "tasks/crew").glob("[0-9]*.json"):
        task = json.loads(path.read_text())
        if task["status"] != "pending" or task.get("owner"):
            yield f"task {task['id']} is {task['status']} with {task.get('owner')}"
    yield from (f"process {pid} still runs" for pid in _list_processes_in(project))


def _list_processes_in(project: Path) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (entry / "cwd").readlink() == project:
                yield int(entry.name)
        except OSError:
            continue


def _list_work_files(project: Path) -> list[Path]:
    return list(project.glob("at-work-*"))


def _list_stopped(project: Path) -> list[int]:
    return [pid for pid in _list_processes_in(project) if _read_process_state(pid) == "T"]


def _read_process_state(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


_calls = iter(range(1_000_000))


def _make_tool_use(tool: str, /, **arguments: Any) -> ToolUseBlock:
    return ToolUseBlock(id=f"call-{next(_calls)}", name=tool, input=arguments)
