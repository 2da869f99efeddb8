"""Parsers for front matter values of agent and skill fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from shoal.core.agents.agent_definitions import EFFORT_LEVELS
from shoal.core.text.name_suggestions import find_similar_names

_TOOL_PATTERN = re.compile(r"(\*|[A-Za-z_][\w.-]*(?:__\*)?)(\(.+\))?", re.DOTALL)


class InvalidFrontMatterFieldError(Exception):
    """A value that its field does not accept; the text says why."""


def describe_unknown_field(key: str, known_fields: Iterable[str]) -> str:
    from difflib import get_close_matches

    matches = get_close_matches(key, [*known_fields], n=1)
    return "unknown field; it is ignored" + (f"; did you mean {matches[0]}?" if matches else "")


def refuse_misspelled_field(key: str, narrowing_fields: Iterable[str]) -> None:
    """Raise `InvalidFrontMatterFieldError` for a key that is probably a misspelled restricting field."""
    from difflib import get_close_matches

    by_letters = {_keep_letters(field): field for field in narrowing_fields}
    close = get_close_matches(_keep_letters(key), by_letters, n=1, cutoff=0.9)
    if close:
        raise InvalidFrontMatterFieldError(f"unknown field; write {by_letters[close[0]]}")


def _keep_letters(key: str) -> str:
    return key.replace("-", "").replace("_", "").casefold()


def parse_text_field(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidFrontMatterFieldError(f"expected a string, got {describe_field_value(value)}")
    return value


def parse_boolean_field(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    for flag, spellings in ((True, ("true", "yes", "on")), (False, ("false", "no", "off"))):
        if isinstance(value, str) and value.lower() in spellings:
            return flag
    raise InvalidFrontMatterFieldError(f"expected true or false, got {describe_field_value(value)}")


def parse_text_list_field(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidFrontMatterFieldError(f"expected a list, got {describe_field_value(value)}")
    for item in value:
        if not isinstance(item, str) or not item.strip():
            raise InvalidFrontMatterFieldError(f"expected a list of names, but it contains {item!r}")
    return tuple(item.strip() for item in value)


def parse_tool_list_field(value: Any) -> tuple[str, ...]:
    """Parse tools with optional patterns from a list or from text separated by commas or whitespace."""
    entries = (
        split_comma_separated_text(value, split_whitespace=True)
        if isinstance(value, str)
        else parse_text_list_field(value)
    )
    for entry in entries:
        if _TOOL_PATTERN.fullmatch(entry) is None:
            raise InvalidFrontMatterFieldError(f"{entry!r} is not a tool; write Tool, Tool(pattern) or *")
    return entries


def split_comma_separated_text(text: str, *, split_whitespace: bool = False) -> tuple[str, ...]:
    """Split at commas outside parentheses and, with `split_whitespace`, at whitespace too."""
    found: list[str] = []
    depth = start = 0
    for index, character in enumerate(f"{text},"):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and (character == "," or (split_whitespace and character.isspace())):
            found.append(text[start:index].strip())
            start = index + 1
    if depth != 0:
        raise InvalidFrontMatterFieldError(f"the parentheses in {text!r} do not match")
    return tuple(filter(None, found))


def parse_effort_field(value: Any) -> str | int:
    if isinstance(value, str) and value in EFFORT_LEVELS:
        return value
    try:
        return parse_positive_integer_field(value)
    except InvalidFrontMatterFieldError:
        close = find_similar_names(str(value), EFFORT_LEVELS)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InvalidFrontMatterFieldError(
            f"{value!r} is not one of {', '.join(EFFORT_LEVELS)} or a number of tokens{hint}"
        ) from None


def parse_positive_integer_field(value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or re.fullmatch(r"[0-9]{1,12}", text) is None or int(text) == 0:
        raise InvalidFrontMatterFieldError(f"expected an integer greater than 0, got {value!r}")
    return int(text)


def check_hooks_mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidFrontMatterFieldError(
            f"expected a mapping of events to hooks, got {describe_field_value(value)}"
        )
    for event, hooks in value.items():
        if not isinstance(hooks, list | tuple):
            raise InvalidFrontMatterFieldError(
                f"expected a list of hooks for {event}, got {describe_field_value(hooks)}"
            )
    return value


def describe_field_value(value: Any) -> str:
    """Describe the value for an error message."""
    match value:
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
    return repr(value)
