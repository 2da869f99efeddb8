"""Fast path for plain command lines, which are read without the parser because they are unambiguous.

Words consist of letters, digits and signs without a special meaning, or are quoted with nothing to expand;
one blank separates them. Pipes, lists and a final output redirection are allowed. Every other line goes to
the parser, which reads these lines the same way.
"""

from __future__ import annotations

import re

from msgspec import Struct

from shoal.policy.shell.known import RESERVED
from shoal.policy.shell.parts import Part
from shoal.policy.shell.redirections import add_target
from shoal.policy.shell.running import Found, Walking, run
from shoal.policy.shell.words import SIMPLE, Word

_ENDS = r"(?=[ ;]|\Z)"
_IN_QUOTES = r"\"[ #%-\[\]-_a-~]*+\"|'[ -&(-~]*+'"
_NAME = rf"(?>{SIMPLE.pattern}){_ENDS}"
_WORD = rf"(?>{SIMPLE.pattern}|{_IN_QUOTES}){_ENDS}"
# Atomic groups: possessive quantifiers of groups backtrack incorrectly before Python 3.11.5.
_COMMAND = rf"{_NAME}(?>(?: {_WORD})*)(?>(?: 2>(?:&1|/dev/null){_ENDS})?)"
_BETWEEN = r"(?: \|| &&| \|\||;) "
_LINE = re.compile(rf"({_COMMAND}(?>(?:{_BETWEEN}{_COMMAND})*))(?: (>>?) ?({_NAME})(?: 2>&1)?)?")
_LISTED = re.compile(_BETWEEN)
_QUOTED = re.compile(_IN_QUOTES)
_HELD = "'"
"""Stands for a quoted word while the line is split; a plain line cannot contain it otherwise."""
_LONGEST = 2_000
# Words that begin a construct or a declaration, which sets variables.
_KEYWORDS = RESERVED | {"declare", "typeset", "export", "readonly", "local", "unset", "unsetenv"}


class PlainLine(Struct, frozen=True):
    """Simple commands, as written and word by word, and the output file of the last one."""

    commands: list[tuple[str, list[str]]]
    sign: str | None
    target: str | None


def plain_line(text: str) -> PlainLine | None:
    """Parse the line, or return None if it is not plain."""
    match = _LINE.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    line, sign, target = match.groups()
    quoted: list[str] = []
    if "'" in line or '"' in line:
        quoted = _QUOTED.findall(line)
        line = _QUOTED.sub(_HELD, line)
    if sign is not None and ";" in line:
        return None
    commands: list[tuple[str, list[str]]] = []
    listed = "&&" in line or ";" in line or "||" in line
    for written in _LISTED.split(line) if listed else line.split(" | "):
        words = written.split(" ")
        name = words[0]
        if "=" in name or name in _KEYWORDS:
            return None
        if ">" in words[-1]:  # stderr goes to stdout, or nowhere
            written = written[: -len(words.pop()) - 1]  # noqa: PLW2901
        commands.append(_filled(words, quoted) if quoted and _HELD in words else (written, words))
    return PlainLine(commands, sign, target)


def _filled(words: list[str], quoted: list[str]) -> tuple[str, list[str]]:
    """Return a command with its quoted words restored; they are taken from the front of `quoted`."""
    values: list[str] = []
    for at, word in enumerate(words):
        if word == _HELD:
            words[at] = quoted.pop(0)
            values.append(words[at][1:-1])
        else:
            values.append(word)
    return " ".join(words), values


def run_plain(text: str, line: PlainLine, via: tuple[str, ...], walk: Walking) -> None:
    """Add the simple commands of a line, as the walk over its tree would."""
    alone = _written(line, walk) if len(line.commands) == 1 else ()
    for command, words in line.commands:
        run(Found(text=command, words=tuple(map(Word, words)), via=via, writes=alone), walk)
    if len(line.commands) > 1 and (writes := _written(line, walk)):
        walk.parts.append(
            Part(text=text, argv=(), via=via, writes=writes, read_only=True, why="it redirects")
        )


def _written(line: PlainLine, walk: Walking) -> tuple[str, ...]:
    if line.sign is None:
        return ()
    writes: list[Word] = []
    add_target(line.sign, Word(line.target), [], writes)
    return walk.places.paths(writes)
