"""Assistant mode: a session that stays open and whose lead is always free for the user."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import run_next_turn

import shoal
from agent_scripts import ToolGate, call_tool, read_events, script_agents, spawn_agent
from session_helpers import collect_events, list_lead_results
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import SettingsError
from shoal.core.events import AgentStarted, QueueItemAdded
from shoal.testing import FakeClock

MINUTE = 60


def open_assistant(tmp_path: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=tmp_path, model=model, **{"skip_permissions": True, "assistant": True, **options})


@pytest.mark.spec("MOD-02", "QUE-03")
async def test_an_assistant_without_work_waits_for_schedules_and_input(tmp_path: Path) -> None:
    clock = FakeClock()
    every_five = call_tool("CronCreate", cron="*/5 * * * *", prompt="look at the build")
    model = script_agents(lead=[every_five, "kept", "looked", "looked again", "hello"])
    async with open_assistant(tmp_path, model, clock=clock) as session:
        await collect_events(session.run("lead"))
        assert "does not wait for the schedule" not in list_lead_results(session)[0]
        for expected_text in ("looked", "looked again"):
            coming = asyncio.ensure_future(run_next_turn(session))
            await asyncio.sleep(0)
            assert not coming.done()
            await clock.advance(5 * MINUTE)
            assert (await coming).text == expected_text
            assert session.agent.conversation.messages[-2].text.startswith("<scheduled-prompt ")
        coming = asyncio.ensure_future(run_next_turn(session))
        session.steer("are you there?")
        assert (await coming).text == "hello"


@pytest.mark.spec("MOD-02", "RUN-05")
async def test_agents_of_an_assistant_run_in_the_background_while_it_accepts_input(tmp_path: Path) -> None:
    gate = ToolGate()
    received: list[str] = []

    def lead(request: ModelRequest) -> str:
        received.append(request.messages[-1].text)
        return "I hear you"

    model = script_agents(
        lead=[spawn_agent("child", "c1", run_in_background=False), "started", lead],
        child=[call_tool("Gate"), "done"],
    )
    async with open_assistant(tmp_path, model, tools=[gate.tool]) as session:
        async with asyncio.timeout(10):
            await collect_events(session.run("lead"))
        await gate.wait_until_reached()
        session.steer("how is it going?")
        assert (await run_next_turn(session)).text == "I hear you"
        gate.is_open.set()
        assert (await run_next_turn(session)).text == "I hear you"
    (child,) = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert child.background
    assert received[0] == "how is it going?"
    assert "<task-notification>" in received[1]


@pytest.mark.spec("MOD-02")
async def test_user_input_during_a_tool_call_is_queued_at_once_and_read_at_the_next_step(
    tmp_path: Path,
) -> None:
    gate = ToolGate()
    received: list[str] = []

    def lead(request: ModelRequest) -> str:
        received.append(request.messages[-1].text)
        return "stopped"

    async with open_assistant(
        tmp_path, script_agents(lead=[call_tool("Gate"), lead]), tools=[gate.tool]
    ) as session:
        turn = session.run("lead")
        await gate.wait_until_reached()
        session.steer("never mind")
        assert [event.text for event in read_events(session) if isinstance(event, QueueItemAdded)] == [
            "never mind"
        ]
        gate.is_open.set()
        await collect_events(turn)
    assert received == ["never mind"]


async def test_an_assistant_ends_at_its_deadline(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_assistant(
        tmp_path, script_agents(lead=["hi"]), clock=clock, deadline=10 * MINUTE
    ) as session:
        await collect_events(session.run("lead"))
        coming = asyncio.ensure_future(session.next_turn(wait_for_input=True))
        await asyncio.sleep(0)
        await clock.advance(11 * MINUTE)
        assert await coming is None
        assert session.is_past_deadline


async def test_assistant_mode_is_enabled_by_a_setting_and_needs_background_agents(
    tmp_path: Path,
) -> None:
    on = json.dumps({"shoal": {"assistant": True}})
    async with open_assistant(
        tmp_path, script_agents(lead=["hi"]), assistant=None, settings=on, persist=False
    ) as session:
        assert session.runtime.config.assistant
        assert "Your session stays open" in session.agent.system
    async with open_assistant(tmp_path, script_agents(lead=["hi"]), assistant=None, persist=False) as session:
        assert not session.runtime.config.assistant
        assert "Your session stays open" not in session.agent.system
    off = json.dumps({"shoal": {"background_agents": False}})
    with pytest.raises(SettingsError, match=r"shoal\.background_agents"):
        async with open_assistant(tmp_path, script_agents(lead=["hi"]), settings=off):
            pass
