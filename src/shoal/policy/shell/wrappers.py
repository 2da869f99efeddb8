"""Commands that run another command from their words: where it begins, and what they change for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from shoal.policy.shell.options import Given, told_apart
from shoal.policy.shell.words import Word


class Wrapper(Struct, frozen=True):
    """`operands` is the number of words before the command; `rights` is True if it runs as another user."""

    flags: str = ""
    operands: int = 0
    rights: bool = False


WRAPPERS: dict[str, Wrapper] = {
    "time": Wrapper("-p"),
    "nice": Wrapper("-n: --adjustment: -NUM"),
    "nohup": Wrapper(),
    "timeout": Wrapper("-k: --kill-after: -s: --signal: --foreground --preserve-status -v --verbose", 1),
    "gtimeout": Wrapper("-k: -s: --foreground", 1),
    "command": Wrapper("-p"),
    "builtin": Wrapper(),
    "exec": Wrapper("-c -l"),
    "setsid": Wrapper("-w -f -c --wait --fork"),
    "stdbuf": Wrapper("-i: -o: -e: --input: --output: --error:"),
    "ionice": Wrapper("-c: -n: -t --class: --classdata:"),
    "unbuffer": Wrapper("-p"),
    "caffeinate": Wrapper("-d -i -m -s -u"),
    "env": Wrapper("-i -u: --unset: --ignore-environment -0 -"),
    "sudo": Wrapper("-n -E -H -S -k -b -u: -g: --user: --group: --non-interactive", rights=True),
    "doas": Wrapper("-n -u:", rights=True),
    "xargs": Wrapper(
        """-0 --null -r --no-run-if-empty -t --verbose -n: --max-args: -P: --max-procs: -I: -L: --max-lines
        -d: --delimiter: -s: --max-chars: -x --exit -E:"""
    ),
}
_ADDING = frozenset({"-n", "--max-args", "-L", "--max-lines"})
"""Flags of xargs with which input is appended at the end."""
EXECUTING = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
"""Flags of find that run commands."""
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")


class Unwrapped(Struct, frozen=True):
    """`sets` are variables set for the command; `trouble` says why the command is unknown."""

    words: tuple[Word, ...] = ()
    sets: tuple[str, ...] = ()
    trouble: str = ""


def unwrapped(name: str, words: Sequence[Word]) -> Unwrapped:
    """Return the command behind a wrapper, from the words after the wrapper's name."""
    wrapper = WRAPPERS[name]
    given = told_apart(words, wrapper.flags, leading=True)
    if given.refused:
        return Unwrapped(trouble=f"{name} has a flag that is not judged")
    at = len(words) - len(given.operands) + wrapper.operands
    sets: list[str] = []
    if name in ("env", "sudo", "doas"):
        while at < len(words) and (match := _ASSIGNMENT.match(words[at].value or words[at].prefix)):
            sets.append(match[1])
            at += 1
    rest = tuple(words[at:])
    if any(word.many and word.value is None for word in words[:at]):
        return Unwrapped(trouble=f"{name} has words that are only known when it runs")
    if name == "xargs":
        rest = _with_input(given, rest)
    return Unwrapped(words=rest, sets=tuple(sets))


def _with_input(given: Given, rest: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the command of xargs: its input is appended, or replaces a mark."""
    marks = given.values("-I")
    if not marks:
        return (*(rest or (Word("echo"),)), Word(None, many=True))
    mark = marks[-1].value
    if not mark:
        return (Word(None, many=True), *rest)
    marked = tuple(replaced(word, mark, None) for word in rest)
    # Of these flags and -I, the last one wins.
    return (*marked, Word(None, many=True)) if given.has(_ADDING) else marked


def replaced(word: Word, mark: str, pattern: str | None, *, many: bool = False) -> Word:
    """Return the word with its mark replaced by something known only at run time."""
    if word.value is None or mark not in word.value:
        return word
    if word.value == mark and pattern is not None:
        begins = "/" if pattern.startswith("/") else "./"
        return Word(None, prefix=begins, many=many, pattern=pattern)
    return Word(None, prefix=word.value.partition(mark)[0], many=many)


def found_commands(words: Sequence[Word]) -> list[tuple[Word, ...]]:
    """Return the commands of find's -exec and similar flags, with the found path in place of `{}`."""
    place = (
        words[0].value
        if words and not words[0].may_be_flag
        else None
        if words and words[0].value is None
        else "."
    )
    several = any(not word.may_be_flag for word in words[1:2])
    commands: list[tuple[Word, ...]] = []
    for at, word in enumerate(words):
        if word.value not in EXECUTING:
            continue
        end = end_of_command(words, at + 1)
        aside = word.value in ("-execdir", "-okdir") or several or place is None
        pattern = None if aside else f"{place}/*"
        many = end < len(words) and words[end].value == "+"
        commands.append(tuple(replaced(each, "{}", pattern, many=many) for each in words[at + 1 : end]))
    return commands


def end_of_command(words: Sequence[Word], start: int) -> int:
    """Return the index where a command of find's -exec ends; a plus ends it only after `{}`."""
    for at in range(start, len(words)):
        value = words[at].value
        if value == ";" or (value == "+" and at > start and words[at - 1].value == "{}"):
            return at
    return len(words)


def shell_script(words: Sequence[Word]) -> Word | None:
    """Return the script of `sh -c`; None if there is none, or if other flags change how it is read."""
    for at, word in enumerate(words):
        value = word.value
        if value is None or not value.startswith("-"):
            return None
        if re.fullmatch(r"-[eluxi]*c", value):
            following = words[at + 1] if at + 1 < len(words) else None
            if following is not None and (following.value or "").startswith("-"):
                return None
            return following
        if not re.fullmatch(r"-[elux]+|--login|--norc|--noprofile", value):
            return None
    return None
