"""Teams of hundreds in one process: every task is done once, and only so many work at a time."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import Gate, all_turns, recorded, use
from shoal.app.session.turn import Turn
from shoal.core.clock import SystemClock
from shoal.core.events import MemberRested, MemberWoken
from shoal.core.identity import current_identity, current_member
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.messages import ToolUse
from shoal.core.names import AgentName, TeamName
from shoal.core.requests import Request
from shoal.core.tools import Site
from shoal.models.scripted import ScriptedModel
from shoal.tools.define import FunctionTool, tool
from troupe import config, home, last_words, member, opened, results, speaker, troupe

MEMBERS, TASKS = 200, 2_000
_TASK = re.compile(r"Task #(\d+)")


def dependencies(tasks: int) -> dict[int, set[int]]:
    """Each of most tasks waits for some that came before it."""
    chance = random.Random(1)
    return {
        n: {chance.randint(max(1, n - 400), n - 1) for _ in range(chance.randint(0, 3))} if n > 1 else set()
        for n in range(1, tasks + 1)
    }


def planning(waits_for: dict[int, set[int]]) -> FunctionTool:
    @tool(name="Plan")
    async def plan() -> str:
        """Fill the board, as another program does."""
        blocks: dict[int, list[str]] = {}
        for number, blockers in waits_for.items():
            for blocker in blockers:
                blocks.setdefault(blocker, []).append(str(number))
        for number, blockers in waits_for.items():
            task = {
                "id": str(number),
                "subject": f"thing {number}",
                "description": "All of it.",
                "status": "pending",
                "blocks": blocks.get(number, []),
                "blockedBy": [str(each) for each in sorted(blockers)],
            }
            (home() / "tasks" / "crew" / f"{number}.json").write_text(json.dumps(task))
        return "planned"

    return plan


class Minds:
    """A lead that starts a team, and members that do the task they are told of."""

    def __init__(self, members: int) -> None:
        self.told: Counter[int] = Counter()
        """How often somebody was asked to do each task."""
        self.order: list[int] = []
        spawns = [member(f"m{n}") for n in range(members)]
        self._lead = iter([use("TeamCreate", team_name="crew"), use("Plan"), spawns])

    def think(self, request: Request) -> ToolUse | list[ToolUse] | str:
        who = speaker(request)
        if who == "lead":
            return next(self._lead, "as you wish")  # type: ignore[arg-type]
        if results(request.messages[-1:]):
            return "done"
        found = _TASK.search(last_words(request))
        if found is None:
            return "ready"
        self.told[int(found[1])] += 1
        self.order.append(int(found[1]))
        return use("TaskUpdate", f"{who}-{found[1]}", taskId=found[1], status="completed")


@pytest.mark.spec("BCK-02")
async def test_a_thousand_members_of_one_process_each_act_as_themselves(tmp_path: Path) -> None:
    acted: dict[str, tuple[str, str, int]] = {}

    @tool(name="Who", reads_only=True)
    async def who(*, site: Site) -> str:
        """Who acts here, and in which process?"""
        acted[site.agent.agent] = (current_identity().agent, current_member().agent, os.getpid())
        return "you"

    def think(request: Request) -> Any:
        if speaker(request) != "lead":
            return "ready" if results(request.messages[-1:]) else use("Who")
        return next(lead, "as you wish")

    lead = iter([use("TeamCreate", team_name="crew"), [member(f"m{n}") for n in range(1_000)]])
    settings = json.dumps({"shoal": {"fan_out_preview": None}})
    async with opened(tmp_path, ScriptedModel(think), tools=[who], settings=settings) as session:
        async with asyncio.timeout(200):
            turn: Turn | None = session.run("Begin.")
            while turn is not None:
                async for _ in turn:
                    pass
                turn = await session.next_turn()
        states = Counter(each.state for each in session.parts.teams.members())
    assert states == {"idle": 1_000}
    names = [f"m{n}@crew" for n in range(1_000)]
    assert acted == {name: (name, name, os.getpid()) for name in names}


@pytest.mark.spec("BCK-02", "TSK-04", "TSK-06", "TSK-07", "USR-25")
async def test_two_hundred_members_do_two_thousand_tasks_each_exactly_once(tmp_path: Path) -> None:
    waits_for = dependencies(TASKS)
    minds = Minds(MEMBERS)
    at_work: set[str] = set()
    most = 0

    def see(event: object) -> None:
        nonlocal most
        if isinstance(event, MemberWoken):
            at_work.add(event.agent)
            most = max(most, len(at_work))
        elif isinstance(event, MemberRested):
            at_work.discard(event.agent)

    settings = json.dumps({"shoal": {"fan_out_preview": None}})
    session = opened(tmp_path, ScriptedModel(minds.think), tools=[planning(waits_for)], settings=settings)
    async with session:
        session.watch(see)
        async with asyncio.timeout(200):
            turn: Turn | None = session.run("Begin.")
            while turn is not None:
                async for _ in turn:
                    pass
                turn = await session.next_turn()
        owners = {}
        for number in waits_for:
            task = json.loads((home() / "tasks" / "crew" / f"{number}.json").read_text())
            assert task["status"] == "completed", number
            owners[number] = task["owner"]
        shown = Counter(each.get("isActive") for each in config("crew")["members"])
    # From what the models were asked: every task once, none before what it waits for.
    assert minds.told == Counter(dict.fromkeys(waits_for, 1))
    place = {number: at for at, number in enumerate(minds.order)}
    assert all(place[blocker] < place[n] for n, blockers in waits_for.items() for blocker in blockers)
    # From the record: who did it owns it, and each working period was begun and ended once.
    assert len(set(owners.values())) > MEMBERS / 2
    woken = Counter(event.agent for event in recorded(session) if isinstance(event, MemberWoken))
    rested = Counter(event.agent for event in recorded(session) if isinstance(event, MemberRested))
    assert woken == rested
    assert woken.total() == MEMBERS + TASKS
    assert shown == {None: 1, False: MEMBERS}
    assert most == 20, "so many work at once, and the others wait for a place"


@pytest.mark.spec("USR-04", "BOX-06")
async def test_what_another_process_writes_to_a_busy_member_is_in_its_next_request(tmp_path: Path) -> None:
    gate = Gate()
    asked: list[Request] = []

    def note(request: Request) -> str:
        asked.append(request)
        return "heard"

    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), member("ann"), use("Until"), "wait", "end"],
        ann=[use("Gate"), note],
    )
    other = shoal.AgentsRecord(home(), clock=SystemClock(), ids=Ids())
    async with opened(tmp_path, model, tools=[gate.tool, gate.until]) as session:
        async with asyncio.timeout(20):
            async for _ in session.run("Begin."):
                pass
            mail = Mail(
                id="from-elsewhere", sender=AgentName("cyd"), text="the door is open", timestamp="2026-01-01"
            )
            await other.post(TeamName("crew"), AgentName("ann"), mail)
            while not session.parts.queue.size("ann@crew"):  # type: ignore[arg-type]
                await asyncio.sleep(0.001)
            gate.opened.set()
            await all_turns(session, None)
    await other.aclose()
    assert "the door is open" in "".join(message.text for message in asked[0].messages)
    assert len(asked) == 1, "it was heard in the turn that was running, not in one of its own"
