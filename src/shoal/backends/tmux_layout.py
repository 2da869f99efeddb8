"""Layout of panes in a tmux window, and their borders."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from shoal.backends.tmux_control import TmuxControlClient

MAX_PANES = 6
"""Maximum panes of members in one window."""
_MIN_ROWS = 5
"""Minimum text rows of a pane next to the lead."""
_COLORS = {"purple": "magenta", "orange": "colour208", "pink": "colour213"}
_TMUX_COLORS = frozenset({"blue", "green", "yellow", "cyan", "red"})
_BORDER_FORMAT = "#{?@shoal_owner,#[fg=#{@shoal_color}#,bold] #{@shoal_name} #[default],}"


class ListedTmuxPane(Struct, frozen=True, kw_only=True):
    """Pane as tmux lists it; the panes of a window are listed from the top left."""

    pane: str
    window: str
    dead: bool
    zoomed: bool
    width: int
    """Width of its window; `height` likewise."""
    height: int
    owner: str


def parse_tmux_pane_rows(lines: Sequence[str]) -> list[ListedTmuxPane]:
    """Return each pane once: sessions may share windows."""
    return list({row.pane: row for row in map(_parse_tmux_pane_row, lines)}.values())


def _parse_tmux_pane_row(line: str) -> ListedTmuxPane:
    pane, window, dead, zoomed, width, height, owner = line.split(" ", 6)
    return ListedTmuxPane(
        pane=pane,
        window=window,
        dead=dead == "1",
        zoomed=zoomed == "1",
        width=int(width),
        height=int(height),
        owner=owner,
    )


def get_pane_capacity(lead: ListedTmuxPane) -> int:
    """Return how many readable panes fit next to the lead."""
    return max(1, min(MAX_PANES, lead.height // _MIN_ROWS))


def to_tmux_color(color: str | None) -> str:
    if color in _TMUX_COLORS or (color and re.fullmatch(r"#[0-9a-fA-F]{6}", color)):
        return color
    return _COLORS.get(color or "", "default")


def build_tmux_layout_commands(
    rows: Sequence[ListedTmuxPane], lead: str, owner: str, lead_percent: int
) -> list[tuple[str, ...]]:
    """Lay out one window: the lead keeps more than half, and the user's panes stay where they are."""
    own_panes = [row.pane for row in rows if row.owner == owner]
    other_panes = [row.pane for row in rows if row.owner != owner]
    if not own_panes:
        return []
    window, width, height = rows[0].window, rows[0].width, rows[0].height
    if lead not in other_panes:
        return [] if other_panes else [("select-layout", "-t", window, "tiled")]
    if other_panes == [lead] and rows[0].pane == lead:
        columns = str(-(-width * lead_percent // 100))
        return [
            ("set-option", "-w", "-t", window, "main-pane-width", columns),
            ("select-layout", "-t", window, "main-vertical"),
        ]
    # A window with more of the user's panes: only our column is evened out.
    return [("resize-pane", "-t", pane, "-y", str(height // len(own_panes) - 1)) for pane in own_panes[:-1]]


class SavedTmuxWindowOptions:
    """Options of the user's windows, saved before our panes opened and restored when the last one closes."""

    _DRESS = (("pane-border-status", "top"), ("pane-border-format", _BORDER_FORMAT))
    _OPTIONS = ("pane-border-status", "pane-border-format", "main-pane-width")

    def __init__(self) -> None:
        self._changed_windows: set[str] = set()
        self._before: dict[str, dict[str, str]] = {}

    async def build_style_commands(
        self, control: TmuxControlClient, window: str, *, ours: bool
    ) -> list[tuple[str, ...]]:
        """Return the commands that style a window; the options of our own windows are not saved."""
        if window in self._changed_windows:
            return []
        self._changed_windows.add(window)
        if not ours:
            self._before[window] = {
                option: "\n".join(lines)
                for option in self._OPTIONS
                if (
                    lines := await control.run_command("show-options", "-w", "-t", window, "-q", "-v", option)
                )
            }
        return [("set-option", "-w", "-t", window, *each) for each in self._DRESS]

    def build_restore_commands(self, in_use: set[str]) -> list[tuple[str, ...]]:
        """Return the commands that restore every window except those `in_use` by our panes."""
        found: list[tuple[str, ...]] = []
        for window in self._changed_windows - in_use:
            self._changed_windows.discard(window)
            if (old_options := self._before.pop(window, None)) is None:
                continue
            for option in self._OPTIONS:
                arguments = (option, old_options[option]) if option in old_options else ("-u", option)
                found.append(("set-option", "-w", "-q", "-t", window, *arguments))
        return found
