"""Patterns of paths, in the manner of .gitignore, as regular expressions over absolute paths."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

_PIECE = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[[!^]?\]?[^\]/]*\]|\[|\\.|.", re.DOTALL)
_ANY_DEPTH = ("**/", "**")


class BadPattern(ValueError):
    """Its text says what is wrong, without the pattern."""


def path_expression(pattern: str, base: str) -> str:
    """`//x` is absolute, `~/x` in the user's home, all else below `base`; without a slash at any depth.

    What a pattern names it names with everything below it.
    """
    base, pattern, anchored = _based(pattern, base)
    pieces = [found[0] for found in _PIECE.finditer(pattern)]
    if not pieces:
        return f"{re.escape(base)}(?:/.*)?"
    return f"{re.escape(base)}/{_expression(pieces if anchored else ['**/', *pieces])}(?:/.*)?"


def _expression(pieces: list[str]) -> str:
    """What stands between two `**` is looked for from the left and, once found, not elsewhere again: where it
    ends first leaves most to what follows. Else a pattern of many stars would take for ever to say no."""
    groups: list[list[str]] = [[]]
    for piece in pieces:
        if piece in _ANY_DEPTH:
            groups.append([])
        groups[-1].append(piece)
    written = []
    if sum(after[0] == "**/" and bool(group) and group[-1] != "/" for group, after in pairwise(groups)) > 1:
        raise BadPattern("`**/` stands in the middle of names more than once; write `/**/`")
    for group, following in zip(groups, [*groups[1:], [""]], strict=True):
        # Before `**/` only the end of a name is as good as any other.
        settled = following[0] == "**" or (following[0] == "**/" and group[-1:] == ["/"])
        written.append(f"(?>{_names(group)})" if settled else _names(group))
    return "".join(written)


def _names(pieces: list[str]) -> str:
    """The same for what stands between two `*` of one name."""
    chunks: list[list[str]] = [[]]
    for piece in pieces:
        if piece == "*":
            chunks.append([])
        chunks[-1].append(_piece(piece))
    written = ["".join(chunks[0])]
    for number, chunk in enumerate(chunks[1:], start=2):
        settled = number < len(chunks) and "/" not in chunk
        written.append(f"(?>{''.join(chunk)})" if settled else "".join(chunk))
    return "".join(written)


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
            return "(?:.*?/)??"
        case "/**":
            return "(?:/.*)?"
        case "**":
            return ".*?"
        case "*":
            return "[^/]*?"
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
    # A range may hold the slash, which no set means.
    expression = f"[^/{escaped}]" if turned else f"(?!/)[{escaped}]"
    try:
        re.compile(expression)
    except re.error as error:
        raise BadPattern(f"the characters {piece} are not a set: {error}") from error
    return expression
