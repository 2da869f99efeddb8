"""What models and projects name and say is shown on the full screen, and commands nothing."""

from __future__ import annotations

import os
from pathlib import Path

from textual.app import ComposeResult
from textual.widgets import Static, TextArea

from cast import use
from shoal.models.scripted import ScriptedModel
from shoal.surfaces.tui.answering import AnswerScreen
from shoal.surfaces.tui.app import ShoalApp
from shoal.surfaces.tui.blocks import WordsBlock
from shoal.surfaces.tui.script import Words
from tui_rig import Sitting, sitting

TITLE = "\x1b]0;taken over\x1b\\"
CSI = "\x9b2J"


def commands_in(at: Sitting) -> set[str]:
    """What would reach the terminal and be obeyed there."""
    lines = (
        "".join(segment.text for segment in strip) for strip in at.app.screen._compositor.render_strips()
    )
    return {letter for line in lines for letter in line if not letter.isprintable()}


async def test_names_of_files_that_no_person_types_are_not_offered(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("plain.txt", f"evil{TITLE}.txt", os.fsdecode(b"bro\xffken.txt")):
        (project / name).write_text("")
    async with sitting(tmp_path, ScriptedModel(["fine"])) as at:
        await at.type("see @txt")
        await at.shows("@plain.txt")
        assert "evil" not in at.text
        assert "bro" not in at.text
        assert not commands_in(at)


async def test_a_call_that_is_unfolded_or_edited_commands_nothing(tmp_path: Path) -> None:
    call = use("Bash", "b", command=f"echo {TITLE}{CSI}\tx", **{f"more{TITLE}": "y"})
    async with sitting(tmp_path, ScriptedModel([[call], "done"]), attended=True) as at:
        await at.say("go")
        await at.until(lambda: isinstance(at.app.screen, AnswerScreen), "the question")
        screen = at.app.screen
        assert isinstance(screen, AnswerScreen)
        await screen.ready.wait()
        assert not commands_in(at)
        await at.press("e")
        assert at.app.screen.query_one(TextArea).text == "echo ]0;taken over\\2J\tx"
        assert not commands_in(at)
        await at.press("escape", "n", "enter")
        await at.shows("done")
        await at.rests()
        await at.press("ctrl+o")
        await at.shows("more")
        assert not commands_in(at)


async def test_no_widget_can_forget_to_clean_what_it_shows(tmp_path: Path) -> None:
    class Careless(ShoalApp):
        CSS_PATH = None

        def compose(self) -> ComposeResult:
            yield from super().compose()
            yield Static(f"careless{TITLE}{CSI}", markup=False)

    app = Careless(tmp_path / "history")
    async with app.run_test(size=(80, 24)) as pilot:
        at = Sitting(pilot, app)
        await at.shows("careless]0;taken over")
        assert not commands_in(at)


async def test_words_that_broke_off_say_so_once_however_often_they_are_shown(tmp_path: Path) -> None:
    words = Words(1, "half a sent", broken=True)
    app = ShoalApp(tmp_path / "history")
    async with app.run_test(size=(80, 24)) as pilot:
        at = Sitting(pilot, app)
        for _ in range(2):
            shown = WordsBlock(words)
            await app.view.mount(shown)
            await at.shows("(broken off)")
            await shown.show(words)
            await pilot.pause()
            assert at.text.count("(broken off)") == 1
            await shown.remove()
