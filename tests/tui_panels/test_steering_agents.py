"""Agents of a live run, steered by keys: from its own process and from another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cast import Gate, agent, all_turns, cast, recorded, use
from crew_rig import ends, opened
from shoal.core.events import AgentMoved
from shoal.core.requests import Request
from shoal.surfaces.tui.panels.agents import AgentsPanel
from troupe import approve_shutdown, last_words, member, troupe
from troupe import opened as with_team
from tui_scene import shown_live, until
from tui_shots import text_of

FAR = pytest.mark.parametrize("far", [False, True], ids=["own process", "other process"])
CREATE = use("TeamCreate", team_name="crew")


@pytest.mark.spec("RUN-04", "USR-18")
@FAR
async def test_b_moves_an_agent_to_the_background_and_the_lead_waits_no_longer(
    tmp_path: Path, far: bool
) -> None:
    gate = Gate()
    model = cast(lead=[agent("slow", "c1"), "I go on"], slow=[use("Gate"), "done"])
    async with opened(tmp_path, model, tools=[gate.tool]) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(all_turns(session))
        await gate.wait()
        panel: AgentsPanel
        async with shown_live(session, AgentsPanel, far=far) as (panel, pilot):
            await until(pilot, lambda: "waits for general-purpose" in text_of(pilot.app))
            await pilot.press("down", "b")
            await until(pilot, lambda: "waits for" not in text_of(pilot.app))
            await until(pilot, lambda: pilot.app.words)
            assert pilot.app.words == [f"{panel.current.name} goes on in the background."]
            await pilot.press("b")
            await until(pilot, lambda: len(pilot.app.words) == 2)
            assert "in the background already" in pilot.app.words[1]
            gate.opened.set()
            await until(pilot, lambda: "1 ended" in text_of(pilot.app))
        await turn
    assert gate.calls == 1
    assert [type(each) for each in recorded(session)].count(AgentMoved) == 1


@pytest.mark.spec("USR-18", "USR-08")
@FAR
async def test_x_and_k_ask_first(tmp_path: Path, far: bool) -> None:
    gate = Gate()
    model = cast(
        lead=[[agent("one", "c1"), agent("two", "c2")], "end"], one=[use("Gate"), "a"], two=[use("Gate"), "b"]
    )
    async with opened(tmp_path, model, tools=[gate.tool]) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(all_turns(session))
        await gate.wait()
        async with shown_live(session, AgentsPanel, far=far) as (_, pilot):
            await until(pilot, lambda: "3 working" in text_of(pilot.app))
            await pilot.press("down", "x")
            await until(pilot, lambda: "Stop general-purpose?" in text_of(pilot.app))
            await pilot.press("n")
            assert "3 working" in text_of(pilot.app)
            await pilot.press("x", "y")
            await until(pilot, lambda: "1 ended" in text_of(pilot.app))
            await pilot.press("home", "down", "k")
            await until(pilot, lambda: "Kill general-purpose?" in text_of(pilot.app))
            await pilot.press("n")
            assert "1 ended" in text_of(pilot.app)
            await pilot.press("k", "y")
            await until(pilot, lambda: "2 ended" in text_of(pilot.app))
        await turn
    assert {each.status for each in ends(session).values()} == {"killed"}


@pytest.mark.spec("USR-18", "USR-08")
@FAR
async def test_a_teammate_is_interrupted_then_asked_to_shut_down(tmp_path: Path, far: bool) -> None:
    gate = Gate()

    def ann(request: Request) -> Any:
        return approve_shutdown(request) if "request_id" in last_words(request) else "I wait."

    model = troupe(lead=[CREATE, member("ann"), "wait", last_words], ann=[use("Gate"), ann])
    async with with_team(tmp_path, model, tools=[gate.tool]) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(all_turns(session))
        await gate.wait()
        panel: AgentsPanel
        async with shown_live(session, AgentsPanel, far=far) as (panel, pilot):
            await until(pilot, lambda: "└ ann" in text_of(pilot.app))
            await pilot.press("down", "escape")
            await until(pilot, lambda: panel.current.state == "idle")
            await until(pilot, lambda: "ann's turn is interrupted." in pilot.app.words)
            await pilot.press("x", "y")
            await until(pilot, lambda: "ann has ended." in pilot.app.words)
            await until(pilot, lambda: "1 ended" in text_of(pilot.app))
            await pilot.press("home", "escape")
            await until(pilot, lambda: any(each.startswith("lead") for each in pilot.app.words))
        await turn


@FAR
async def test_a_run_that_is_gone_answers_no_key_and_that_is_told(tmp_path: Path, far: bool) -> None:
    gate = Gate()
    model = cast(lead=[agent("slow", "c1", run_in_background=True), "end"], slow=[use("Gate"), "done"])
    async with opened(tmp_path, model, tools=[gate.tool]) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(all_turns(session))
        await gate.wait()
        panel: AgentsPanel
        async with shown_live(session, AgentsPanel, far=far) as (panel, pilot):
            await until(pilot, lambda: "└ general-purpose" in text_of(pilot.app))
            await pilot.press("down")
            ended = panel.current
            gate.opened.set()
            await turn
            await session.parts.crew.quiet()
            # The row still says that it works: the person is faster than the screen.
            panel._agents[ended.id] = ended
            panel.rows.stand_on(ended.id)
            panel._stop(ended)
            await until(pilot, lambda: pilot.app.words)
            assert "not running: it completed" in pilot.app.words[-1]
