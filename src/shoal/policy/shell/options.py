"""A command's words held against the flags and operands under which it only reads."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from functools import cache
from typing import Literal

from msgspec import Struct, field

from shoal.policy.shell.words import Word

Operands = Literal["paths", "text", "pattern", "one", "none", "plus"]
"""What the operands are: files it reads, plain text, a pattern and then files, at most one file (a second
one would be written), nothing at all, or formats that begin with a plus sign."""


_GIVE_PATTERN = frozenset({"-e", "-f", "--regexp", "--file", "--files"})
_MAY_GIVE_PATTERN = re.compile(r"-[^-].*[ef]|-[ef]|--reg|--file|--from")
"""Where any flag is allowed; a long one may be abbreviated."""


class Reader(Struct, frozen=True, kw_only=True):
    """How a command is used so that it only reads.

    `flags` lists those it may have, with `:` after one that takes a value, `?` after one of one letter that
    takes it in the same word alone; None says that no flag of it writes or runs anything. With operands one
    of the flags in `needs` must be there. `alone` says whether the command reads without any of its
    sub-commands.
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


class Given(Struct, frozen=True):
    """The words after a command's name, told apart as the command itself does it."""

    flags: tuple[tuple[str, Word | None], ...]
    """By their names, those that are run together one by one, each with its value."""
    operands: tuple[Word, ...]
    refused: str = ""
    """The first word that is not allowed; nothing behind it is told apart."""

    def values(self, *names: str) -> list[Word]:
        return [value for name, value in self.flags if name in names and value is not None]

    def has(self, names: Container[str]) -> bool:
        return any(name in names for name, _ in self.flags)


class _Flags(Struct, frozen=True):
    bare: frozenset[str]
    valued: frozenset[str]
    attached: frozenset[str]
    """Those of one letter whose value is in the same word, if there is one."""


@cache
def _flags(text: str) -> _Flags:
    names = text.split()
    return _Flags(
        frozenset(name for name in names if name[-1] not in ":?"),
        frozenset(name[:-1] for name in names if name[-1] == ":"),
        frozenset(name[:-1] for name in names if name[-1] == "?"),
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
        return _with_operands(name, operands, reader, gives_pattern=_may_give_pattern(words))
    # What looks like a flag behind the file may be the file that is written.
    given = told_apart(words, reader.flags, leading=reader.operands == "one")
    if given.refused:
        return unproven(f"{name} with {given.refused} is not known to only read")
    if reader.needs and given.operands and not given.has(reader.needs.split()):
        return unproven(f"{name} with a name and without {reader.needs.split()[0]} changes something")
    return _with_operands(name, given.operands, reader, gives_pattern=given.has(_GIVE_PATTERN))


def _path_in_flag(word: Word) -> str:
    """The path in `--file=/x` and `-f/x`: a flag that is allowed may still name a file it reads."""
    value = word.value or ""
    if value.startswith("--"):
        path = value.partition("=")[2]
    else:
        path = value[2:] if value[:1] == "-" and "/" in value else ""
    return path if len(path) > 1 else ""


def _may_give_pattern(words: Sequence[Word]) -> bool:
    """Whether a flag may give the pattern, so that the first operand is a file too."""
    return any(_MAY_GIVE_PATTERN.match(word.value or "") for word in words)


def told_apart(words: Sequence[Word], flags: str, *, leading: bool = False) -> Given:
    """`leading`: flags stand before the first operand alone, and all that follows it are operands."""
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
    """The flags in one word, each with the value that is in it; None where one of them is not allowed."""
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
