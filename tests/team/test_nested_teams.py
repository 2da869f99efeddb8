"""Nested teams: members that lead teams, if configured."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from team_helpers import watch_for_event

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns
from shoal.core.conversation.messages import extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.conversation.tools import ToolContext
from shoal.core.events import AgentEnded, AgentStarted, MemberWentDown, MemberWentIdle
from shoal.tools.function_tool import tool
from team_scripts import (
    approve_shutdown,
    find_tool_results,
    get_home,
    get_last_result,
    get_last_text,
    open_session,
    read_inbox,
    read_team_config,
    script_team,
    send_message,
    spawn_member,
)

DEEP = json.dumps({"shoal": {"team_depth": 2}})
CREW = call_tool("TeamCreate", team_name="crew")
SUB = call_tool("TeamCreate", team_name="sub", description="looks below")


def record_text(seen: dict[str, list[str]], who: str, then: Any) -> Any:
    def line(request: ModelRequest) -> Any:
        seen.setdefault(who, []).append(get_last_text(request))
        return then

    return line


async def test_a_member_can_lead_a_team_that_ends_with_it(tmp_path: Path) -> None:
    gate = ToolGate()
    seen: dict[str, list[str]] = {}
    rosters: dict[str, Any] = {}

    def at_work(request: ModelRequest) -> str:
        rosters.update(crew=read_team_config("crew"), sub=read_team_config("sub"))
        return "bob is at work"

    model = script_team(
        lead=[
            CREW,
            spawn_member("ann"),
            "wait",
            record_text(seen, "lead", send_message("ann", {"type": "shutdown_request"})),
            "asked",
            record_text(seen, "lead", "end"),
        ],
        ann=[
            SUB,
            spawn_member("bob", "Look at the keel."),
            call_tool("Until"),
            at_work,
            record_text(seen, "ann", send_message("team-lead", "the keel is sound", "sound")),
            "told the lead",
            approve_shutdown,
        ],
        bob=[call_tool("Gate"), send_message("team-lead", "no cracks", "no cracks"), "bob ends"],
    )
    tools = [gate.tool, gate.wait_tool]
    async with open_session(tmp_path, model, settings=DEEP, tools=tools) as session:
        rested = asyncio.Event()
        session.subscribe(lambda event: rested.set() if isinstance(event, MemberWentIdle) else None)
        async for _ in session.run("Begin."):
            pass
        waiting = asyncio.ensure_future(session.next_turn())
        async with asyncio.timeout(10):
            await rested.wait()
        states = {each.name: each.state for each in session.teams.list_members()}
        assert states == {"ann": "idle", "bob": "running"}
        assert session.teams.is_working, "a team below that works keeps the one above from being quiet"
        assert not waiting.done()
        gate.is_open.set()
        turn = await waiting
        while turn is not None:
            async for _ in turn:
                pass
            turn = await session.next_turn()
        assert not (get_home() / "teams" / "sub").exists()
    assert [each["name"] for each in rosters["crew"]["members"]] == ["team-lead", "ann"]
    assert [each["name"] for each in rosters["sub"]["members"]] == ["team-lead", "bob"]
    assert rosters["sub"]["leadAgentId"] == "ann@crew"
    # Each hears its own: bob reports to ann, and ann to the lead.
    assert "no cracks" in seen["ann"][0]
    assert "the keel is sound" in seen["lead"][0]
    assert "no cracks" not in "".join(seen["lead"])
    started = {e.agent: e for e in read_events(session) if isinstance(e, AgentStarted)}
    assert (started["bob@sub"].parent, started["bob@sub"].depth) == ("ann@crew", 2)
    ended = [e.agent for e in read_events(session) if isinstance(e, AgentEnded)]
    assert sorted(ended) == ["ann@crew", "bob@sub"]


async def test_a_nested_team_has_its_own_board(tmp_path: Path) -> None:
    said: list[str] = []

    def record_result(request: ModelRequest) -> str:
        said.append(get_last_result(request))
        return "done"

    model = script_team(
        lead=[CREW, spawn_member("ann"), "wait", "end"],
        ann=[
            SUB,
            call_tool("TaskCreate", subject="look", description="d", team_name="sub"),
            spawn_member("bob"),
            call_tool("TaskList", team_name="crew"),
            lambda r: [record_result(r), call_tool("TaskList", team_name="other")],
            record_result,
        ],
        bob=["ready", call_tool("TaskUpdate", taskId="1", status="completed"), "completed it"],
    )
    async with open_session(tmp_path, model, settings=DEEP) as session:
        await run_all_turns(session)
        task = json.loads((get_home() / "tasks" / "sub" / "1.json").read_text())
        shown = session.agent.tools["TaskList"].schema.input_schema["properties"]
    assert (task["status"], task["owner"]) == ("completed", "bob")
    assert said[0].startswith("There are no tasks.")
    assert "You do not lead the team 'other'." in said[1]
    assert "team_name" in shown


async def test_a_nested_team_is_resumed_with_its_lead(tmp_path: Path) -> None:
    model = script_team(
        lead=[CREW, spawn_member("ann"), "wait", "end"],
        ann=[SUB, spawn_member("bob"), "ready", "idle"],
        bob=["ready"],
    )
    async with open_session(tmp_path, model, settings=DEEP) as session:
        await run_all_turns(session)
    seen: dict[str, list[str]] = {}
    parts: dict[str, list[Any]] = {
        "lead": [send_message("ann", "ask bob", "ask"), "end"],
        "ann": [record_text(seen, "ann", send_message("bob", "are you there?", "there?")), "asked"],
        "bob": [record_text(seen, "bob", send_message("team-lead", "yes", "yes")), "told"],
    }

    def reply_as(who: str) -> Any:
        def line(request: ModelRequest) -> Any:
            if not parts[who]:
                seen.setdefault(who, []).append(get_last_text(request))
                return "nothing more"
            step = parts[who].pop(0)
            return step(request) if callable(step) else step

        return line

    again = script_team(lead=[reply_as("lead")], ann=[reply_as("ann")], bob=[reply_as("bob")])
    async with open_session(tmp_path, again, settings=DEEP, resume=session.id) as resumed:
        assert sorted(each.agent for each in resumed.teams.list_members()) == ["ann@crew", "bob@sub"]
        await run_all_turns(resumed, "Go on.")
    assert "You lead the team sub: looks below." in seen["ann"][0]
    assert "are you there?" in seen["bob"][0]
    assert 'teammate_id="team-lead"' in seen["bob"][0]
    assert any("yes" in text and 'teammate_id="bob"' in text for text in seen["ann"])
    assert [each["from"] for each in read_inbox("sub", "bob")][-1] == "team-lead"


@pytest.mark.spec("TEAM-05", "LIF-04")
async def test_a_nested_team_outlives_a_passing_failure_of_its_lead(tmp_path: Path) -> None:
    model = script_team(
        lead=[CREW, spawn_member("ann"), "Wait.", "Good."],
        ann=[
            SUB,
            spawn_member("bob"),
            call_tool("TaskCreate", subject="look", description="d", team_name="sub", activeForm="Looking"),
            "Ready.",
            "x" * 3000,
            send_message("bob", "Are you there?", "there?"),
            "Asked.",
        ],
        bob=["Ready.", lambda _: send_message("team-lead", "Here I am.", "here"), "Told."],
    )
    async with open_session(tmp_path, model, settings=DEEP) as session, asyncio.timeout(60):
        await run_all_turns(session)
        (transcript,) = get_home().glob("projects/*/*/subagents/agent-ann@crew.jsonl")
        down = watch_for_event(session, lambda event: isinstance(event, MemberWentDown))
        with fail_writes_to(transcript):
            await session.send("ann", "Say a lot.")
            await down.wait()
        idle = watch_for_event(
            session, lambda event: isinstance(event, MemberWentIdle) and event.agent == "ann@crew"
        )
        await session.send("ann", "Continue.")
        await idle.wait()
        await session.teams.wait_until_idle()
        states = {each.agent: each.state for each in session.list_members()}
        assert states == {"ann@crew": "idle", "bob@sub": "idle"}
        assert [each["name"] for each in read_team_config("sub")["members"]] == ["team-lead", "bob"]
        assert "Are you there?" in [each["text"] for each in read_inbox("sub", "bob")]
        assert json.loads((get_home() / "tasks" / "sub" / "1.json").read_text())["subject"] == "look"


async def test_unfinished_tasks_of_a_nested_team_are_listed(tmp_path: Path) -> None:
    task = call_tool("TaskCreate", subject="look", description="d", team_name="sub")
    model = script_team(lead=[CREW, spawn_member("ann"), "Wait.", "Good."], ann=[SUB, task, "Ready."])
    async with open_session(tmp_path, model, settings=DEEP) as session:
        await run_all_turns(session)
        unfinished = await session.teams.list_unfinished_tasks()
    assert [each.subject for each in unfinished] == ["look"]


@contextmanager
def fail_writes_to(file: Path) -> Iterator[None]:
    """Let the file have no room, and all others have some."""
    with pytest.MonkeyPatch.context() as full:
        write = os.write

        def write_elsewhere(fd: int, content: bytes) -> int:
            if Path(f"/proc/self/fd/{fd}").readlink() == file:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(fd, content)

        full.setattr(os, "write", write_elsewhere)
        yield


@pytest.mark.parametrize("depth", [1, 2])
async def test_no_member_leads_a_team_below_the_configured_depth(tmp_path: Path, depth: int) -> None:
    offered: list[set[str]] = []
    said: list[str] = []

    @tool(name="Make")
    async def make(*, context: ToolContext) -> str:
        """Make a team, as TeamCreate does."""
        team = await session.teams.create_team("deeper", description=None, kind=None, context=context)
        return team.name

    def last(request: ModelRequest) -> Any:
        offered.append({each.name for each in request.tools})
        return [SUB, call_tool("Make")]

    def record_results(request: ModelRequest) -> str:
        said.extend(extract_tool_result_text(each) for each in find_tool_results(request.messages)[-2:])
        return "end"

    ann = [last, record_results] if depth == 1 else [SUB, spawn_member("bob"), "wait"]
    model = script_team(lead=[CREW, spawn_member("ann"), "wait", "end"], ann=ann, bob=[last, record_results])
    settings = json.dumps({"shoal": {"team_depth": depth}})
    async with open_session(tmp_path, model, settings=settings, tools=[make]) as session:
        await run_all_turns(session)
    assert "TeamCreate" not in offered[0]
    assert "There is no tool named 'TeamCreate'" in said[0]
    assert ("nested teams are off" if depth == 1 else "deep here") in said[1]
    assert "shoal.team_depth" in said[1]
    assert not (get_home() / "teams" / "deeper").exists()


@pytest.mark.parametrize("name", ["bob", "bob@sub"])
async def test_a_person_reaches_the_members_of_a_nested_team_by_name(tmp_path: Path, name: str) -> None:
    gate = ToolGate()
    heard: list[str] = []

    def hear(request: ModelRequest) -> str:
        heard.append(get_last_text(request))
        return "Heard."

    model = script_team(
        lead=[CREW, spawn_member("ann"), *["Wait."] * 9],
        ann=[SUB, spawn_member("bob"), *["Ready."] * 9],
        bob=[call_tool("Gate"), hear, *[approve_shutdown] * 3],
    )
    async with open_session(tmp_path, model, settings=DEEP, tools=[gate.tool]) as session:
        turns = asyncio.create_task(run_all_turns(session))
        await gate.wait_until_reached()
        teams = session.teams
        assert {each.agent for each in session.list_members()} == {"ann@crew", "bob@sub"}
        assert teams.is_working
        assert teams.interrupt_member("nobody") is None
        assert not await teams.end_member("nobody", "reason")
        assert not await teams.shut_down_member("nobody", "reason")
        assert await teams.send_user_message("nobody", "Hello?") is None
        idle = watch_for_event(
            session, lambda event: isinstance(event, MemberWentIdle) and event.agent == "bob@sub"
        )
        assert teams.interrupt_member(name) is True
        await idle.wait()
        assert teams.interrupt_member(name) is False
        receipt = await session.send(name, "Are you there?")
        assert (receipt.to, receipt.name, receipt.how) == ("bob@sub", "bob", "queued")
        await turns
        assert "Are you there?" in heard[0]
        assert await teams.shut_down_member(name, "no work is left")
        async with asyncio.timeout(20):
            while {each.agent for each in session.list_members()} != {"ann@crew"}:
                await asyncio.sleep(0)
        assert [each["name"] for each in read_team_config("sub")["members"]] == ["team-lead"]
        assert await teams.end_member("ann", "stopped by a test")
        assert not session.list_members()
