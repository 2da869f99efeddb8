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
from bench import bare_loop
from bench.bench_session import use_empty_home
from bench.instant_model import FINAL_TEXT, AddTool
from bench.stopwatch import Stopwatch, TimeSpent
from shoal.app.session.session import Session
from shoal.app.session.turn import Turn
from shoal.core.budgets.usage import ModelCard, TokenPrice, Usage
from shoal.core.conversation.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
)
from shoal.core.events import RunFinished
from shoal.tools.function_tool import FunctionTool, tool

_USAGE = Usage(input_tokens=100, output_tokens=10)
_SETTINGS = json.dumps({"shoal": {"fan_out_preview": None}})
_MEMBER = re.compile(r"^- You are ([\w-]+), a member of the team", re.MULTILINE)
_TASK = re.compile(r"Task #(\d+)")
_TEAM = "crew"
_WARM_UP_MEMBERS = 20
"""Number of members that warm up."""


ToolCallSpec = tuple[str, dict[str, str]]


class TeamModel:
    """The lead creates a team, calls `plan`, and starts so many members for each prompt; they do tasks."""

    card = ModelCard(id="instant", provider="bench", price=TokenPrice(input=3.0, output=15.0))

    def __init__(self, **waves: int) -> None:
        self.done: Counter[str] = Counter()
        self._calls = 0
        self._members = 0
        self._waves = waves
        self._next: list[tuple[ToolCallSpec, ...]] = [
            (("TeamCreate", {"team_name": _TEAM}),),
            (("plan", {}),),
        ]

    def _make_wave(self, members: int) -> tuple[ToolCallSpec, ...]:
        first, self._members = self._members, self._members + members
        arguments = {"description": "Work", "prompt": "Do what is free."}
        return tuple(
            ("Agent", {**arguments, "name": f"m{number}"}) for number in range(first, first + members)
        )

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        await on_delta(ModelAttemptStartedDelta())
        content = (
            self._reply_as_member(request) if _MEMBER.search(request.system) else self._reply_as_lead(request)
        )
        stop_reason = "tool_use" if isinstance(content[0], ToolUseBlock) else "end_turn"
        message = Message(role="assistant", content=content)
        return ModelReply(message=message, usage=_USAGE, stop_reason=stop_reason, model="instant", id="m")

    def _reply_as_lead(self, request: ModelRequest) -> tuple[TextBlock | ToolUseBlock, ...]:
        if (members := self._waves.pop(request.messages[-1].text, 0)) > 0:
            self._next.append(self._make_wave(members))
        calls = self._next.pop(0) if self._next else ()
        return tuple(self._make_call(*call) for call in calls) or (TextBlock(text=FINAL_TEXT),)

    def _reply_as_member(self, request: ModelRequest) -> tuple[TextBlock | ToolUseBlock, ...]:
        last = request.messages[-1]
        found = None if isinstance(last.content[0], ToolResultBlock) else _TASK.search(last.text)
        if found is None:
            return (TextBlock(text=FINAL_TEXT),)
        self.done[found[1]] += 1
        return (self._make_call("TaskUpdate", {"taskId": found[1], "status": "completed"}),)

    def _make_call(self, name: str, arguments: dict[str, str]) -> ToolUseBlock:
        self._calls += 1
        return ToolUseBlock(id=f"c{self._calls}", name=name, input=arguments)

    async def aclose(self) -> None: ...


class BoardPlan:
    """Puts tasks on the board, most of them blocked by others; this time does not count for the team."""

    def __init__(self, members: int, tasks: int) -> None:
        rng = random.Random(1)
        self.waits_for: dict[int, set[int]] = {}
        for n in range(1, tasks + 1):
            earlier = range(max(1, n - 2 * members), n)
            self.waits_for[n] = {rng.choice(earlier) for _ in range(rng.randint(0, 3)) if earlier}
        self.spent = TimeSpent(0.0, 0.0)
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
        self.spent = watch.read_time()
        return "planned"

    def check_board(self, done: Counter[str]) -> None:
        assert done == Counter({str(number): 1 for number in self.waits_for}), "a task was not done once"
        for number in self.waits_for:
            file = Path(os.environ["SHOAL_HOME"]) / "tasks" / _TEAM / f"{number}.json"
            assert json.loads(file.read_bytes())["status"] == "completed", number


