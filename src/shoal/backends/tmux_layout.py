"""Layout of panes in a tmux window, and their borders."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from shoal.backends.tmux_control import TmuxControl

MOST = 6
"""Maximum panes of members in one window."""
_ROWS = 5
"""Minimum text rows of a pane next to the lead."""
_COLORS = {"purple": "magenta", "orange": "colour208", "pink": "colour213"}
_NAMED = frozenset({"blue", "green", "yellow", "cyan", "red"})
_FORMAT = "#{?@shoal_owner,#[fg=#{@shoal_color}#,bold] #{@shoal_name} #[default],}"


class Row(Struct, frozen=True, kw_only=True):
    """Pane as tmux lists it; the panes of a window are listed from the top left."""

    pane: str
    window: str
    dead: bool
    zoomed: bool
    width: int
    """Width of its window; `height` likewise."""
    height: int
    owner: str


def read_rows(lines: Sequence[str]) -> list[Row]:
    """Return each pane once: sessions may share windows."""
    return list({row.pane: row for row in map(_row, lines)}.values())


def _row(line: str) -> Row:
    pane, window, dead, zoomed, width, height, owner = line.split(" ", 6)
    return Row(
        pane=pane,
        window=window,
        dead=dead == "1",
        zoomed=zoomed == "1",
        width=int(width),
        height=int(height),
        owner=owner,
    )


def room_in(lead: Row) -> int:
    """Return how many readable panes fit next to the lead."""
    return max(1, min(MOST, lead.height // _ROWS))


def tmux_color(color: str | None) -> str:
    if color in _NAMED or (color and re.fullmatch(r"#[0-9a-fA-F]{6}", color)):
        return color
    return _COLORS.get(color or "", "default")


def arrangement(within: Sequence[Row], lead: str, owner: str, leading: int) -> list[tuple[str, ...]]:
    """Lay out one window: the lead keeps more than half, and the user's panes stay where they are."""
    ours = [row.pane for row in within if row.owner == owner]
    others = [row.pane for row in within if row.owner != owner]
    if not ours:
        return []
    window, width, height = within[0].window, within[0].width, within[0].height
    if lead not in others:
        return [] if others else [("select-layout", "-t", window, "tiled")]
    if others == [lead] and within[0].pane == lead:
        columns = str(-(-width * leading // 100))
        return [
            ("set-option", "-w", "-t", window, "main-pane-width", columns),
            ("select-layout", "-t", window, "main-vertical"),
        ]
    # A window with more of the user's panes: only our column is evened out.
    return [("resize-pane", "-t", pane, "-y", str(height // len(ours) - 1)) for pane in ours[:-1]]


class Wardrobe:
    """Options of the user's windows, saved before our panes opened and restored when the last one closes."""

    _DRESS = (("pane-border-status", "top"), ("pane-border-format", _FORMAT))
    _OPTIONS = ("pane-border-status", "pane-border-format", "main-pane-width")

    def __init__(self) -> None:
        self._dressed: set[str] = set()
        self._before: dict[str, dict[str, str]] = {}

    async def dress(self, control: TmuxControl, window: str, *, ours: bool) -> list[tuple[str, ...]]:
        """Return the commands that style a window; the options of our own windows are not saved."""
        if window in self._dressed:
            return []
        self._dressed.add(window)
        if not ours:
            self._before[window] = {
                option: "\n".join(lines)
                for option in self._OPTIONS
                if (lines := await control.ask("show-options", "-w", "-t", window, "-q", "-v", option))
            }
        return [("set-option", "-w", "-t", window, *each) for each in self._DRESS]

    def undress(self, still: set[str]) -> list[tuple[str, ...]]:
        """Return the commands that restore every window except those `in_use` by our panes."""
        found: list[tuple[str, ...]] = []
        for window in self._dressed - still:
            self._dressed.discard(window)
            if (before := self._before.pop(window, None)) is None:
                continue
            for option in self._OPTIONS:
                how = (option, before[option]) if option in before else ("-u", option)
                found.append(("set-option", "-w", "-q", "-t", window, *how))
        return found
