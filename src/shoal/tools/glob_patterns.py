"""Glob patterns on relative paths: `*`, `?`, `[…]` inside a part, `**` over parts, `{a,b}` for choices."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from shoal.tools.tool_texts import format_tool_text

_MAX_CHOICES = 200
_MAX_PATTERN_CHARACTERS = 4_096
"""Maximum number of characters; no path is longer."""
_PatternPart: TypeAlias = re.Pattern[str] | None
"""None means `**`."""


class InvalidGlobError(Exception):
    """The pattern cannot be used; the text says why."""


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches relative paths. A pattern without a slash matches names at any depth."""
    if len(pattern) > _MAX_PATTERN_CHARACTERS:
        raise InvalidGlobError(
            format_tool_text("Glob", "long_pattern", maximum=f"{_MAX_PATTERN_CHARACTERS:,}")
        )
    choices = [_compile_glob_parts(choice) for choice in _expand_glob_braces(pattern)]
    return lambda path: any(_is_glob_path_match(path.split("/"), parts) for parts in choices)


def _compile_glob_parts(pattern: str) -> list[_PatternPart]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if ".." in names:
        raise InvalidGlobError(format_tool_text("Glob", "parent_in_pattern"))
    if not names:
        raise InvalidGlobError(format_tool_text("Glob", "empty_pattern"))
    if "/" not in pattern:
        names = ["**", *names]
    elif pattern.endswith("/"):
        names = [*names, "**"]
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _is_glob_path_match(names: Sequence[str], parts: Sequence[_PatternPart]) -> bool:
    # Same algorithm as for wildcards in a string: on a mismatch, the last `**` consumes one more name.
    name = part = 0
    after_stars, resume = -1, 0
    while name < len(names):
        if part < len(parts) and (pattern_part := parts[part]) is None:
            after_stars, resume = part + 1, name
            part += 1
        elif part < len(parts) and pattern_part is not None and pattern_part.match(names[name]):
            name, part = name + 1, part + 1
        elif after_stars >= 0:
            resume += 1
            name, part = resume, after_stars
        else:
            return False
    return all(rest is None for rest in parts[part:])


def _expand_glob_braces(pattern: str) -> list[str]:
    expanded: list[str] = []
    pending = [pattern]
    while pending:
        current = pending.pop()
        parts = _split_first_braces(current)
        if parts is None:
            expanded.append(current)
        else:
            before, options, after = parts
            pending.extend(f"{before}{option}{after}" for option in options)
        if len(expanded) + len(pending) > _MAX_CHOICES:
            raise InvalidGlobError(format_tool_text("Glob", "many_choices", maximum=_MAX_CHOICES))
    return expanded


def _split_first_braces(pattern: str) -> tuple[str, list[str], str] | None:
    """Split at the first closed `{a,b}`, leaving inner braces for later; None if there is none."""
    start = pattern.find("{")
    if start < 0:
        return None
    options: list[str] = []
    depth, option_start = 0, start + 1
    for position in range(start, len(pattern)):
        match pattern[position]:
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if depth == 0:
                    return (
                        pattern[:start],
                        [*options, pattern[option_start:position]],
                        pattern[position + 1 :],
                    )
            case "," if depth == 1:
                options.append(pattern[option_start:position])
                option_start = position + 1
    return None
