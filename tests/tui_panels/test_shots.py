"""The helper that compares screens can fail, and tells what differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Static

import tui_shots


class Words(App[None]):
    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words

    def compose(self) -> ComposeResult:
        yield Static(self.words, markup=False)


async def test_a_screen_that_changed_is_told_with_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "shots" / "words.svg"
    async with Words("a < [b]   c").run_test(size=(40, 4)) as pilot:
        assert tui_shots.text_of(pilot.app).splitlines()[0] == "a < [b]   c"
        monkeypatch.setattr(tui_shots, "UPDATES", False)
        with pytest.raises(AssertionError, match="SHOAL_UPDATE_SNAPSHOTS"):
            tui_shots.assert_looks(pilot.app, kept)
        monkeypatch.setattr(tui_shots, "UPDATES", True)
        tui_shots.assert_looks(pilot.app, kept)
        assert "http://" not in kept.read_text().replace("http://www.w3.org/2000/svg", "")

    monkeypatch.setattr(tui_shots, "UPDATES", False)
    async with Words("a < [b]   c").run_test(size=(40, 4)) as pilot:
        tui_shots.assert_looks(pilot.app, kept)
    async with Words("other words").run_test(size=(40, 4)) as pilot:
        with pytest.raises(AssertionError, match=r"\+other words"):
            tui_shots.assert_looks(pilot.app, kept)
