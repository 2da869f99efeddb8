"""Teams with hundreds of members in one process."""

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

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns
from shoal.app.session.turn import Turn
from shoal.app.teams.team_store import TeamStore
from shoal.core.agents.identity import current_identity, current_member
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.conversation.tools import ToolContext
from shoal.core.events import MemberWentIdle, MemberWoken
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.models.scripted_model import ScriptedModel
from shoal.tools.function_tool import FunctionTool, tool
from team_scripts import (
    find_speaker,
    find_tool_results,
    get_home,
    get_last_text,
    open_session,
    read_team_config,
    script_team,
    spawn_member,
)

MEMBERS, TASKS = 200, 2_000
_TASK = re.compile(r"Task #(\d+)")


def draw_dependencies(tasks: int) -> dict[int, set[int]]:
    """Draw earlier tasks as blockers of most tasks."""
    chance = random.Random(1)
    return {
        n: {chance.randint(max(1, n - 400), n - 1) for _ in range(chance.randint(0, 3))} if n > 1 else set()
        for n in range(1, tasks + 1)
    }


def create_plan_tool(waits_for: dict[int, set[int]]) -> FunctionTool:
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
            (get_home() / "tasks" / "crew" / f"{number}.json").write_text(json.dumps(task))
        return "planned"

    return plan


class TeamReplies:
    """Replies of a lead that starts a team, and of members that do the announced task."""

    def __init__(self, members: int) -> None:
        self.told: Counter[int] = Counter()
        """How often somebody was asked to do each task."""
        self.order: list[int] = []
        spawns = [spawn_member(f"m{n}") for n in range(members)]
        self._lead = iter([call_tool("TeamCreate", team_name="crew"), call_tool("Plan"), spawns])

    def think(self, request: ModelRequest) -> ToolUseBlock | list[ToolUseBlock] | str:
        who = find_speaker(request)
        if who == "lead":
            return next(self._lead, "as you wish")  # type: ignore[arg-type]
        if find_tool_results(request.messages[-1:]):
            return "done"
        found = _TASK.search(get_last_text(request))
        if found is None:
            return "ready"
        self.told[int(found[1])] += 1
        self.order.append(int(found[1]))
        return call_tool("TaskUpdate", f"{who}-{found[1]}", taskId=found[1], status="completed")


@pytest.mark.exhaustive
@pytest.mark.spec("BCK-02")
async def test_a_thousand_members_in_one_process_keep_their_identities(tmp_path: Path) -> None:
    acted: dict[str, tuple[str, str, int]] = {}

    @tool(name="Who", reads_only=True)
    async def who(*, context: ToolContext) -> str:
        """Who acts here, and in which process?"""
        acted[context.agent.agent] = (current_identity().agent, current_member().agent, os.getpid())
        return "you"

    def think(request: ModelRequest) -> Any:
        if find_speaker(request) != "lead":
            return "ready" if find_tool_results(request.messages[-1:]) else call_tool("Who")
        return next(lead, "as you wish")

    lead = iter([call_tool("TeamCreate", team_name="crew"), [spawn_member(f"m{n}") for n in range(1_000)]])
    settings = json.dumps({"shoal": {"fan_out_preview": None}})
    async with open_session(tmp_path, ScriptedModel(think), tools=[who], settings=settings) as session:
        async with asyncio.timeout(600):
            turn: Turn | None = session.run("Begin.")
            while turn is not None:
                async for _ in turn:
                    pass
                turn = await session.next_turn()
        states = Counter(each.state for each in session.teams.list_members())
    assert states == {"idle": 1_000}
    names = [f"m{n}@crew" for n in range(1_000)]
    assert acted == {name: (name, name, os.getpid()) for name in names}


@pytest.mark.exhaustive
@pytest.mark.spec("BCK-02", "TSK-04", "TSK-06", "TSK-07", "USR-25")
async def test_two_hundred_members_do_two_thousand_tasks_each_exactly_once(tmp_path: Path) -> None:
    waits_for = draw_dependencies(TASKS)
    replies = TeamReplies(MEMBERS)
    at_work: set[str] = set()
    most = 0

    def see(event: object) -> None:
        nonlocal most
        if isinstance(event, MemberWoken):
            at_work.add(event.agent)
            most = max(most, len(at_work))
        elif isinstance(event, MemberWentIdle):
            at_work.discard(event.agent)

    settings = json.dumps({"shoal": {"fan_out_preview": None}})
    session = open_session(
        tmp_path, ScriptedModel(replies.think), tools=[create_plan_tool(waits_for)], settings=settings
    )
    async with session:
        session.subscribe(see)
        async with asyncio.timeout(600):
            turn: Turn | None = session.run("Begin.")
            while turn is not None:
                async for _ in turn:
                    pass
                turn = await session.next_turn()
        owners = {}
        for number in waits_for:
            task = json.loads((get_home() / "tasks" / "crew" / f"{number}.json").read_text())
            assert task["status"] == "completed", number
            owners[number] = task["owner"]
        shown = Counter(each.get("isActive") for each in read_team_config("crew")["members"])
    # From what the models were asked: every task once, none before what it waits for.
    assert replies.told == Counter(dict.fromkeys(waits_for, 1))
    place = {number: at for at, number in enumerate(replies.order)}
    assert all(place[blocker] < place[n] for n, blockers in waits_for.items() for blocker in blockers)
    # From the record: who did it owns it, and each working period was begun and ended once.
    assert len(set(owners.values())) > MEMBERS / 2
    woken = Counter(event.agent for event in read_events(session) if isinstance(event, MemberWoken))
    rested = Counter(event.agent for event in read_events(session) if isinstance(event, MemberWentIdle))
    assert woken == rested
    assert woken.total() == MEMBERS + TASKS
    assert shown == {None: 1, False: MEMBERS}
    assert most == 20, "so many work at once, and the others wait for a place"


@pytest.mark.spec("USR-04", "BOX-06")
async def test_mail_of_another_process_is_in_the_next_request_of_a_busy_member(tmp_path: Path) -> None:
    gate = ToolGate()
    asked: list[ModelRequest] = []

    def note(request: ModelRequest) -> str:
        asked.append(request)
        return "heard"

    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            spawn_member("ann"),
            call_tool("Until"),
            "wait",
            "end",
        ],
        ann=[call_tool("Gate"), note],
    )
    other = TeamStore(get_home(), clock=SystemClock(), ids=IdGenerator())
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool]) as session:
        async with asyncio.timeout(20):
            async for _ in session.run("Begin."):
                pass
            mail = MailMessage(
                id="from-elsewhere", sender=AgentName("cyd"), text="the door is open", timestamp="2026-01-01"
            )
            await other.post_mail(TeamName("crew"), AgentName("ann"), mail)
            while not session.runtime.inbox.queue.count_waking_items("ann@crew"):  # type: ignore[arg-type]
                await asyncio.sleep(0.001)
            gate.is_open.set()
            await run_all_turns(session, None)
    await other.aclose()
    assert "the door is open" in "".join(message.text for message in asked[0].messages)
    assert len(asked) == 1, "it was heard in the turn that was running, not in one of its own"
