"""Glob patterns on relative paths: `*`, `?`, `[…]` inside a part, `**` over parts, `{a,b}` for choices."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

_MOST_CHOICES = 200
_LONGEST = 4_096
"""Characters; no path is longer."""
_Part: TypeAlias = re.Pattern[str] | None
"""None means `**`."""


class BadGlob(Exception):
    """The pattern cannot be used; the text says why."""


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches relative paths. A pattern without a slash matches names at any depth."""
    if len(pattern) > _LONGEST:
        raise BadGlob(f"the pattern has more than {_LONGEST:,} characters")
    choices = [_parts(choice) for choice in _choices(pattern)]
    return lambda path: any(_matches(path.split("/"), parts) for parts in choices)


def _parts(pattern: str) -> list[_Part]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if ".." in names:
        raise BadGlob("the pattern holds `..`; give the directory to search as `path`")
    if not names:
        raise BadGlob("the pattern is empty")
    if "/" not in pattern:
        names = ["**", *names]
    elif pattern.endswith("/"):
        names = [*names, "**"]
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _matches(names: Sequence[str], parts: Sequence[_Part]) -> bool:
    # Same algorithm as for wildcards in a string: on a mismatch, the last `**` consumes one more name.
    name = part = 0
    after_stars, resume = -1, 0
    while name < len(names):
        if part < len(parts) and (wanted := parts[part]) is None:
            after_stars, resume = part + 1, name
            part += 1
        elif part < len(parts) and wanted is not None and wanted.match(names[name]):
            name, part = name + 1, part + 1
        elif after_stars >= 0:
            resume += 1
            name, part = resume, after_stars
        else:
            return False
    return all(rest is None for rest in parts[part:])


def _choices(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        current = waiting.pop()
        split = _first_braces(current)
        if split is None:
            done.append(current)
        else:
            before, options, after = split
            waiting.extend(f"{before}{option}{after}" for option in options)
        if len(done) + len(waiting) > _MOST_CHOICES:
            raise BadGlob(f"the pattern has more than {_MOST_CHOICES} choices in braces")
    return done


def _first_braces(pattern: str) -> tuple[str, list[str], str] | None:
    """Split at the first closed `{a,b}`, leaving inner braces for later; None if there is none."""
    start = pattern.find("{")
    if start < 0:
        return None
    options: list[str] = []
    depth, begun = 0, start + 1
    for at in range(start, len(pattern)):
        match pattern[at]:
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if depth == 0:
                    return pattern[:start], [*options, pattern[begun:at]], pattern[at + 1 :]
            case "," if depth == 1:
                options.append(pattern[begun:at])
                begun = at + 1
    return None
