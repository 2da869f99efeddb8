"""How text for a person becomes what a terminal shows: colours, widths, and nothing that could command it."""

from __future__ import annotations

import os
import re
import unicodedata
from typing import TextIO

PLAIN = ""
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

_MIXED = re.compile(r"#([0-9a-fA-F]{2})([0-9a-fA-F]{2})([0-9a-fA-F]{2})")
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Controls, and the marks that make text read in another order than it is stored.
_COMMANDING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def is_live(stream: TextIO) -> bool:
    """Whether the stream is a terminal that understands moving the cursor."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "")


def has_colours(stream: TextIO) -> bool:
    return is_live(stream) and not os.environ.get("NO_COLOR")


def painted(text: str, style: str, *, colours: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if colours and style and text else text


def style_of(color: str | None) -> str:
    """For the name of an agent: the colour of its definition or of its team, a word or `#rrggbb`."""
    if color is not None and (mixed := _MIXED.fullmatch(color)):
        return "38;2;" + ";".join(str(int(part, 16)) for part in mixed.groups())
    return _AGENT_COLOURS.get(color or "", CYAN)


def clean(text: str) -> str:
    """The text without anything a terminal would obey: what models and programs say is only ever shown."""
    if text.isprintable():
        return text
    return _COMMANDING.sub("", _SEQUENCE.sub("", text).expandtabs(4))


def one_line(text: str) -> str:
    return " ".join(clean(text).split())


def width(text: str) -> int:
    """Columns the text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.category(character) in ("Mn", "Me", "Cf") else 1


def fitting(text: str, columns: int) -> int:
    """How many of the text's characters fit into so many columns."""
    if text.isascii():
        return min(len(text), columns)
    used = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used > columns:
            return index
    return len(text)


def cut(text: str, columns: int) -> str:
    """The text, shortened with a mark where it is wider than `columns`."""
    if width(text) <= columns:
        return text
    return text[: fitting(text, columns - 1)] + "…" if columns > 0 else ""


def count(number: int) -> str:
    """A number of tokens as a person reads it: 940, 12.4k, 3.1M."""
    if number < 1_000:
        return str(number)
    if number < 999_950:
        return f"{number / 1_000:.1f}k"
    return f"{number / 1_000_000:.1f}M"


def seconds(value: float) -> str:
    if value < 10:
        return f"{value:.1f} s"
    if value < 60:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def dollars(usd: float | None) -> str:
    if usd is None:
        return "price not known"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"
