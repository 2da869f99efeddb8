"""Terminal codes in text from models and projects never reach the terminal from the full screen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from textual.app import ComposeResult
from textual.widgets import Static, TextArea

from agent_scripts import call_tool
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.tui.app import ShoalApp
from shoal.surfaces.tui.block_widgets import AnswerWidget
from shoal.surfaces.tui.conversation_timeline import TimelineAgentTextItem
from tui.tui_helpers import wait_for_question
from tui_driver import TuiDriver, drive_tui

TITLE = "\x1b]0;taken over\x1b\\"
CSI = "\x9b2J"


def find_control_characters(at: TuiDriver) -> set[str]:
    """Return the characters on the screen that a terminal would obey."""
    lines = (
        "".join(segment.text for segment in strip) for strip in at.app.screen._compositor.render_strips()
    )
    return {letter for line in lines for letter in line if not letter.isprintable()}


async def test_file_names_with_control_characters_are_not_offered(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("plain.txt", f"evil{TITLE}.txt", os.fsdecode(b"bro\xffken.txt")):
        (project / name).write_text("")
    async with drive_tui(tmp_path, ScriptedModel(["fine"])) as at:
        await at.type_text("see @txt")
        await at.wait_for_text("@plain.txt")
        assert "evil" not in at.screen_text
        assert "bro" not in at.screen_text
        assert not find_control_characters(at)


@pytest.mark.slow
async def test_an_unfolded_or_edited_call_contains_no_terminal_codes(tmp_path: Path) -> None:
    call = call_tool("Bash", "b", command=f"echo {TITLE}{CSI}\tx", **{f"more{TITLE}": "y"})
    async with drive_tui(tmp_path, ScriptedModel([[call], "done"]), attended=True) as at:
        await at.submit_text("go")
        await wait_for_question(at)
        assert not find_control_characters(at)
        await at.press_keys("e")
        assert at.app.screen.query_one(TextArea).text == "echo ]0;taken over\\2J\tx"
        assert not find_control_characters(at)
        await at.press_keys("escape", "n", "enter")
        await at.wait_for_text("done")
        await at.wait_until_idle()
        await at.press_keys("ctrl+o")
        await at.wait_for_text("more")
        assert not find_control_characters(at)


async def test_the_app_removes_terminal_codes_from_every_widget(tmp_path: Path) -> None:
    class CarelessApp(ShoalApp):
        CSS_PATH = None

        def compose(self) -> ComposeResult:
            yield from super().compose()
            yield Static(f"careless{TITLE}{CSI}", markup=False)

    app = CarelessApp(tmp_path / "history")
    async with app.run_test(size=(80, 24)) as pilot:
        at = TuiDriver(pilot, app)
        await at.wait_for_text("careless]0;taken over")
        assert not find_control_characters(at)


async def test_a_broken_off_answer_is_marked_once_however_often_it_is_drawn(tmp_path: Path) -> None:
    item = TimelineAgentTextItem(1, "half a sent", is_broken_off=True)
    app = ShoalApp(tmp_path / "history")
    async with app.run_test(size=(80, 24)) as pilot:
        at = TuiDriver(pilot, app)
        for _ in range(2):
            block = AnswerWidget(item)
            await app.view.mount(block)
            await at.wait_for_text("(interrupted)")
            await block.show_item(item)
            await pilot.pause()
            assert at.screen_text.count("(interrupted)") == 1
            await block.remove()
