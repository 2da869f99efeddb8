"""Checks a command's words against the flags and operands under which it only reads."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from functools import cache
from typing import Literal

from msgspec import Struct, field

from shoal.policy.shell.words import Word

Operands = Literal["paths", "text", "pattern", "one", "none", "plus"]
"""Kind of operands: files it reads, plain text, a pattern followed by files, at most one file (a second one
would be written), none, or formats that begin with a plus sign.
"""


_GIVE_PATTERN = frozenset({"-e", "-f", "--regexp", "--file", "--files"})
_MAY_GIVE_PATTERN = re.compile(r"-[^-].*[ef]|-[ef]|--reg|--file|--from")
"""Used where any flag is allowed; a long flag may be abbreviated."""


class Reader(Struct, frozen=True, kw_only=True):
    """Usage under which a command only reads.

    `flags` lists the allowed flags: `:` follows one that takes a value, `?` follows a one-letter flag whose
    value must be in the same word; None means that no flag writes or runs anything. With operands, one of the
    flags in `needs` must be present. `alone` is True if the command reads without any of its subcommands.
    """

    flags: str | None = None
    operands: Operands = "paths"
    needs: str = ""
    subs: dict[str, Reader] = field(default_factory=dict)
    alone: bool = True


class Verdict(Struct, frozen=True, kw_only=True):
    """Verdict on one use of a command; `doubt` says why even an allow rule must not cover it."""

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


class Given(Struct, frozen=True):
    """Words after a command's name, parsed into flags and operands as the command itself does."""

    flags: tuple[tuple[str, Word | None], ...]
    """Flags by name with their values; combined flags are listed one by one."""
    operands: tuple[Word, ...]
    refused: str = ""
    """First word that is not allowed; nothing after it is parsed."""

    def values(self, *names: str) -> list[Word]:
        return [value for name, value in self.flags if name in names and value is not None]

    def has(self, names: Container[str]) -> bool:
        return any(name in names for name, _ in self.flags)


class _Flags(Struct, frozen=True):
    bare: frozenset[str]
    valued: frozenset[str]
    attached: frozenset[str]
    """One-letter flags whose optional value is in the same word."""


@cache
def _flags(text: str) -> _Flags:
    names = text.split()
    return _Flags(
        frozenset(name for name in names if name[-1] not in ":?"),
        frozenset(name[:-1] for name in names if name[-1] == ":"),
        frozenset(name[:-1] for name in names if name[-1] == "?"),
    )


def judged(name: str, words: Sequence[Word], reader: Reader) -> Verdict:
    """Return the verdict on the words after a command's name, given its read-only usage."""
    if words and reader.subs and (sub := words[0].value) is not None and sub in reader.subs:
        return judged(f"{name} {sub}", words[1:], reader.subs[sub])
    if not reader.alone:
        return unproven(f"{name} {(words and words[0].value) or '…'} is not known to only read")
    if reader.flags is None:
        operands = [word for word in words if not word.may_be_flag or word.value is None]
        operands.extend(Word(path) for word in words if (path := _path_in_flag(word)))
        return _with_operands(name, operands, reader, gives_pattern=_may_give_pattern(words))
    # A word after the file that looks like a flag may be the output file.
    given = told_apart(words, reader.flags, leading=reader.operands == "one")
    if given.refused:
        return unproven(f"{name} with {given.refused} is not known to only read")
    if reader.needs and given.operands and not given.has(reader.needs.split()):
        return unproven(f"{name} with a name and without {reader.needs.split()[0]} changes something")
    return _with_operands(name, given.operands, reader, gives_pattern=given.has(_GIVE_PATTERN))


def _path_in_flag(word: Word) -> str:
    """Return the path in `--file=/x` or `-f/x`: an allowed flag may still name a file that is read."""
    value = word.value or ""
    if value.startswith("--"):
        path = value.partition("=")[2]
    else:
        path = value[2:] if value[:1] == "-" and "/" in value else ""
    return path if len(path) > 1 else ""


def _may_give_pattern(words: Sequence[Word]) -> bool:
    """Return True if a flag may supply the pattern, so that the first operand is a file too."""
    return any(_MAY_GIVE_PATTERN.match(word.value or "") for word in words)


def told_apart(words: Sequence[Word], flags: str, *, leading: bool = False) -> Given:
    """Parse flags and operands; with `leading`, flags are allowed only before the first operand."""
    known = _flags(flags)
    found: list[tuple[str, Word | None]] = []
    operands: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        value = word.value
        if not word.may_be_flag or (value == "-" and "-" not in known.bare):
            if leading:
                break
            operands.append(word)
            at += 1
            continue
        if value is None:
            return Given(tuple(found), tuple(operands), "a word that is only known when it runs")
        at += 1
        if value == "--":
            break
        named = _named(value, known)
        if named is None:
            return Given(tuple(found), tuple(operands), value)
        name, own = named[-1]
        if own is None and name in known.valued:
            if at == len(words) or words[at].many:
                return Given(tuple(found), tuple(operands), value)
            named[-1] = name, words[at]
            at += 1
        found.extend(named)
    operands.extend(words[at:])
    return Given(tuple(found), tuple(operands))


def _named(value: str, flags: _Flags) -> list[tuple[str, Word | None]] | None:
    """Return the flags in one word with the values in it; None if one of them is not allowed."""
    name, equals, rest = value.partition("=")
    if name in flags.bare:
        return [(name, Word(rest) if equals else None)]
    if name in flags.valued and (len(name) > 2 or not equals):
        return [(name, Word(rest) if equals else None)]
    if value.startswith("--"):
        return None
    if value[1:].isdigit():
        return [(value, None)] if "-0" in flags.bare or "-NUM" in flags.bare else None
    found: list[tuple[str, Word | None]] = []
    for position, letter in enumerate(value[1:], start=2):
        name = f"-{letter}"
        if name in flags.valued or name in flags.attached:
            found.append((name, Word(value[position:]) if position < len(value) else None))
            return found
        if name not in flags.bare:
            return None
        found.append((name, None))
    return found


def _with_operands(name: str, operands: Sequence[Word], reader: Reader, *, gives_pattern: bool) -> Verdict:
    kind = reader.operands
    if kind == "one" and (len(operands) > 1 or any(word.many for word in operands)):
        return unproven(f"{name} writes its second file")
    if kind == "plus" and any(not (word.value or word.prefix).startswith("+") for word in operands):
        return unproven(f"{name} with an operand may change something")
    if kind == "none" and operands:
        return unproven(f"{name} with an operand may change something")
    if kind in ("paths", "one") or (kind == "pattern" and gives_pattern):
        return harmless(f"{name} only reads", reads=tuple(operands))
    return harmless(f"{name} only reads", reads=tuple(operands[1:]) if kind == "pattern" else ())
