"""Interruptions and temporary failures lose neither a member nor its notifications."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import ToolGate, call_tool, run_all_turns, spawn_agent
from session_helpers import collect_events
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import Event, MemberWentDown, NoteAdded, ToolOutputReturned, ToolStarted
from team_scripts import open_session, script_team, spawn_member


def reply_as_child(request: ModelRequest, **parts: list[Any]) -> Any:
    """Return the reply of an agent started by a member; its prompt begins with its name."""
    name = request.messages[0].text.split()[0]
    spoken = sum(message.role == "assistant" for message in request.messages)
    return parts[name][min(spoken, len(parts[name]) - 1)]


@pytest.mark.spec("USR-02", "USR-03")
async def test_an_interrupted_member_still_gets_the_result_of_its_finished_agent(tmp_path: Path) -> None:
    gate, quick = ToolGate(), ToolGate("Quick")
    made = [call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "wait"]

    def lead(request: ModelRequest) -> Any:
        if request.messages[0].text.startswith(("slow", "quick")):
            return reply_as_child(
                request, slow=[call_tool("Gate"), "never"], quick=[call_tool("Quick"), "quickly found"]
            )
        spoken = sum(message.role == "assistant" for message in request.messages)
        return made[min(spoken, 2)]

    both = [spawn_agent(who, f"c-{who}") for who in ("slow", "quick")]
    heard = list[str]()

    def again(request: ModelRequest) -> str:
        heard.append(request.messages[-1].text)
        return "heard"

    model = script_team(lead=[lead], ann=[both, again])
    async with open_session(tmp_path, model, tools=[gate.tool, quick.tool]) as session:
        over = asyncio.Event()

        def hear(event: Event) -> None:
            if isinstance(event, ToolStarted) and event.call == "c-quick":
                quick.is_open.set()
            if isinstance(event, ToolOutputReturned) and event.call == "c-quick":
                over.set()

        session.subscribe(hear)
        await collect_events(session.run("Go."))
        async with asyncio.timeout(30):
            await gate.wait_until_reached()
            await over.wait()
            assert session.teams.interrupt_member("ann")
            while not any("quickly found" in text for text in heard):
                await session.teams.wait_until_idle()
    assert sum("<result>quickly found</result>" in text for text in heard) == 1


@pytest.mark.spec("TSK-07")
async def test_a_member_survives_a_temporarily_unwritable_board(tmp_path: Path) -> None:
    def lead(request: ModelRequest) -> Any:
        made = [call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "wait"]
        return made[min(sum(message.role == "assistant" for message in request.messages), 2)]

    model = script_team(lead=[lead], ann=["I rest.", lambda request: request.messages[-1].text])
    async with open_session(tmp_path, model) as session, asyncio.timeout(30):
        told = asyncio.Event()

        def hear(event: Event) -> None:
            if isinstance(event, NoteAdded) and "ann cannot claim tasks now" in event.text:
                told.set()

        session.subscribe(hear)
        await run_all_turns(session, "Go.")
        home = Path(session.runtime.settings.home)
        board = home / "tasks" / "crew"
        task = {"id": "1", "subject": "Dig", "description": "a hole", "status": "pending"}
        staging = home / "shoal" / "tasks" / "crew" / "staging"
        shutil.rmtree(staging, ignore_errors=True)
        staging.parent.mkdir(parents=True, exist_ok=True)
        staging.write_text("in the way")
        (board / "1.json").write_text(json.dumps(task))
        await told.wait()
        staging.unlink()
        while json.loads((board / "1.json").read_text()).get("owner") != "ann":
            await session.teams.wait_until_idle()
        assert [each.name for each in session.teams.list_members()] == ["ann"]


@pytest.mark.slow
@pytest.mark.spec("TSK-07", "TEAM-05")
async def test_a_member_is_down_if_the_board_stays_unwritable(tmp_path: Path) -> None:
    lead = [call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "wait"]
    async with open_session(tmp_path, script_team(lead=lead, ann=["I rest."])) as session:
        down = asyncio.Event()
        session.subscribe(lambda event: down.set() if isinstance(event, MemberWentDown) else None)
        await run_all_turns(session, "Go.")
        home = Path(session.runtime.settings.home)
        staging = home / "shoal" / "tasks" / "crew" / "staging"
        shutil.rmtree(staging, ignore_errors=True)
        staging.parent.mkdir(parents=True, exist_ok=True)
        staging.write_text("in the way")
        task = {"id": "1", "subject": "Dig", "description": "a hole", "status": "pending"}
        (home / "tasks" / "crew" / "1.json").write_text(json.dumps(task))
        async with asyncio.timeout(30):
            await down.wait()
        assert [each.name for each in session.teams.list_members()] == ["ann"]
