"""Text of a skill or command: arguments, embedded shell commands and embedded files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

_ARGUMENT = re.compile(r"\$ARGUMENTS(?:\[(\d{1,2})\])?(?!\w)|\$(\d{1,2})(?!\w)|\$\{(CLAUDE_SKILL_DIR)\}")
_PUT_IN = re.compile(r"(?<!\S)!`([^`\n]+)`|(?<!\S)@((?:[\w.~/+-]|\$\d|\$ARGUMENTS)+)")

PieceKind: TypeAlias = Literal["text", "command", "file"]


class Piece(Struct, frozen=True):
    kind: PieceKind
    text: str
    """Plain text, a shell command, or a path."""


def pieces(body: str, arguments: str, places: Mapping[str, str], *, files: bool) -> Iterator[Piece]:
    """Split the body into text, commands and files, in order.

    Arguments are filled in after the split, so only commands and files of the author run or are read.
    `variables` are the values of `${NAME}`. Arguments that the body does not use are appended.
    """
    takes = any(match[3] is None for match in _ARGUMENT.finditer(body))
    at = 0
    for match in _PUT_IN.finditer(body):
        kind: PieceKind = "file" if match[1] is None else "command"
        if kind == "file" and not files:
            continue
        yield Piece("text", filled(body[at : match.start()], arguments, places))
        path = (match[2] or "").rstrip(".")
        at = match.end() - len(match[2] or "") + len(path)
        yield Piece(kind, filled(match[1] or path, arguments, places))
    yield Piece("text", filled(body[at:], arguments, places))
    if arguments and not takes:
        yield Piece("text", f"\n\nARGUMENTS: {arguments}")


def filled(text: str, arguments: str, places: Mapping[str, str]) -> str:
    """Fill in arguments: `$ARGUMENTS` is all of them, `$1` and `$ARGUMENTS[0]` the first word."""
    words = _words(arguments)

    def value(match: re.Match[str]) -> str:
        if match[3] is not None:
            return places.get(match[3], match[0])
        if match[1] is None and match[2] is None:
            return arguments
        at = int(match[1]) if match[1] is not None else int(match[2]) - 1
        return words[at] if 0 <= at < len(words) else ""

    return _ARGUMENT.sub(value, text)


def _words(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:  # an unbalanced quotation mark, as in "don't"
        return arguments.split()
