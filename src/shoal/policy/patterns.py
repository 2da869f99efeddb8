"""Patterns of paths, in the manner of .gitignore, as regular expressions over absolute paths."""

from __future__ import annotations

import re
from pathlib import Path

_PIECE = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[[!^]?\]?[^\]/]*\]|\[|\\.|.", re.DOTALL)


class BadPattern(ValueError):
    """Its text says what is wrong, without the pattern."""


def path_expression(pattern: str, base: str) -> str:
    """`//x` is absolute, `~/x` in the user's home, all else below `base`; without a slash at any depth.

    What a pattern names it names with everything below it.
    """
    base, pattern, anchored = _based(pattern, base)
    body = "".join(_piece(found[0]) for found in _PIECE.finditer(pattern))
    depth = "" if anchored else "(?:.*/)?"
    if not body:
        return f"{re.escape(base)}(?:/.*)?"
    return f"{re.escape(base)}/{depth}{body}(?:/.*)?"


def path_anchor(pattern: str, base: str) -> tuple[str, bool]:
    """The path that everything it fits lies at or below, and whether it fits all that does."""
    base, pattern, anchored = _based(pattern, base)
    steps = pattern.split("/") if anchored and pattern else []
    fixed = next((at for at, step in enumerate(steps) if set(step) & set("*?[\\")), len(steps))
    exact = (anchored or not pattern) and steps[fixed:] in ([], ["**"])
    return "/".join((base, *steps[:fixed])) or "/", exact


def _based(pattern: str, base: str) -> tuple[str, str, bool]:
    """The directory it starts from, the rest of it, and whether it holds there alone or at any depth."""
    if pattern.startswith("!"):
        raise BadPattern("a rule cannot be turned round with `!`; write it into another list")
    if pattern == "~" or pattern.startswith("~/"):
        base, pattern = str(Path.home()), pattern[2:]
        anchored = True
    elif pattern.startswith("//"):
        base, pattern = "", pattern[2:]
        anchored = True
    else:
        anchored = "/" in pattern.rstrip("/")
        pattern = pattern.removeprefix("./").removeprefix("/")
    if ".." in pattern.split("/"):
        raise BadPattern("`..` has no meaning in it; write an absolute path with // in front")
    return base.rstrip("/"), pattern.rstrip("/"), anchored


def _piece(piece: str) -> str:
    match piece:
        case "**/":
            return "(?:.*/)?"
        case "/**":
            return "(?:/.*)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
        case "[":
            raise BadPattern("a `[` is not closed")
    if len(piece) > 1 and piece[0] == "[":
        return _class(piece)
    return re.escape(piece[1:] if len(piece) > 1 else piece)


def _class(piece: str) -> str:
    inside = piece[1:-1]
    turned = inside[:1] in ("!", "^")
    inside = inside[1:] if turned else inside
    escaped = re.sub(r"([\\\[\]^])", r"\\\1", inside)
    expression = f"[^/{escaped}]" if turned else f"[{escaped}]"
    try:
        re.compile(expression)
    except re.error as error:
        raise BadPattern(f"the characters {piece} are not a set: {error}") from error
    return expression
