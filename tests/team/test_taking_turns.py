"""More members than may work at once: who has something to do waits for a place, and takes no task before."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import fleet
from cast import Gate, all_turns, recorded, use
from shoal.core.events import Event, MemberRested, MemberWoken, ToolStarted
from shoal.core.requests import Request
from shoal.testing.clock import settle
from troupe import home, last_words, member, opened, results, tell, troupe

ONE = json.dumps({"shoal": {"max_concurrent": 1}})
CREATE = use("TeamCreate", team_name="crew")
TASK = use("TaskCreate", subject="s", description="d")


def state_of(task: str) -> tuple[str, Any]:
    found = json.loads((home() / "tasks" / "crew" / f"{task}.json").read_text())
    return found["status"], found.get("owner")


def worker(request: Request) -> Any:
    if results(request.messages[-1:]):
        return "done"
    number = last_words(request).partition("Task #")[2].partition(" ")[0]
    return use("TaskUpdate", taskId=number, status="completed") if number else "ready"


@pytest.mark.spec("USR-01", "BCK-02")
async def test_a_team_larger_than_the_cap_works_one_after_another(tmp_path: Path) -> None:
    names = ["ann", "bob", "cyd"]
    model = troupe(
        lead=[CREATE, [member(name) for name in names], "wait", "end"], **{name: ["ready"] for name in names}
    )
    async with opened(tmp_path, model, settings=ONE) as session:
        await all_turns(session)
        assert [(each.name, each.state) for each in session.parts.teams.members()] == [
            (name, "idle") for name in names
        ]
        assert (session.agent.purse.tree.running, session.agent.purse.tree.started) == (0, 3)
    woken = [event.agent for event in recorded(session) if isinstance(event, MemberWoken)]
    assert woken == [f"{name}@crew" for name in names]


@pytest.mark.spec("TSK-07", "USR-01")
async def test_a_task_stays_free_until_somebody_may_work_on_it(tmp_path: Path) -> None:
    gate = Gate()
    model = troupe(
        lead=[CREATE, member("bob"), "wait", "bob rests", member("ann"), use("Until"), TASK, "wait", "end"],
        ann=[use("Gate"), "ann ends"],
        bob=[worker],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until], settings=ONE) as session:
        await all_turns(session)
        async with asyncio.timeout(20):
            async for _ in session.run("Go on."):
                pass
            await settle()
            # Bob was told of it, and waits for ann's place.
            assert state_of("1") == ("pending", None)
            gate.opened.set()
            await all_turns(session, None)
    assert state_of("1")[0] == "completed"


@pytest.mark.spec("BOX-07", "TSK-07")
async def test_who_waits_for_its_turn_with_a_task_in_sight_takes_what_was_written_to_it_first(
    tmp_path: Path,
) -> None:
    gate = Gate()
    heard: list[str] = []

    def bob(request: Request) -> Any:
        if not results(request.messages[-1:]):
            heard.append(last_words(request))
        return worker(request)

    later = [member("ann"), use("Until"), TASK, tell("bob", "a word before the task"), "wait"]
    model = troupe(
        lead=[CREATE, member("bob"), "wait", "bob rests", *later, use("TaskStop", task_id="ann"), "end"],
        ann=[use("Gate")],
        bob=[bob],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until], settings=ONE) as session:
        await all_turns(session)
        async with asyncio.timeout(20):
            async for _ in session.run("Go on."):
                pass
            await settle()
            assert session.parts.queue.size("bob@crew") == 1
            assert state_of("1") == ("pending", None)
            # With ann the place is free that both of them wait for: bob and his task.
            await all_turns(session, "Stop ann.")
    _, word, task = heard
    assert "a word before the task" in word
    assert "Task #1" not in word
    assert "Task #1 is yours now" in task


@pytest.mark.spec("USR-01")
async def test_who_was_written_to_works_when_the_other_rests_and_who_is_stopped_leaves_its_turn(
    tmp_path: Path,
) -> None:
    gate = Gate()
    heard: list[str] = []

    def hear(request: Request) -> str:
        heard.append(last_words(request))
        return "heard"

    model = troupe(
        lead=[
            CREATE,
            [member("bob"), member("cyd")],
            "wait",
            "both rest",
            member("ann"),
            use("Until"),
            [tell("cyd", "for cyd"), tell("bob", "for bob")],
            use("TaskStop", task_id="cyd"),
            "wait",
            "end",
        ],
        ann=[use("Gate"), "ann ends"],
        bob=["ready", hear],
        cyd=["ready", hear],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until], settings=ONE) as session:
        await all_turns(session)
        async with asyncio.timeout(20):
            async for _ in session.run("Go on."):
                pass
            assert session.parts.teams.working
            assert heard == []
            gate.opened.set()
            await all_turns(session, None)
        assert session.agent.purse.tree.running == 0
    (only,) = heard
    assert "for bob" in only


@pytest.mark.spec("USR-01", "BCK-01")
async def test_members_in_processes_of_their_own_take_turns_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    wait = use("Bash", "b1", command=f"until [ -e {go} ]; do sleep 0.02; done", description="wait")
    settings = json.dumps({"shoal": {"max_concurrent": 1, "teammate_mode": "process"}})
    waiting = asyncio.Event()

    def see(event: Event) -> None:
        if isinstance(event, ToolStarted) and event.agent == "ann@crew":
            waiting.set()

    async with (
        fleet.provider(
            monkeypatch,
            lead=[CREATE, member("ann"), member("bob"), "Wait.", "End."],
            ann=[wait, "ann ends"],
            bob=["bob ends"],
        ) as server,
        fleet.opened(tmp_path, settings=settings) as session,
    ):
        session.watch(see)
        async with asyncio.timeout(60):
            async for _ in session.run("Go."):
                pass
            await waiting.wait()
            assert "bob" not in [fleet.speaker(request.body) for request in server.requests]
            go.touch()
            await all_turns(session, None)
        assert session.agent.purse.tree.running == 0
    turns = [event for event in recorded(session) if isinstance(event, (MemberWoken, MemberRested))]
    assert [(type(event), event.agent) for event in turns] == [
        (MemberWoken, "ann@crew"),
        (MemberRested, "ann@crew"),
        (MemberWoken, "bob@crew"),
        (MemberRested, "bob@crew"),
    ]


@pytest.mark.spec("USR-01", "BCK-01")
async def test_agents_of_a_member_in_a_process_are_as_deep_as_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = json.dumps({"shoal": {"max_depth": 1, "teammate_mode": "process"}})
    dig = use("Agent", "a1", description="dig", prompt="Dig.")
    async with (
        fleet.provider(
            monkeypatch, lead=[CREATE, member("ann"), "Wait.", fleet.said_to], ann=[dig, fleet.said_to]
        ),
        fleet.opened(tmp_path, settings=settings) as session,
    ):
        text = await all_turns(session, "Go.")
    assert "The agent was not started: agents may start agents to a depth of 1, not 2." in text
