"""Text that is pasted into the fields of forms and dialogs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from parser_scenario import PERMISSION_QUESTION, build_question_scenario
from textual.content import Content
from textual.events import Paste
from textual.screen import Screen
from textual.widgets import Input, TextArea

from run_view_scenario import EndedRunController, PanelsApp, wait_until
from shoal.surfaces.tui.answer_screen import AnswerScreen
from shoal.surfaces.tui.panels.dialogs import NamePickerScreen, TaskDraftScreen
from shoal.surfaces.tui.panels.questions_panel import QuestionsPanel

PASTED = "a\x1b]0;taken over\x07b\x1b[31mc\x00\x9bd"


@pytest.mark.parametrize(
    ("screen", "keys"),
    [
        ("question", ["n"]),
        ("question", ["e", "ctrl+a"]),
        ("names", []),
        ("task", []),
        ("task", ["tab"]),
        ("task", ["tab", "tab"]),
    ],
    ids=["reason", "changed call", "name", "subject", "details", "blockers"],
)
async def test_terminal_codes_are_removed_from_text_pasted_into_a_field(
    tmp_path: Path, screen: str, keys: list[str]
) -> None:
    scenario = await build_question_scenario()
    controller = EndedRunController(tmp_path)
    row = scenario.run_view.questions.get_row(PERMISSION_QUESTION.id)
    screens: dict[str, Screen[Any]] = {
        "question": AnswerScreen(row, controller, run_view=scenario.run_view),
        "names": NamePickerScreen("Who?", [("ada", Content("ada"))]),
        "task": TaskDraftScreen("crew"),
    }
    app = PanelsApp(QuestionsPanel(scenario.run_view, controller, clock=scenario.clock))
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(screens[screen])
        await pilot.press(*keys)
        await pilot.pause()
        field = app.focused
        assert isinstance(field, Input | TextArea)
        before = field.value if isinstance(field, Input) else field.text
        field.post_message(Paste(PASTED))
        await wait_until(pilot, lambda: (field.value if isinstance(field, Input) else field.text) != before)
        after = field.value if isinstance(field, Input) else field.text
        assert "abcd" in after
        assert after.replace("abcd", "") in (before, "")
