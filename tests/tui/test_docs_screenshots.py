"""The screenshots in the documentation match what the program draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_scripts import call_tool
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.tui.answer_screen import AnswerScreen
from shoal.testing import FakeClock
from tui_driver import LocalTuiDriver, drive_tui
from tui_panels.parser_scenario import build_parser_scenario
from tui_snapshots import assert_matches_snapshot

DOCS_PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
ANSWER = """\
The parser drops comments in `skip_trivia()`: what it skips is never kept. Three are at it now:

1. **ada** changes the lexer, and shows her plan first
2. **bob** writes the tests that are missing
3. **eve** reviews what both did
"""


async def show_team_at_work(at: LocalTuiDriver) -> None:
    """Run a turn that reads, edits and answers, and show a team at work."""
    at.app.composer.set_text("comments get lost when we print a file; find out why and mend it")
    await at.press_keys("enter")
    await at.wait_for_text("eve reviews")
    await at.wait_until_idle()
    # A half-typed line keeps questions from opening by themselves.
    at.app.composer.set_text("tell eve to look at the docs too")
    at.client.presenter.run_view = (await build_parser_scenario()).run_view
    await at.app.side_panel.attach_run(at.client.presenter)
    await at.wait_for_redraw()


def script_repair(project: Path) -> ScriptedModel:
    path = project / "lexer.py"
    path.write_text("def skip_trivia(self):\n    self.skip_spaces()\n    self.skip_comment()\n")
    change = {
        "file_path": str(path),
        "old_string": "    self.skip_comment()\n",
        "new_string": "    if comment := self.take_comment():\n        self.trivia.append(comment)\n",
    }
    calls = [call_tool("Grep", "call-1", pattern="skip_trivia", path=str(project))]
    read, edit = call_tool("Read", "call-2", file_path=str(path)), call_tool("Edit", "call-3", **change)
    return ScriptedModel([calls, [read], [edit], ANSWER])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.mark.spec("USR-18")
async def test_the_screenshot_of_a_team_at_work(tmp_path: Path, project: Path) -> None:
    async with drive_tui(tmp_path, script_repair(project), size=(128, 34), clock=FakeClock()) as at:
        await show_team_at_work(at)
        await at.press_keys("f2", "down")
        await at.wait_for_text("ada")
        assert_matches_snapshot(at.app, DOCS_PICTURES / "terminal.svg")


async def test_the_screenshot_of_a_question(tmp_path: Path, project: Path) -> None:
    async with drive_tui(tmp_path, script_repair(project), size=(80, 24), clock=FakeClock()) as at:
        await show_team_at_work(at)
        row = at.client.presenter.run_view.questions.get("q-run")
        assert row is not None
        at.app.push_screen(
            AnswerScreen(row, at.client.presenter.controller, run_view=at.client.presenter.run_view)
        )
        await at.wait_for_text("Allow it once")
        assert_matches_snapshot(at.app, DOCS_PICTURES / "terminal-question.svg")


async def test_the_screenshot_of_the_task_board(tmp_path: Path, project: Path) -> None:
    async with drive_tui(tmp_path, script_repair(project), size=(80, 24), clock=FakeClock()) as at:
        await show_team_at_work(at)
        await at.press_keys("ctrl+t")
        await at.wait_for_text("Keep comments")
        assert_matches_snapshot(at.app, DOCS_PICTURES / "terminal-board.svg")
