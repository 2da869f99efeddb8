"""Questions of a live run, answered on the screen: what the agent then does, and who may come first."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from parser_scene import MAY_RUN, parser_scene

from cast import agent, all_turns, cast, use
from crew_rig import opened, texts
from shoal.app.outside.watching import Run
from shoal.app.session.helm import FarHelm
from shoal.core.errors import StoreError
from shoal.core.questions import Allowed, Denied
from shoal.core.requests import Request
from shoal.surfaces.tui.answering import AnswerScreen
from shoal.surfaces.tui.panels.agents import AgentsPanel
from shoal.surfaces.tui.panels.questions import QuestionsPanel
from troupe import last_result, last_words, member, troupe
from troupe import opened as with_team
from tui_scene import PanelsApp, open_in, shown_live, until
from tui_shots import text_of

ATTENDED: dict[str, Any] = {"skip_permissions": False, "attended": True}
FAR = pytest.mark.parametrize("far", [False, True], ids=["own process", "other process"])


@pytest.mark.spec("USR-05", "USR-26", "USR-27")
@FAR
async def test_a_question_from_depth_three_is_answered_with_another_input_and_frees_its_agent(
    tmp_path: Path, far: bool
) -> None:
    write = use("Write", "w1", file_path=str(tmp_path / "a.txt"), content="one")
    model = cast(
        lead=[agent("first", "c1"), "end"],
        first=[agent("second", "c2"), "end"],
        second=[agent("third", "c3"), "end"],
        third=[write, "written"],
    )
    async with opened(tmp_path, model, **ATTENDED) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(all_turns(session))
        panel: QuestionsPanel
        async with shown_live(session, QuestionsPanel, far=far) as (panel, pilot):
            await until(pilot, lambda: open_in(panel) == 1)
            await pilot.press("enter", "e")
            editor = pilot.app.screen.query_one("TextArea")
            editor.text = editor.text.replace('"one"', '"two"')
            await pilot.press("ctrl+s")
            await until(pilot, lambda: open_in(panel) == 0)
            assert "allowed once, with a changed input" in text_of(pilot.app)
            await turn
    assert (tmp_path / "a.txt").read_text() == "two"


@pytest.mark.spec("USR-05")
async def test_an_answer_for_the_session_and_one_for_always_hold_as_they_say(tmp_path: Path) -> None:
    touch = [use("Bash", f"t{n}", command="touch x") for n in range(2)]
    make = [use("Bash", f"m{n}", command="mkdir -p y") for n in range(2)]
    model = cast(lead=[*touch, *make, use("Bash", "r", command="rmdir y"), "end"])
    async with opened(tmp_path, model, **ATTENDED) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(all_turns(session))
        panel: QuestionsPanel
        async with shown_live(session, QuestionsPanel) as (panel, pilot):
            for key, number in (("s", 1), ("p", 2)):
                await until(pilot, lambda n=number: len(panel._questions) == n and open_in(panel) == 1)
                await pilot.press("home", "enter", key)
            await until(pilot, lambda: len(panel._questions) == 3 and open_in(panel) == 1)
            await pilot.press("home", "enter", "n", *"keep it", "enter")
            await turn
    kept = json.loads((tmp_path / ".claude" / "settings.local.json").read_text())
    assert any("mkdir" in rule for rule in kept["permissions"]["allow"])
    assert not any("touch" in rule for rule in kept["permissions"]["allow"])
    assert "keep it" in texts(session)[-1]


@pytest.mark.spec("USR-05")
@FAR
async def test_a_screen_whose_question_was_answered_elsewhere_closes_with_a_word(
    tmp_path: Path, far: bool
) -> None:
    model = cast(lead=[use("Bash", "b1", command="touch x"), "end"])
    async with opened(tmp_path, model, **ATTENDED) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(all_turns(session))
        panel: AgentsPanel
        async with shown_live(session, AgentsPanel, far=far) as (panel, pilot):
            await until(pilot, panel.picture.open_questions)
            [row] = panel.picture.open_questions()
            await pilot.app.push_screen(AnswerScreen(row, panel.helm, picture=panel.picture, unasked=True))
            elsewhere = FarHelm(Run(session=session.id, home=session.parts.settings.home))
            assert elsewhere.answer(row.id, Denied(reason="not now"))
            await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
            await until(
                pilot, lambda: "lead has its answer from elsewhere: refused: not now." in pilot.app.words
            )
            await turn
    assert not (tmp_path / "x").exists()


@pytest.mark.spec("USR-26")
async def test_a_plan_is_rejected_compared_and_approved(tmp_path: Path) -> None:
    said: list[str] = []

    def again(request: Request) -> Any:
        said.append(last_result(request))
        return use("ExitPlanMode", "p2", plan="# Write it\n\nand test it")

    def done(request: Request) -> str:
        said.append(last_result(request))
        return "done"

    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), member("ann", mode="plan"), "wait", last_words],
        ann=[use("ExitPlanMode", "p1", plan="# Write it"), again, done],
    )
    settings = json.dumps({"shoal": {"plan_approver": "user"}})
    async with (
        with_team(tmp_path, model, settings=settings, attended=True) as session,
        asyncio.TaskGroup() as group,
    ):
        turn = group.create_task(all_turns(session))
        panel: QuestionsPanel
        async with shown_live(session, QuestionsPanel) as (panel, pilot):
            await until(pilot, lambda: open_in(panel) == 1)
            await pilot.press("enter", "n", *"test it", "enter")
            await until(pilot, lambda: len(panel._questions) == 2 and open_in(panel) == 1)
            await pilot.press("home", "enter")
            await until(pilot, lambda: "Since the last version: +2 -0 lines" in text_of(pilot.app))
            await pilot.press("d")
            await until(pilot, lambda: "+ and test it" in text_of(pilot.app))
            await pilot.press("y")
            await until(pilot, lambda: open_in(panel) == 0)
        turn.cancel()
    assert "test it" in said[0]
    assert "The plan is approved" in said[1]


@pytest.mark.spec("USR-05")
async def test_what_the_person_chooses_is_what_the_agent_hears(tmp_path: Path) -> None:
    options = [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]
    ask = use(
        "AskUserQuestion",
        "a1",
        questions=[
            {"question": "Which colour?", "header": "Colour", "options": options, "multiSelect": False},
            {"question": "Which shades?", "header": "Shades", "options": options, "multiSelect": True},
        ],
    )
    model = cast(lead=[ask, "end"])
    async with opened(tmp_path, model, **ATTENDED) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(all_turns(session))
        panel: QuestionsPanel
        async with shown_live(session, QuestionsPanel, size=(80, 24)) as (panel, pilot):
            await until(pilot, lambda: open_in(panel) == 1)
            await pilot.press("enter", "2", "1", "2", "o", *"mauve", "enter", "d")
            await turn
    assert "blue" in texts(session)[0]
    assert "red, blue, mauve" in texts(session)[0]


async def test_nobody_hears_an_answer_to_a_run_that_has_ended(tmp_path: Path) -> None:
    async with opened(tmp_path, cast(lead=["end"])) as session:
        await all_turns(session)
        run = Run(session=session.id, home=session.parts.settings.home)
    with pytest.raises(StoreError, match="has ended, so nobody would hear"):
        FarHelm(run).answer("q", Allowed())
    scene = await parser_scene()
    app = PanelsApp(QuestionsPanel(scene.picture, FarHelm(run), clock=scene.clock))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "y")
        await until(pilot, lambda: app.words)
        assert f"shoal --resume {session.id}" in app.words[0]
    assert scene.picture.questions.row(MAY_RUN.id).answered == 0