async def run_until_quiet(session: Session, prompt: str) -> None:
    """Run the turn and all turns that follow from it."""
    turn: Turn | None = session.run(prompt)
    while turn is not None:
        async for event in turn:
            assert not isinstance(event, RunFinished) or event.reason == "done", event.detail
        turn = await session.next_turn()


async def run_team(root: Path, members: int, tasks: int) -> TimeSpent:
    plan, model = BoardPlan(members, tasks), TeamModel(go=members)
    async with shoal.open(
        cwd=root, model=model, tools=[plan.tool], skip_permissions=True, settings=_SETTINGS
    ) as session:
        watch = Stopwatch()
        await run_until_quiet(session, "go")
        spent = watch.read_time()
        plan.check_board(model.done)
    return TimeSpent(spent.cpu - plan.spent.cpu, spent.wall - plan.spent.wall)


async def run_bare_team(root: Path, members: int, tasks: int) -> TimeSpent:
    """Run one asyncio task per member; each takes free tasks and appends its messages to a file."""
    waits_for, add_tool = BoardPlan(members, tasks).waits_for, AddTool()
    dependants: dict[int, list[int]] = {}
    open_blockers = {number: len(blockers) for number, blockers in waits_for.items()}
    free_tasks: asyncio.Queue[int] = asyncio.Queue()
    for number, blockers in waits_for.items():
        for blocker in blockers:
            dependants.setdefault(blocker, []).append(number)
        if not blockers:
            free_tasks.put_nowait(number)

    async def run_member(member: int) -> None:
        file = os.open(root / f"{member}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            while True:
                number = await free_tasks.get()
                assert (
                    await bare_loop.run_bare_loop(
                        f"Task #{number}", bare_loop.create_instant_model(1), {"add": add_tool.add}, file
                    )
                    == FINAL_TEXT
                )
                for other in dependants.get(number, ()):
                    open_blockers[other] -= 1
                    if not open_blockers[other]:
                        free_tasks.put_nowait(other)
                free_tasks.task_done()
        finally:
            os.close(file)

    watch = Stopwatch()
    async with asyncio.TaskGroup() as group:
        member_tasks = [group.create_task(run_member(member)) for member in range(members)]
        await free_tasks.join()
        for each in member_tasks:
            each.cancel()
    spent = watch.read_time()
    assert add_tool.calls == tasks, add_tool.calls
    return spent


async def measure_idle(root: Path, members: int) -> float:
    """Return the bytes held per waiting member, without what the lead remembers of it."""
    plan, model = BoardPlan(members, 0), TeamModel(first=_WARM_UP_MEMBERS, go=members)
    async with shoal.open(
        cwd=root, model=model, tools=[plan.tool], skip_permissions=True, settings=_SETTINGS
    ) as session:
        tracemalloc.start()
        measurements = []
        for prompt in ("first", "go"):
            await run_until_quiet(session, prompt)
            session.agent.conversation.messages.clear()
            gc.collect()
            measurements.append(tracemalloc.get_traced_memory()[0])
        present_members = session.teams.list_members()
        assert [each.state for each in present_members] == ["idle"] * (_WARM_UP_MEMBERS + members)
        return (measurements[1] - measurements[0]) / members


def main() -> None:
    parser = argparse.ArgumentParser(description="A team of many members.")
    parser.add_argument("work", choices=("run", "bare", "idle"))
    parser.add_argument("--members", type=int, required=True)
    parser.add_argument("--tasks", type=int, default=0)
    arguments = parser.parse_args()
    with use_empty_home() as root:
        if arguments.work == "idle":
            print(asyncio.run(measure_idle(root, arguments.members)))
        else:
            work = run_team if arguments.work == "run" else run_bare_team
            spent = asyncio.run(work(root, arguments.members, arguments.tasks))
            print(spent.cpu, spent.wall)


if __name__ == "__main__":
    main()
