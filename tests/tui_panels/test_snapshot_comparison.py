"""The snapshot comparison fails with a diff when a screen changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Static

import tui_snapshots


class TextApp(App[None]):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        yield Static(self.text, markup=False)


async def test_a_changed_screen_fails_with_a_diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "shots" / "words.svg"
    async with TextApp("a < [b]   c").run_test(size=(40, 4)) as pilot:
        assert tui_snapshots.render_text(pilot.app).splitlines()[0] == "a < [b]   c"
        monkeypatch.setattr(tui_snapshots, "UPDATE_SNAPSHOTS", False)
        with pytest.raises(AssertionError, match="SHOAL_UPDATE_SNAPSHOTS"):
            tui_snapshots.assert_matches_snapshot(pilot.app, snapshot)
        monkeypatch.setattr(tui_snapshots, "UPDATE_SNAPSHOTS", True)
        tui_snapshots.assert_matches_snapshot(pilot.app, snapshot)
        assert "http://" not in snapshot.read_text().replace("http://www.w3.org/2000/svg", "")

    monkeypatch.setattr(tui_snapshots, "UPDATE_SNAPSHOTS", False)
    async with TextApp("a < [b]   c").run_test(size=(40, 4)) as pilot:
        tui_snapshots.assert_matches_snapshot(pilot.app, snapshot)
    async with TextApp("other words").run_test(size=(40, 4)) as pilot:
        with pytest.raises(AssertionError, match=r"\+other words"):
            tui_snapshots.assert_matches_snapshot(pilot.app, snapshot)
