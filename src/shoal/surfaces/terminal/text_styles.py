"""Styles and widths of terminal text."""

from __future__ import annotations

import os
import re
import unicodedata
from typing import TextIO

BOLD = "1"
DIM = "2"
ITALIC_DIM = "2;3"
RED = "31"
GREEN = "32"
YELLOW = "33"
BLUE = "34"
CYAN = "36"
BOLD_CYAN = "1;36"
BOLD_GREEN = "1;32"
BOLD_RED = "1;31"
MAGENTA = "35"
_AGENT_COLOURS = {
    "blue": BLUE,
    "green": GREEN,
    "yellow": YELLOW,
    "purple": MAGENTA,
    "orange": "38;5;208",
    "pink": "38;5;213",
    "cyan": CYAN,
    "red": RED,
}

_WORDS = re.compile(r".*\S(?=\s)", re.DOTALL)
_MIXED = re.compile(r"#([0-9a-fA-F]{2})([0-9a-fA-F]{2})([0-9a-fA-F]{2})")


def is_live_terminal(stream: TextIO) -> bool:
    """Return True if the stream is a terminal that supports cursor movement."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "")


def has_colours(stream: TextIO) -> bool:
    return is_live_terminal(stream) and not os.environ.get("NO_COLOR")


def apply_style(text: str, style: str, *, colours: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if colours and style and text else text


def get_agent_style(color: str | None) -> str:
    """Return the style of an agent's name. `color` is that of its definition or team, a word or `#rrggbb`."""
    if color is not None and (rgb_match := _MIXED.fullmatch(color)):
        return "38;2;" + ";".join(str(int(part, 16)) for part in rgb_match.groups())
    return _AGENT_COLOURS.get(color or "", CYAN)


def measure_text_width(text: str) -> int:
    """Return the number of columns the text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_measure_character_width, text))


def _measure_character_width(character: str) -> int:
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.category(character) in ("Mn", "Me", "Cf") else 1


def count_fitting_characters(text: str, columns: int) -> int:
    """Return how many characters of the text fit into the columns."""
    if text.isascii():
        return min(len(text), columns)
    used_width = 0
    for index, character in enumerate(text):
        used_width += _measure_character_width(character)
        if used_width > columns:
            return index
    return len(text)


def truncate_text(text: str, columns: int) -> str:
    """Return the text, shortened with an ellipsis if it is wider than `columns`."""
    if measure_text_width(text) <= columns:
        return text
    return text[: count_fitting_characters(text, columns - 1)] + "…" if columns > 0 else ""


def truncate_at_word(text: str, columns: int) -> str:
    """Like `truncate_text`, but cut after a whole word if possible."""
    if measure_text_width(text) <= columns:
        return text
    return keep_whole_words(text[: count_fitting_characters(text, columns - 2) + 1]) or truncate_text(
        text, columns
    )


def keep_whole_words(text: str) -> str:
    """Return the complete words and an ellipsis; empty if no word is complete."""
    match = _WORDS.match(text)
    return f"{match[0]} …" if match else ""
