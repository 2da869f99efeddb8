"""A command's words held against the flags and operands under which it only reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal

from msgspec import Struct, field

from shoal.policy.shell.words import Word

Operands = Literal["paths", "text", "pattern", "one", "none", "plus"]
"""What the operands are: files it reads, plain text, a pattern and then files, at most one file (a second
one would be written), nothing at all, or formats that begin with a plus sign."""


_PATTERN_FLAG = re.compile(r"-[A-Za-z]*[ef]|--regexp|--files|--file")


class Reader(Struct, frozen=True, kw_only=True):
    """How a command is used so that it only reads.

    `flags` lists those it may have, with `:` after one that takes a value; None says that no flag of it
    writes or runs anything. With operands one of the flags in `needs` must be there. `alone` says whether
    the command reads without any of its sub-commands.
    """

    flags: str | None = None
    operands: Operands = "paths"
    needs: str = ""
    subs: dict[str, Reader] = field(default_factory=dict)
    alone: bool = True


class Verdict(Struct, frozen=True, kw_only=True):
    """`doubt` says why not even a rule that allows the command may cover this use of it."""

    read_only: bool
    why: str
    reads: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    doubt: str = ""


def harmless(why: str, *, reads: tuple[Word, ...] = ()) -> Verdict:
    return Verdict(read_only=True, why=why, reads=reads)


def unproven(
    why: str, *, reads: tuple[Word, ...] = (), writes: tuple[Word, ...] = (), doubt: str = ""
) -> Verdict:
    return Verdict(read_only=False, why=why, reads=reads, writes=writes, doubt=doubt)


class _Flags(Struct, frozen=True):
    bare: frozenset[str]
    valued: frozenset[str]


@cache
def _flags(text: str) -> _Flags:
    names = text.split()
    return _Flags(
        frozenset(name for name in names if name[-1] != ":"),
        frozenset(name[:-1] for name in names if name[-1] == ":"),
    )


def judged(name: str, words: Sequence[Word], reader: Reader) -> Verdict:
    """Whether the words after a command's name keep to what its reader allows."""
    if words and reader.subs and (sub := words[0].value) is not None and sub in reader.subs:
        return judged(f"{name} {sub}", words[1:], reader.subs[sub])
    if not reader.alone:
        return unproven(f"{name} {(words and words[0].value) or '…'} is not known to only read")
    if reader.flags is None:
        operands = [word for word in words if not word.may_be_flag or word.value is None]
        operands.extend(Word(path) for word in words if (path := _path_in_flag(word)))
        return _with_operands(name, operands, reader, words)
    operands = []
    flag = _operands(words, _flags(reader.flags), operands)
    if flag is not None:
        return unproven(f"{name} with {flag} is not known to only read")
    if reader.needs and operands and not _has(words, reader.needs):
        return unproven(f"{name} with a name and without {reader.needs.split()[0]} changes something")
    return _with_operands(name, operands, reader, words)


def _path_in_flag(word: Word) -> str:
    """The path in `--file=/x` and `-f/x`: a flag that is allowed may still name a file it reads."""
    value = word.value or ""
    if value[:1] != "-" or "/" not in value:
        return ""
    path = value.partition("=")[2] if value.startswith("--") else value[2:]
    return path if len(path) > 1 else ""


def _gives_pattern(words: Sequence[Word]) -> bool:
    """Whether a flag gives the pattern, or there is none, so that the first operand is a file too."""
    return any(_PATTERN_FLAG.match(word.value or "") for word in words)


def _has(words: Sequence[Word], needed: str) -> bool:
    names = needed.split()
    return any(word.value is not None and word.value.split("=")[0] in names for word in words)


def _operands(words: Sequence[Word], flags: _Flags, operands: list[Word]) -> str | None:
    """Sorts the words; the first flag that is not allowed is returned."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.may_be_flag:
            operands.append(word)
            continue
        value = word.value
        if value is None:
            return "a word that is only known when it runs"
        if value == "--":
            operands.extend(words[at:])
            break
        if value == "-":
            operands.append(word)
            continue
        taken = _taken(value, flags, words, at)
        if taken is None:
            return value
        at += taken
    return None


def _taken(value: str, flags: _Flags, words: Sequence[Word], at: int) -> int | None:
    """How many words after it the flag takes as its value; None when it is not allowed."""
    name, equals, _ = value.partition("=")
    if name in flags.bare:
        return 0
    if name in flags.valued:
        return 0 if equals else _one_word(words, at)
    if value.startswith("--"):
        return None
    if value[1:].isdigit():
        return 0 if "-0" in flags.bare or "-NUM" in flags.bare else None
    for position, letter in enumerate(value[1:], start=2):
        if f"-{letter}" in flags.valued:
            return 0 if position < len(value) else _one_word(words, at)
        if f"-{letter}" not in flags.bare:
            return None
    return 0


def _one_word(words: Sequence[Word], at: int) -> int | None:
    return 1 if at < len(words) and not words[at].many else None


def _with_operands(name: str, operands: list[Word], reader: Reader, words: Sequence[Word]) -> Verdict:
    kind = reader.operands
    if kind == "one" and (len(operands) > 1 or any(word.many for word in operands)):
        return unproven(f"{name} writes its second file")
    if kind == "plus" and any(not (word.value or word.prefix).startswith("+") for word in operands):
        return unproven(f"{name} with an operand may change something")
    if kind == "none" and operands:
        return unproven(f"{name} with an operand may change something")
    if kind in ("paths", "one") or (kind == "pattern" and _gives_pattern(words)):
        return harmless(f"{name} only reads", reads=tuple(operands))
    return harmless(f"{name} only reads", reads=tuple(operands[1:]) if kind == "pattern" else ())


def split_flags(words: Sequence[Word], flags: str) -> int | None:
    """How many of the first words are flags and their values; None when one is not among `flags`."""
    known = _flags(flags)
    at = 0
    while at < len(words) and words[at].may_be_flag:
        value = words[at].value
        if value is None:
            return None
        if value == "-" and "-" not in known.bare:
            break
        at += 1
        if value == "--":
            break
        taken = _taken(value, known, words, at)
        if taken is None:
            return None
        at += taken
    return at
