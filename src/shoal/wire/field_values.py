"""Parsers for front matter values of agent and skill fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_TOOL = re.compile(r"(\*|[A-Za-z_][\w.-]*(?:__\*)?)(\(.+\))?", re.DOTALL)


class Wrong(Exception):
    """A value that its field does not accept; the text says why."""


def unknown_field(key: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, [*known], n=1)
    return "this field is not known and is ignored" + (f"; is {near[0]} meant?" if near else "")


def text_in(value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong(f"text is expected, not {shown(value)}")
    return value


def flag_in(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    for meaning, words in ((True, ("true", "yes", "on")), (False, ("false", "no", "off"))):
        if isinstance(value, str) and value.lower() in words:
            return meaning
    raise Wrong(f"true or false is expected, not {shown(value)}")


def texts_in(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise Wrong(f"a list is expected, not {shown(value)}")
    for item in value:
        if not isinstance(item, str) or not item.strip():
            raise Wrong(f"a list of names is expected, and {item!r} is none")
    return tuple(item.strip() for item in value)


def tool_entries(value: Any) -> tuple[str, ...]:
    """Parse tools with optional patterns from a list or from text separated by commas or whitespace."""
    entries = pieces(value, blanks=True) if isinstance(value, str) else texts_in(value)
    for entry in entries:
        if _TOOL.fullmatch(entry) is None:
            raise Wrong(f"{entry!r} is not a tool: write Tool, Tool(pattern) or *")
    return entries


def pieces(listed: str, *, blanks: bool = False) -> tuple[str, ...]:
    """Split at commas outside parentheses and, with `split_whitespace`, at whitespace too."""
    found: list[str] = []
    depth = start = 0
    for at, character in enumerate(f"{listed},"):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and (character == "," or (blanks and character.isspace())):
            found.append(listed[start:at].strip())
            start = at + 1
    if depth != 0:
        raise Wrong(f"the parentheses in {listed!r} do not match")
    return tuple(filter(None, found))


def shown(value: Any) -> str:
    """Describe the value for an error message."""
    match value:
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
    return repr(value)
