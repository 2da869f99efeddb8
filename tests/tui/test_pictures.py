"""The pictures of the documentation are what the program draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from cast import use
from shoal.models.scripted import ScriptedModel
from shoal.surfaces.tui.answering import AnswerScreen
from shoal.testing import FakeClock
from tui_panels.parser_scene import parser_scene
from tui_rig import OwnSitting, sitting
from tui_shots import assert_looks

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
ANSWER = """\
The parser drops comments in `skip_trivia()`: what it skips is never kept. Three are at it now:

1. **ada** changes the lexer, and shows her plan first
2. **bob** writes the tests that are missing
3. **eve** reviews what both did
"""


async def at_work(at: OwnSitting) -> None:
    """A lead that has read, changed and answered, and its team at one moment."""
    at.app.composer.put("comments get lost when we print a file; find out why and mend it")
    await at.press("enter")
    await at.shows("eve reviews")
    await at.rests()
    # Nothing comes up by itself over a line that is half typed.
    at.app.composer.put("tell eve to look at the docs too")
    at.seat.stage.picture = (await parser_scene()).picture
    await at.app.side.sit(at.seat.stage)
    await at.drawn()


def mending(project: Path) -> ScriptedModel:
    place = project / "lexer.py"
    place.write_text("def skip_trivia(self):\n    self.skip_spaces()\n    self.skip_comment()\n")
    change = {
        "file_path": str(place),
        "old_string": "    self.skip_comment()\n",
        "new_string": "    if comment := self.take_comment():\n        self.trivia.append(comment)\n",
    }
    calls = [use("Grep", "call-1", pattern="skip_trivia", path=str(project))]
    read, edit = use("Read", "call-2", file_path=str(place)), use("Edit", "call-3", **change)
    return ScriptedModel([calls, [read], [edit], ANSWER])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


@pytest.mark.spec("USR-18")
async def test_a_team_at_work_beside_the_conversation(tmp_path: Path, project: Path) -> None:
    async with sitting(tmp_path, mending(project), size=(128, 34), clock=FakeClock()) as at:
        await at_work(at)
        await at.press("f2", "down")
        await at.shows("ada")
        assert_looks(at.app, PICTURES / "terminal.svg")


async def test_a_question_over_a_small_screen(tmp_path: Path, project: Path) -> None:
    async with sitting(tmp_path, mending(project), size=(80, 24), clock=FakeClock()) as at:
        await at_work(at)
        row = at.seat.stage.picture.questions.get("q-run")
        assert row is not None
        at.app.push_screen(AnswerScreen(row, at.seat.stage.helm, picture=at.seat.stage.picture))
        await at.shows("Allow it once")
        assert_looks(at.app, PICTURES / "terminal-question.svg")


async def test_the_board_over_a_small_screen(tmp_path: Path, project: Path) -> None:
    async with sitting(tmp_path, mending(project), size=(80, 24), clock=FakeClock()) as at:
        await at_work(at)
        await at.press("ctrl+t")
        await at.shows("Keep comments")
        assert_looks(at.app, PICTURES / "terminal-board.svg")
