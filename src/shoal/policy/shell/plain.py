"""Command lines of plain words, read without the parser: there is nothing in them that could be misread.

Words of letters, digits and signs without a meaning, one blank between them; pipes and lists; at the end the
file its output goes to. Every other line is left to the parser, which reads these alike.
"""

from __future__ import annotations

import re

from msgspec import Struct

from shoal.policy.shell.known import RESERVED
from shoal.policy.shell.words import SIMPLE

_WORD = rf"(?>{SIMPLE.pattern})(?=[ ;]|\Z)"
_COMMAND = rf"{_WORD}(?: {_WORD})*+(?: 2>(?:&1|/dev/null)(?=[ ;]|\Z))?+"
_LINE = re.compile(rf"({_COMMAND}(?:(?: \|| &&| \|\||;) {_COMMAND})*+)(?: (>>?) ?({_WORD})(?: 2>&1)?+)?")
_LISTED = re.compile(r" (?:\||&&|\|\|) |; ")
_LONGEST = 2_000
# What begins a construct, or a declaration, which sets variables.
_KEYWORDS = RESERVED | {"declare", "typeset", "export", "readonly", "local", "unset", "unsetenv"}


class PlainLine(Struct, frozen=True):
    """The simple commands, as written and word by word, and where the output of the last one goes."""

    commands: list[tuple[str, list[str]]]
    sign: str | None
    target: str | None


def plain_line(text: str) -> PlainLine | None:
    """The line, where it is such a one."""
    match = _LINE.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    line, sign, target = match.groups()
    listed = "&&" in line or ";" in line or "||" in line
    if sign is not None and ";" in line:
        return None
    commands: list[tuple[str, list[str]]] = []
    for written in _LISTED.split(line) if listed else line.split(" | "):
        words = written.split(" ")
        name = words[0]
        if "=" in name or name in _KEYWORDS:
            return None
        if ">" in words[-1]:  # errors go where the output goes, or nowhere
            commands.append((written[: -len(words[-1]) - 1], words[:-1]))
        else:
            commands.append((written, words))
    return PlainLine(commands, sign, target)
