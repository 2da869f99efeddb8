"""How facts become cells of a row: short words, colours, and widths that always fit."""

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
    """For the name of an agent: the colour of its definition or of its team, a word or `#rrggbb`."""
    return color if _MIXED.fullmatch(color) else _COLOURS.get(color, "$foreground")


def age(milliseconds: int) -> str:
    """As short as it can be told: 4s, 3m, 2h, 5d."""
    passed = max(0, milliseconds) // 1000
    if passed < 60:
        return f"{passed}s"
    if passed < 3600:
        return f"{passed // 60}m"
    if passed < 86_400:
        return f"{passed // 3600}h"
    return f"{passed // 86_400}d"


def cost(usd: float, *, priced: bool = True) -> str:
    """A price that is not known whole has a `+`; none at all is a dash."""
    if not usd:
        return "–" if priced else "?"
    told = f"${usd:.2f}" if usd >= 0.995 else f"${usd:.4f}"
    return told if priced else f"{told}+"


def line(*parts: Part | Content) -> Content:
    """One line of text that models or programs may have written: it is shown, and commands nothing."""
    found = [
        part if isinstance(part, Content) else Content.styled(_shown(part[0]), part[1])
        for part in parts
        if part
    ]
    return Content("").join(found)


def _shown(text: str) -> str:
    """As `one_line`, with the blanks that part it from its neighbours."""
    if text.isprintable():
        return text
    return f"{' ' * text.startswith(' ')}{one_line(text)}{' ' * text.endswith(' ')}"


def cell(content: Content, width: int, *, right: bool = False) -> Content:
    """Exactly so wide: cut with a mark, or filled up."""
    cut = content.truncate(width, ellipsis=True)
    missing = width - cut.cell_length
    return cut.pad_left(missing) if right else cut.pad_right(missing)


class Column(NamedTuple):
    name: str
    title: str
    width: int
    right: bool = False
    goes: int = 0
    """The order in which columns go where there is no room; 0 stays."""


def columns_in(width: int, columns: Sequence[Column], least: int) -> tuple[tuple[Column, ...], int]:
    """Those that fit beside a last one of at least `least`, and how wide that is."""
    kept = list(columns)
    for gone in sorted((each for each in columns if each.goes), key=lambda each: each.goes):
        if width - sum(each.width + 1 for each in kept) >= least:
            break
        kept.remove(gone)
    return tuple(kept), max(0, width - sum(each.width + 1 for each in kept))


def joined(cells: Sequence[Content]) -> Content:
    return Content(" ").join(cells)
