"""Cells of a row: short texts, colours, and widths that always fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from textual.content import Content

from shoal.core.wording import one_line

Part: TypeAlias = tuple[str, str]
"""Text and its style."""

MUTED = "$foreground 60%"
ASKS = "$text-warning"
GOOD = "$text-success"
BAD = "$text-error"

_COLOURS = {
    "blue": "#6cb6ff",
    "green": "#6bc46d",
    "yellow": "#daaa3f",
    "purple": "#b083f0",
    "orange": "#f69d50",
    "pink": "#fc8dc7",
    "cyan": "#56d4dd",
    "red": "#f47067",
}
_MIXED = re.compile(r"#[0-9a-fA-F]{6}")


def colour_of(color: str) -> str:
    """Return the colour of an agent's name. `color` is from its definition or team, a word or `#rrggbb`."""
    return color if _MIXED.fullmatch(color) else _COLOURS.get(color, "$foreground")


def age(milliseconds: int) -> str:
    """Format a duration as short as possible: 4s, 3m, 2h, 5d."""
    passed = max(0, milliseconds) // 1000
    if passed < 60:
        return f"{passed}s"
    if passed < 3600:
        return f"{passed // 60}m"
    if passed < 86_400:
        return f"{passed // 3600}h"
    return f"{passed // 86_400}d"


def cost(usd: float, *, priced: bool = True) -> str:
    """Format a cost; a partly unknown price gets a `+`, no cost is a dash."""
    if not usd:
        return "–" if priced else "?"
    told = f"${usd:.2f}" if usd >= 0.995 else f"${usd:.4f}"
    return told if priced else f"{told}+"


def line(*parts: Part | Content) -> Content:
    """Build one line; control codes in text written by models or programs are removed."""
    found = [
        part if isinstance(part, Content) else Content.styled(_shown(part[0]), part[1])
        for part in parts
        if part
    ]
    return Content("").join(found)


def _shown(text: str) -> str:
    """Like `to_one_line`, but keep the blanks at both ends."""
    if text.isprintable():
        return text
    return f"{' ' * text.startswith(' ')}{one_line(text)}{' ' * text.endswith(' ')}"


def cell(content: Content, width: int, *, right: bool = False) -> Content:
    """Fit the content to exactly this width: truncate or pad it."""
    cut = content.truncate(width, ellipsis=True)
    missing = width - cut.cell_length
    return cut.pad_left(missing) if right else cut.pad_right(missing)


class Column(NamedTuple):
    name: str
    title: str
    width: int
    right: bool = False
    goes: int = 0
    """Order in which columns are dropped if there is no room; 0 is never dropped."""


def columns_in(width: int, columns: Sequence[Column], least: int) -> tuple[tuple[Column, ...], int]:
    """Return the columns that fit beside a last one of at least `least`, and the width of that one."""
    kept = list(columns)
    for gone in sorted((each for each in columns if each.goes), key=lambda each: each.goes):
        if width - sum(each.width + 1 for each in kept) >= least:
            break
        kept.remove(gone)
    return tuple(kept), max(0, width - sum(each.width + 1 for each in kept))


def joined(cells: Sequence[Content]) -> Content:
    return Content(" ").join(cells)
