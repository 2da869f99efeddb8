"""A team of many members in a separate process: `python -m bench.team_crowd run --members 9 --tasks 90`.

Prints the seconds of CPU and wall time that the team took for all tasks, from its creation until it is quiet;
`idle` prints the bytes that each of its members holds while it waits.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import re
import tracemalloc
from collections import Counter
from pathlib import Path

import shoal
from bench import bare
from bench.instant import FINAL, Adder
from bench.subject import empty_home
from bench.timing import Spent, Stopwatch
from shoal.app.session.session import Session
from shoal.app.session.turn import Turn
from shoal.core.events import Finished
from shoal.core.messages import Message, Text, ToolResult, ToolUse
from shoal.core.requests import Hear, Reply, Request, Sent
from shoal.core.usage import ModelCard, Price, Usage
from shoal.tools.define import FunctionTool, tool

_USAGE = Usage(input_tokens=100, output_tokens=10)
_SETTINGS = json.dumps({"shoal": {"fan_out_preview": None}})
_MEMBER = re.compile(r"^- You are ([\w-]+), a member of the team", re.MULTILINE)
_TASK = re.compile(r"Task #(\d+)")
_TEAM = "crew"
_FIRST = 20
"""Number of members that warm up."""


Call = tuple[str, dict[str, str]]


class TeamModel:
    """The lead creates a team, calls `plan`, and starts so many members for each prompt; they do tasks."""

    card = ModelCard(id="instant", provider="bench", price=Price(input=3.0, output=15.0))

    def __init__(self, **waves: int) -> None:
        self.done: Counter[str] = Counter()
        self._calls = 0
        self._members = 0
        self._waves = waves
        self._next: list[tuple[Call, ...]] = [(("TeamCreate", {"team_name": _TEAM}),), (("plan", {}),)]

    def _wave(self, members: int) -> tuple[Call, ...]:
        first, self._members = self._members, self._members + members
        given = {"description": "Work", "prompt": "Do what is free."}
        return tuple(("Agent", {**given, "name": f"m{number}"}) for number in range(first, first + members))

    async def reply(self, request: Request, hear: Hear) -> Reply:
        await hear(Sent())
        content = self._as_member(request) if _MEMBER.search(request.system) else self._as_lead(request)
        stop_reason = "tool_use" if isinstance(content[0], ToolUse) else "end_turn"
        message = Message(role="assistant", content=content)
        return Reply(message=message, usage=_USAGE, stop_reason=stop_reason, model="instant", id="m")

    def _as_lead(self, request: Request) -> tuple[Text | ToolUse, ...]:
        if (members := self._waves.pop(request.messages[-1].text, 0)) > 0:
            self._next.append(self._wave(members))
        calls = self._next.pop(0) if self._next else ()
        return tuple(self._call(*call) for call in calls) or (Text(text=FINAL),)

    def _as_member(self, request: Request) -> tuple[Text | ToolUse, ...]:
        last = request.messages[-1]
        found = None if isinstance(last.content[0], ToolResult) else _TASK.search(last.text)
        if found is None:
            return (Text(text=FINAL),)
        self.done[found[1]] += 1
        return (self._call("TaskUpdate", {"taskId": found[1], "status": "completed"}),)

    def _call(self, name: str, given: dict[str, str]) -> ToolUse:
        self._calls += 1
        return ToolUse(id=f"c{self._calls}", name=name, input=given)

    async def aclose(self) -> None: ...


class Plan:
    """Puts tasks on the board, most of them blocked by others; this time does not count for the team."""

    def __init__(self, members: int, tasks: int) -> None:
        chance = random.Random(1)
        self.waits_for: dict[int, set[int]] = {}
        for n in range(1, tasks + 1):
            before = range(max(1, n - 2 * members), n)
            self.waits_for[n] = {chance.choice(before) for _ in range(chance.randint(0, 3)) if before}
        self.spent = Spent(0.0, 0.0)
        self.tool: FunctionTool = tool(self.plan)

    async def plan(self) -> str:
        """Fill the board."""
        watch = Stopwatch()
        directory = Path(os.environ["SHOAL_HOME"]) / "tasks" / _TEAM
        blocks: dict[int, list[str]] = {}
        for number, blockers in self.waits_for.items():
            for blocker in blockers:
                blocks.setdefault(blocker, []).append(str(number))
        for number, blockers in self.waits_for.items():
            task = {
                "id": str(number),
                "subject": f"Do the thing number {number}",
                "description": "All of it, and then look whether it works.",
                "status": "pending",
                "blocks": blocks.get(number, []),
                "blockedBy": [str(each) for each in sorted(blockers)],
            }
            (directory / f"{number}.json").write_text(json.dumps(task))
        self.spent = watch.read()
        return "planned"

    def check(self, done: Counter[str]) -> None:
        assert done == Counter({str(number): 1 for number in self.waits_for}), "a task was not done once"
        for number in self.waits_for:
            file = Path(os.environ["SHOAL_HOME"]) / "tasks" / _TEAM / f"{number}.json"
            assert json.loads(file.read_bytes())["status"] == "completed", number


async def quiet(session: Session, prompt: str) -> None:
    """Run the turn and all turns that follow from it."""
    turn: Turn | None = session.run(prompt)
    while turn is not None:
        async for event in turn:
            assert not isinstance(event, Finished) or event.reason == "done", event.detail
        turn = await session.next_turn()


async def run(root: Path, members: int, tasks: int) -> Spent:
    plan, model = Plan(members, tasks), TeamModel(go=members)
    async with shoal.open(
        cwd=root, model=model, tools=[plan.tool], skip_permissions=True, settings=_SETTINGS
    ) as session:
        watch = Stopwatch()
        await quiet(session, "go")
        spent = watch.read()
        plan.check(model.done)
    return Spent(spent.cpu - plan.spent.cpu, spent.wall - plan.spent.wall)


async def run_bare(root: Path, members: int, tasks: int) -> Spent:
    """Run one asyncio task per member; each takes free tasks and appends its messages to a file."""
    waits_for, adder = Plan(members, tasks).waits_for, Adder()
    behind: dict[int, list[int]] = {}
    left = {number: len(blockers) for number, blockers in waits_for.items()}
    free: asyncio.Queue[int] = asyncio.Queue()
    for number, blockers in waits_for.items():
        for blocker in blockers:
            behind.setdefault(blocker, []).append(number)
        if not blockers:
            free.put_nowait(number)

    async def live(member: int) -> None:
        file = os.open(root / f"{member}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            while True:
                number = await free.get()
                assert await bare.loop(f"Task #{number}", bare.instant(1), {"add": adder.add}, file) == FINAL
                for other in behind.get(number, ()):
                    left[other] -= 1
                    if not left[other]:
                        free.put_nowait(other)
                free.task_done()
        finally:
            os.close(file)

    watch = Stopwatch()
    async with asyncio.TaskGroup() as lives:
        alive = [lives.create_task(live(member)) for member in range(members)]
        await free.join()
        for each in alive:
            each.cancel()
    spent = watch.read()
    assert adder.calls == tasks, adder.calls
    return spent


async def idle(root: Path, members: int) -> float:
    """Return the bytes held per waiting member, without what the lead remembers of it."""
    plan, model = Plan(members, 0), TeamModel(first=_FIRST, go=members)
    async with shoal.open(
        cwd=root, model=model, tools=[plan.tool], skip_permissions=True, settings=_SETTINGS
    ) as session:
        tracemalloc.start()
        held = []
        for prompt in ("first", "go"):
            await quiet(session, prompt)
            session.agent.conversation.messages.clear()
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
        there = session.parts.teams.members()
        assert [each.state for each in there] == ["idle"] * (_FIRST + members)
        return (held[1] - held[0]) / members


def main() -> None:
    parser = argparse.ArgumentParser(description="A team of many members.")
    parser.add_argument("work", choices=("run", "bare", "idle"))
    parser.add_argument("--members", type=int, required=True)
    parser.add_argument("--tasks", type=int, default=0)
    given = parser.parse_args()
    with empty_home() as root:
        if given.work == "idle":
            print(asyncio.run(idle(root, given.members)))
        else:
            work = run if given.work == "run" else run_bare
            spent = asyncio.run(work(root, given.members, given.tasks))
            print(spent.cpu, spent.wall)


if __name__ == "__main__":
    main()
