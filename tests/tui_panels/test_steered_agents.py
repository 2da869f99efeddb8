"""Agents of a live run, steered by keys: from its own process and from another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns, script_agents, spawn_agent
from run_view_scenario import show_live_panel, wait_until
from session_helpers import map_agent_results, open_session
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentMovedToBackground
from shoal.surfaces.tui.panels.agents_panel import AgentsPanel
from team_scripts import approve_shutdown, get_last_text, script_team, spawn_member
from team_scripts import open_session as with_team
from tui_snapshots import render_text

FAR = pytest.mark.parametrize("far", [False, True], ids=["own process", "other process"])
CREATE = call_tool("TeamCreate", team_name="crew")


@pytest.mark.spec("RUN-04", "USR-18")
@FAR
async def test_b_moves_an_agent_to_the_background_and_frees_the_lead(tmp_path: Path, far: bool) -> None:
    gate = ToolGate()
    model = script_agents(lead=[spawn_agent("slow", "c1"), "I go on"], slow=[call_tool("Gate"), "done"])
    async with open_session(tmp_path, model, tools=[gate.tool]) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(run_all_turns(session))
        await gate.wait_until_reached()
        panel: AgentsPanel
        async with show_live_panel(session, AgentsPanel, remote=far) as (panel, pilot):
            await wait_until(pilot, lambda: "waiting for general-purpose" in render_text(pilot.app))
            await pilot.press("down", "b")
            await wait_until(pilot, lambda: "waiting for" not in render_text(pilot.app))
            await wait_until(pilot, lambda: pilot.app.notices)
            assert pilot.app.notices == [f"{panel.current_agent.name} continues in the background."]
            await pilot.press("b")
            await wait_until(pilot, lambda: len(pilot.app.notices) == 2)
            assert "is already in the background" in pilot.app.notices[1]
            gate.is_open.set()
            await wait_until(pilot, lambda: "1 ended" in render_text(pilot.app))
        await turn
    assert gate.calls == 1
    assert [type(each) for each in read_events(session)].count(AgentMovedToBackground) == 1


@pytest.mark.spec("USR-18", "USR-08")
@FAR
async def test_x_and_k_ask_for_confirmation(tmp_path: Path, far: bool) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[[spawn_agent("one", "c1"), spawn_agent("two", "c2")], "end"],
        one=[call_tool("Gate"), "a"],
        two=[call_tool("Gate"), "b"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(run_all_turns(session))
        await gate.wait_until_reached()
        async with show_live_panel(session, AgentsPanel, remote=far) as (_, pilot):
            await wait_until(pilot, lambda: "3 working" in render_text(pilot.app))
            await pilot.press("down", "x")
            await wait_until(pilot, lambda: "Stop general-purpose?" in render_text(pilot.app))
            await pilot.press("n")
            assert "3 working" in render_text(pilot.app)
            await pilot.press("x", "y")
            await wait_until(pilot, lambda: "1 ended" in render_text(pilot.app))
            await pilot.press("home", "down", "k")
            await wait_until(pilot, lambda: "Kill general-purpose?" in render_text(pilot.app))
            await pilot.press("n")
            assert "1 ended" in render_text(pilot.app)
            await pilot.press("k", "y")
            await wait_until(pilot, lambda: "2 ended" in render_text(pilot.app))
        await turn
    assert {each.status for each in map_agent_results(session).values()} == {"killed"}


@pytest.mark.spec("USR-18", "USR-08")
@FAR
async def test_x_interrupts_a_member_and_then_asks_it_to_shut_down(tmp_path: Path, far: bool) -> None:
    gate = ToolGate()

    def ann(request: ModelRequest) -> Any:
        return approve_shutdown(request) if "request_id" in get_last_text(request) else "I wait."

    model = script_team(
        lead=[CREATE, spawn_member("ann"), "wait", get_last_text], ann=[call_tool("Gate"), ann]
    )
    async with with_team(tmp_path, model, tools=[gate.tool]) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(run_all_turns(session))
        await gate.wait_until_reached()
        panel: AgentsPanel
        async with show_live_panel(session, AgentsPanel, remote=far) as (panel, pilot):
            await wait_until(pilot, lambda: "└ ann" in render_text(pilot.app))
            await pilot.press("down", "escape")
            await wait_until(pilot, lambda: panel.current_agent.state == "idle")
            await wait_until(pilot, lambda: "Interrupted ann's turn." in pilot.app.notices)
            await pilot.press("x", "y")
            await wait_until(pilot, lambda: "ann has ended." in pilot.app.notices)
            await wait_until(pilot, lambda: "1 ended" in render_text(pilot.app))
            await pilot.press("home", "escape")
            await wait_until(pilot, lambda: any(each.startswith("lead") for each in pilot.app.notices))
        await turn


@FAR
async def test_steering_an_ended_run_shows_a_notice(tmp_path: Path, far: bool) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[spawn_agent("slow", "c1", run_in_background=True), "end"], slow=[call_tool("Gate"), "done"]
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(run_all_turns(session))
        await gate.wait_until_reached()
        panel: AgentsPanel
        async with show_live_panel(session, AgentsPanel, remote=far) as (panel, pilot):
            await wait_until(pilot, lambda: "└ general-purpose" in render_text(pilot.app))
            await pilot.press("down")
            ended = panel.current_agent
            gate.is_open.set()
            await turn
            await session.supervisor.wait_until_idle()
            # The row still says that it works: the user is faster than the screen.
            panel._agents[ended.id] = ended
            panel.rows.move_cursor_to(ended.id)
            panel._stop_agent(ended)
            await wait_until(pilot, lambda: pilot.app.notices)
            assert "not running: it completed" in pilot.app.notices[-1]
