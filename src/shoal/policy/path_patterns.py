"""Path patterns in .gitignore style, converted to regular expressions over absolute paths."""

from __future__ import annotations

import re
from itertools import pairwise

_PIECE = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[[!^]?\]?[^\]/]*\]|\[|\\.|.", re.DOTALL)
_ONE_DIRECTORY = re.compile(r"(?!\./|~|\*\*)[^/!]+/\*\*/?")
_ANY_DEPTH = ("**/", "**")


class InvalidPathPatternError(ValueError):
    """The text says what is wrong, without the pattern."""


def deepen_forbidding_pattern(pattern: str) -> str:
    """Return the pattern of a forbidding rule: one directory, as in `secrets/**`, is meant at any depth."""
    return f"**/{pattern}" if _ONE_DIRECTORY.fullmatch(pattern) else pattern


def convert_path_pattern_to_regex(pattern: str, base: str, home: str) -> str:
    """Return the regular expression for a path pattern.

    `//x` is absolute, `~/x` is in the `home` of the user, anything else is below `base`; without a slash it
    matches at any depth. A pattern also matches everything under the path that it names.
    """
    base, pattern, anchored = _split_pattern_base(pattern, base, home)
    pieces = [found[0] for found in _PIECE.finditer(pattern)]
    if not pieces:
        return f"{re.escape(base)}(?:/.*)?"
    return f"{re.escape(base)}/{_build_path_regex(pieces if anchored else ['**/', *pieces])}(?:/.*)?"


def _build_path_regex(pieces: list[str]) -> str:
    """Join the pieces into an expression without backtracking across `**`.

    The part between two `**` is matched at its leftmost position only, which leaves the most text for what
    follows. Otherwise a pattern with many stars would backtrack forever before it fails.
    """
    groups: list[list[str]] = [[]]
    for piece in pieces:
        if piece in _ANY_DEPTH:
            groups.append([])
        groups[-1].append(piece)
    parts = []
    if sum(after[0] == "**/" and bool(group) and group[-1] != "/" for group, after in pairwise(groups)) > 1:
        raise InvalidPathPatternError("`**/` occurs more than once in the middle of names; write `/**/`")
    for group, next_group in zip(groups, [*groups[1:], [""]], strict=True):
        # Before `**/`, this holds only at the end of a name.
        is_atomic = next_group[0] == "**" or (next_group[0] == "**/" and group[-1:] == ["/"])
        parts.append(f"(?>{_build_file_name_regex(group)})" if is_atomic else _build_file_name_regex(group))
    return "".join(parts)


def _build_file_name_regex(pieces: list[str]) -> str:
    """Do the same for the part between two `*` of one name."""
    chunks: list[list[str]] = [[]]
    for piece in pieces:
        if piece == "*":
            chunks.append([])
        chunks[-1].append(_translate_pattern_piece_to_regex(piece))
    parts = ["".join(chunks[0])]
    for number, chunk in enumerate(chunks[1:], start=2):
        is_atomic = number < len(chunks) and "/" not in chunk
        parts.append(f"(?>{''.join(chunk)})" if is_atomic else "".join(chunk))
    return "".join(parts)


def find_path_pattern_anchor(pattern: str, base: str, home: str) -> tuple[str, bool]:
    """Return the path at or below which every match lies, and True if everything there matches."""
    base, pattern, anchored = _split_pattern_base(pattern, base, home)
    steps = pattern.split("/") if anchored and pattern else []
    literal_count = next((at for at, step in enumerate(steps) if set(step) & set("*?[\\")), len(steps))
    exact = (anchored or not pattern) and steps[literal_count:] in ([], ["**"])
    return "/".join((base, *steps[:literal_count])) or "/", exact


def _split_pattern_base(pattern: str, base: str, home: str) -> tuple[str, str, bool]:
    """Return the base directory, the rest of the pattern, and True if it applies to the base only."""
    if pattern.startswith("!"):
        raise InvalidPathPatternError("a rule cannot be negated with `!`; put it in another list")
    if pattern == "~" or pattern.startswith("~/"):
        base, pattern = home, pattern[2:]
        anchored = True
    elif pattern.startswith("//"):
        base, pattern = "", pattern[2:]
        anchored = True
    else:
        anchored = "/" in pattern.rstrip("/")
        pattern = pattern.removeprefix("./").removeprefix("/")
    if ".." in pattern.split("/"):
        raise InvalidPathPatternError("it cannot contain `..`; write an absolute path that starts with //")
    return base.rstrip("/"), pattern.rstrip("/"), anchored


def _translate_pattern_piece_to_regex(piece: str) -> str:
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
            raise InvalidPathPatternError("a `[` is not closed")
    if len(piece) > 1 and piece[0] == "[":
        return _translate_character_set_to_regex(piece)
    return re.escape(piece[1:] if len(piece) > 1 else piece)


def _translate_character_set_to_regex(piece: str) -> str:
    characters = piece[1:-1]
    is_negated = characters[:1] in ("!", "^")
    characters = characters[1:] if is_negated else characters
    escaped = re.sub(r"([\\\[\]^])", r"\\\1", characters)
    # A range may contain the slash, which a set never means.
    expression = f"[^/{escaped}]" if is_negated else f"(?!/)[{escaped}]"
    try:
        re.compile(expression)
    except re.error as error:
        raise InvalidPathPatternError(f"{piece} is not a valid character set: {error}") from error
    return expression
