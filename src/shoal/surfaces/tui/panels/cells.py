"""Cells of a row: short texts, colors, and widths that always fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from textual.content import Content

from shoal.core.text.text_format import to_one_line

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


def get_agent_colour(color: str) -> str:
    """Return the color of an agent's name. `color` is from its definition or team, a word or `#rrggbb`."""
    return color if _MIXED.fullmatch(color) else _COLOURS.get(color, "$foreground")


def format_short_age(milliseconds: int) -> str:
    """Format a duration as short as possible: 4s, 3m, 2h, 5d."""
    seconds = max(0, milliseconds) // 1000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m"
    if seconds < 86_400:
        return f"{seconds // 3600}h"
    return f"{seconds // 86_400}d"


def format_cost(usd: float, *, priced: bool = True) -> str:
    """Format a cost; a partly unknown price gets a `+`, no cost is a dash."""
    if not usd:
        return "–" if priced else "?"
    amount = f"${usd:.2f}" if usd >= 0.995 else f"${usd:.4f}"
    return amount if priced else f"{amount}+"


def build_clean_line(*parts: Part | Content) -> Content:
    """Build one line; control codes in text written by models or programs are removed."""
    contents = [
        part
        if isinstance(part, Content)
        else Content.styled(_clean_text_keeping_edge_blanks(part[0]), part[1])
        for part in parts
        if part
    ]
    return Content("").join(contents)


def _clean_text_keeping_edge_blanks(text: str) -> str:
    """Like `to_one_line`, but keep the blanks at both ends."""
    if text.isprintable():
        return text
    return f"{' ' * text.startswith(' ')}{to_one_line(text)}{' ' * text.endswith(' ')}"


def fit_cell(content: Content, width: int, *, right: bool = False) -> Content:
    """Fit the content to exactly this width: truncate or pad it."""
    truncated = content.truncate(width, ellipsis=True)
    padding = width - truncated.cell_length
    return truncated.pad_left(padding) if right else truncated.pad_right(padding)


class PanelTableColumn(NamedTuple):
    name: str
    title: str
    width: int
    right: bool = False
    drop_order: int = 0
    """Order in which columns are dropped if there is no room; 0 is never dropped."""


def fit_columns(
    width: int, columns: Sequence[PanelTableColumn], least: int
) -> tuple[tuple[PanelTableColumn, ...], int]:
    """Return the columns that fit next to a last one of at least `least`, and the width of that one."""
    kept_columns = list(columns)
    for dropped_column in sorted(
        (each for each in columns if each.drop_order), key=lambda each: each.drop_order
    ):
        if width - sum(each.width + 1 for each in kept_columns) >= least:
            break
        kept_columns.remove(dropped_column)
    return tuple(kept_columns), max(0, width - sum(each.width + 1 for each in kept_columns))


def join_cells(cells: Sequence[Content]) -> Content:
    return Content(" ").join(cells)
