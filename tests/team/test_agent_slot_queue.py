"""More members than slots: a member waits for a slot before it claims a task."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from team_helpers import complete_announced_task, read_task

import server_scripts
from agent_scripts import ToolGate, call_tool, read_events, run_all_turns
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import Event, MemberWentIdle, MemberWoken, ToolStarted
from shoal.testing.fake_clock import run_until_idle
from team_scripts import (
    find_tool_results,
    get_last_text,
    open_session,
    script_team,
    send_message,
    spawn_member,
)

ONE = json.dumps({"shoal": {"max_concurrent": 1}})
CREATE = call_tool("TeamCreate", team_name="crew")
TASK = call_tool("TaskCreate", subject="s", description="d")


def read_task_state(task: str) -> tuple[str, Any]:
    found = read_task(task)
    return found["status"], found.get("owner")


@pytest.mark.spec("USR-01", "BCK-02")
async def test_members_above_the_concurrency_cap_work_one_after_another(tmp_path: Path) -> None:
    names = ["ann", "bob", "cyd"]
    model = script_team(
        lead=[CREATE, [spawn_member(name) for name in names], "wait", "end"],
        **{name: ["ready"] for name in names},
    )
    async with open_session(tmp_path, model, settings=ONE) as session:
        await run_all_turns(session)
        assert [(each.name, each.state) for each in session.teams.list_members()] == [
            (name, "idle") for name in names
        ]
        assert (
            session.agent.budget.budget.running_agent_count,
            session.agent.budget.budget.started_agent_count,
        ) == (
            0,
            3,
        )
    woken = [event.agent for event in read_events(session) if isinstance(event, MemberWoken)]
    assert woken == [f"{name}@crew" for name in names]


@pytest.mark.spec("TSK-07", "USR-01")
async def test_a_task_is_claimed_only_with_a_free_slot(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_team(
        lead=[
            CREATE,
            spawn_member("bob"),
            "wait",
            "bob rests",
            spawn_member("ann"),
            call_tool("Until"),
            TASK,
            "wait",
            "end",
        ],
        ann=[call_tool("Gate"), "ann ends"],
        bob=[complete_announced_task],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool], settings=ONE) as session:
        await run_all_turns(session)
        async with asyncio.timeout(20):
            async for _ in session.run("Go on."):
                pass
            await run_until_idle()
            # Bob was told of it, and waits for ann's place.
            assert read_task_state("1") == ("pending", None)
            gate.is_open.set()
            await run_all_turns(session, None)
    assert read_task_state("1")[0] == "completed"


@pytest.mark.spec("BOX-07", "TSK-07")
async def test_a_member_that_waits_for_a_slot_reads_its_mail_before_it_claims_a_task(
    tmp_path: Path,
) -> None:
    gate = ToolGate()
    heard: list[str] = []

    def bob(request: ModelRequest) -> Any:
        if not find_tool_results(request.messages[-1:]):
            heard.append(get_last_text(request))
        return complete_announced_task(request)

    later = [
        spawn_member("ann"),
        call_tool("Until"),
        TASK,
        send_message("bob", "a word before the task"),
        "wait",
    ]
    model = script_team(
        lead=[
            CREATE,
            spawn_member("bob"),
            "wait",
            "bob rests",
            *later,
            call_tool("TaskStop", task_id="ann"),
            "end",
        ],
        ann=[call_tool("Gate")],
        bob=[bob],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool], settings=ONE) as session:
        await run_all_turns(session)
        async with asyncio.timeout(20):
            async for _ in session.run("Go on."):
                pass
            await run_until_idle()
            assert session.runtime.inbox.queue.count_waking_items("bob@crew") == 1
            assert read_task_state("1") == ("pending", None)
            # With ann the place is free that both of them wait for: bob and his task.
            await run_all_turns(session, "Stop ann.")
    _, word, task = heard
    assert "a word before the task" in word
    assert "Task #1" not in word
    assert "Task #1 is yours now" in task


@pytest.mark.spec("USR-01")
async def test_a_stopped_member_leaves_the_slot_queue_to_the_next(
    tmp_path: Path,
) -> None:
    gate = ToolGate()
    heard: list[str] = []

    def hear(request: ModelRequest) -> str:
        heard.append(get_last_text(request))
        return "heard"

    model = script_team(
        lead=[
            CREATE,
            [spawn_member("bob"), spawn_member("cyd")],
            "wait",
            "both rest",
            spawn_member("ann"),
            call_tool("Until"),
            [send_message("cyd", "for cyd"), send_message("bob", "for bob")],
            call_tool("TaskStop", task_id="cyd"),
            "wait",
            "end",
        ],
        ann=[call_tool("Gate"), "ann ends"],
        bob=["ready", hear],
        cyd=["ready", hear],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool], settings=ONE) as session:
        await run_all_turns(session)
        async with asyncio.timeout(20):
            async for _ in session.run("Go on."):
                pass
            assert session.teams.is_working
            assert heard == []
            gate.is_open.set()
            await run_all_turns(session, None)
        assert session.agent.budget.budget.running_agent_count == 0
    (only,) = heard
    assert "for bob" in only


@pytest.mark.spec("USR-01", "BCK-01")
async def test_process_members_share_the_concurrency_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    wait = call_tool("Bash", "b1", command=f"until [ -e {go} ]; do sleep 0.02; done", description="wait")
    settings = json.dumps({"shoal": {"max_concurrent": 1, "teammate_mode": "process"}})
    waiting = asyncio.Event()

    def see(event: Event) -> None:
        if isinstance(event, ToolStarted) and event.agent == "ann@crew":
            waiting.set()

    async with (
        server_scripts.run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann"), spawn_member("bob"), "Wait.", "End."],
            ann=[wait, "ann ends"],
            bob=["bob ends"],
        ) as server,
        server_scripts.open_process_session(tmp_path, settings=settings) as session,
    ):
        session.subscribe(see)
        async with asyncio.timeout(60):
            async for _ in session.run("Go."):
                pass
            await waiting.wait()
            assert "bob" not in [server_scripts.find_speaker(request.body) for request in server.requests]
            go.touch()
            await run_all_turns(session, None)
        assert session.agent.budget.budget.running_agent_count == 0
    turns = [event for event in read_events(session) if isinstance(event, (MemberWoken, MemberWentIdle))]
    assert [(type(event), event.agent) for event in turns] == [
        (MemberWoken, "ann@crew"),
        (MemberWentIdle, "ann@crew"),
        (MemberWoken, "bob@crew"),
        (MemberWentIdle, "bob@crew"),
    ]


@pytest.mark.spec("USR-01", "BCK-01")
async def test_the_depth_cap_applies_to_agents_of_process_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = json.dumps({"shoal": {"max_depth": 1, "teammate_mode": "process"}})
    dig = call_tool("Agent", "a1", description="dig", prompt="Dig.")
    async with (
        server_scripts.run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann"), "Wait.", server_scripts.get_last_text],
            ann=[dig, server_scripts.get_last_text],
        ),
        server_scripts.open_process_session(tmp_path, settings=settings) as session,
    ):
        text = await run_all_turns(session, "Go.")
    assert "The agent was not started: agents may be nested at most 1 deep" in text
