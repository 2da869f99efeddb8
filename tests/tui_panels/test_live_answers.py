"""Questions of a live run, answered on the screen: what the agent then does, and who may come first."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from parser_scenario import PERMISSION_QUESTION, build_parser_scenario

from agent_scripts import call_tool, run_all_turns, script_agents, spawn_agent
from run_view_scenario import PanelsApp, count_open_questions, show_live_panel, wait_until
from session_helpers import list_lead_results, open_session
from shoal.app.run_access.run_handle import RunHandle
from shoal.app.session.run_controller import RemoteRunController
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import StateFileError
from shoal.core.permissions.questions import AllowAnswer, DenyAnswer
from shoal.surfaces.tui.answer_screen import AnswerScreen
from shoal.surfaces.tui.panels.agents_panel import AgentsPanel
from shoal.surfaces.tui.panels.questions_panel import QuestionsPanel
from team_scripts import get_last_result, get_last_text, script_team, spawn_member
from team_scripts import open_session as with_team
from tui_snapshots import render_text

ATTENDED: dict[str, Any] = {"skip_permissions": False, "attended": True}
FAR = pytest.mark.parametrize("far", [False, True], ids=["own process", "other process"])


@pytest.mark.spec("USR-05", "USR-26", "USR-27")
@FAR
async def test_an_agent_at_depth_three_continues_with_the_changed_input(tmp_path: Path, far: bool) -> None:
    write = call_tool("Write", "w1", file_path=str(tmp_path / "a.txt"), content="one")
    model = script_agents(
        lead=[spawn_agent("first", "c1"), "end"],
        first=[spawn_agent("second", "c2"), "end"],
        second=[spawn_agent("third", "c3"), "end"],
        third=[write, "written"],
    )
    async with open_session(tmp_path, model, **ATTENDED) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(run_all_turns(session))
        panel: QuestionsPanel
        async with show_live_panel(session, QuestionsPanel, remote=far) as (panel, pilot):
            await wait_until(pilot, lambda: count_open_questions(panel) == 1)
            await pilot.press("enter", "e")
            editor = pilot.app.screen.query_one("TextArea")
            editor.text = editor.text.replace('"one"', '"two"')
            await pilot.press("ctrl+s")
            await wait_until(pilot, lambda: count_open_questions(panel) == 0)
            assert "allowed once, with changed input" in render_text(pilot.app)
            await turn
    assert (tmp_path / "a.txt").read_text() == "two"


@pytest.mark.spec("USR-05")
async def test_answers_for_the_session_and_for_always_are_remembered_as_chosen(tmp_path: Path) -> None:
    touch = [call_tool("Bash", f"t{n}", command="touch x") for n in range(2)]
    make = [call_tool("Bash", f"m{n}", command="mkdir -p y") for n in range(2)]
    model = script_agents(lead=[*touch, *make, call_tool("Bash", "r", command="rmdir y"), "end"])
    async with open_session(tmp_path, model, **ATTENDED) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(run_all_turns(session))
        panel: QuestionsPanel
        async with show_live_panel(session, QuestionsPanel) as (panel, pilot):
            for key, number in (("s", 1), ("p", 2)):
                await wait_until(
                    pilot, lambda n=number: len(panel._questions) == n and count_open_questions(panel) == 1
                )
                await pilot.press("home", "enter", key)
            await wait_until(pilot, lambda: len(panel._questions) == 3 and count_open_questions(panel) == 1)
            await pilot.press("home", "enter", "n", *"keep it", "enter")
            await turn
    saved_settings = json.loads((tmp_path / ".claude" / "settings.local.json").read_text())
    assert any("mkdir" in rule for rule in saved_settings["permissions"]["allow"])
    assert not any("touch" in rule for rule in saved_settings["permissions"]["allow"])
    assert "keep it" in list_lead_results(session)[-1]


@pytest.mark.spec("USR-05")
@FAR
async def test_a_question_answered_elsewhere_closes_its_screen_with_a_notice(
    tmp_path: Path, far: bool
) -> None:
    model = script_agents(lead=[call_tool("Bash", "b1", command="touch x"), "end"])
    async with open_session(tmp_path, model, **ATTENDED) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(run_all_turns(session))
        panel: AgentsPanel
        async with show_live_panel(session, AgentsPanel, remote=far) as (panel, pilot):
            await wait_until(pilot, panel.run_view.list_open_questions)
            [row] = panel.run_view.list_open_questions()
            await pilot.app.push_screen(
                AnswerScreen(row, panel.controller, run_view=panel.run_view, unprompted=True)
            )
            elsewhere = RemoteRunController(RunHandle(session=session.id, home=session.runtime.settings.home))
            assert elsewhere.answer_question(row.id, DenyAnswer(reason="not now"))
            await wait_until(pilot, lambda: len(pilot.app.screen_stack) == 1)
            await wait_until(
                pilot,
                lambda: (
                    "The question from lead was answered elsewhere: refused: not now." in pilot.app.notices
                ),
            )
            await turn
    assert not (tmp_path / "x").exists()


@pytest.mark.spec("USR-26")
async def test_a_plan_is_rejected_compared_and_approved(tmp_path: Path) -> None:
    results: list[str] = []

    def again(request: ModelRequest) -> Any:
        results.append(get_last_result(request))
        return call_tool("ExitPlanMode", "p2", plan="# Write it\n\nand test it")

    def record_result(request: ModelRequest) -> str:
        results.append(get_last_result(request))
        return "done"

    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            spawn_member("ann", mode="plan"),
            "wait",
            get_last_text,
        ],
        ann=[call_tool("ExitPlanMode", "p1", plan="# Write it"), again, record_result],
    )
    settings = json.dumps({"shoal": {"plan_approver": "user"}})
    async with (
        with_team(tmp_path, model, settings=settings, attended=True) as session,
        asyncio.TaskGroup() as group,
    ):
        turn = group.create_task(run_all_turns(session))
        panel: QuestionsPanel
        async with show_live_panel(session, QuestionsPanel) as (panel, pilot):
            await wait_until(pilot, lambda: count_open_questions(panel) == 1)
            await pilot.press("enter", "n", *"test it", "enter")
            await wait_until(pilot, lambda: len(panel._questions) == 2 and count_open_questions(panel) == 1)
            await pilot.press("home", "enter")
            await wait_until(pilot, lambda: "Since the last version: +2 -0 lines" in render_text(pilot.app))
            await pilot.press("d")
            await wait_until(pilot, lambda: "+ and test it" in render_text(pilot.app))
            await pilot.press("y")
            await wait_until(pilot, lambda: count_open_questions(panel) == 0)
        turn.cancel()
    assert "test it" in results[0]
    assert "The plan is approved" in results[1]


@pytest.mark.spec("USR-05")
async def test_the_agent_receives_the_chosen_options(tmp_path: Path) -> None:
    options = [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]
    ask = call_tool(
        "AskUserQuestion",
        "a1",
        questions=[
            {"question": "Which colour?", "header": "Colour", "options": options, "multiSelect": False},
            {"question": "Which shades?", "header": "Shades", "options": options, "multiSelect": True},
        ],
    )
    model = script_agents(lead=[ask, "end"])
    async with open_session(tmp_path, model, **ATTENDED) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(run_all_turns(session))
        panel: QuestionsPanel
        async with show_live_panel(session, QuestionsPanel, size=(80, 24)) as (panel, pilot):
            await wait_until(pilot, lambda: count_open_questions(panel) == 1)
            await pilot.press("enter", "2", "1", "2", "o", *"mauve", "enter", "d")
            await turn
    assert "blue" in list_lead_results(session)[0]
    assert "red, blue, mauve" in list_lead_results(session)[0]


async def test_an_answer_to_an_ended_run_is_not_delivered(tmp_path: Path) -> None:
    async with open_session(tmp_path, script_agents(lead=["end"])) as session:
        await run_all_turns(session)
        run = RunHandle(session=session.id, home=session.runtime.settings.home)
    with pytest.raises(StateFileError, match="has ended, so it cannot receive"):
        RemoteRunController(run).answer_question("q", AllowAnswer())
    scenario = await build_parser_scenario()
    app = PanelsApp(QuestionsPanel(scenario.run_view, RemoteRunController(run), clock=scenario.clock))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "y")
        await wait_until(pilot, lambda: app.notices)
        assert f"shoal --resume {session.id}" in app.notices[0]
    assert scenario.run_view.questions.get_row(PERMISSION_QUESTION.id).answered == 0
