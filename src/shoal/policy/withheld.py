"""Files that rules make unreadable, for tools and commands that search whole directories."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from shoal.policy.patterns import path_anchor, path_expression
from shoal.policy.rules import Rule
from shoal.policy.shell.parts import Part
from shoal.policy.wildcards import GLOB, MOST_LOOKED_AT, TooMany

WORKING_DIRECTORY = ""
"""The directory that a command runs in, which a preceding `cd` may have changed."""
_MOST_TO_HIDE = 5_000
_RECURSIVE = re.compile(r"-[A-Za-z0-9]*[rR].*|--recursive|--dereference-recursive|--directories.*|-d.*")


class _Place(Struct, frozen=True):
    anchor: str
    exact: bool
    expression: re.Pattern[str]
    rule: Rule


class Withheld:
    """`rules` have patterns, which are relative to `roots`."""

    def __init__(self, rules: Iterable[Rule], roots: Sequence[str]) -> None:
        self._places: list[_Place] = []
        for rule in rules:
            for root in roots:
                anchor, exact = path_anchor(rule.pattern or "", root)
                expression = re.compile(path_expression(rule.pattern or "", root), re.DOTALL)
                self._places.append(_Place(anchor, exact, expression, rule))

    def below(self, directory: str) -> Rule | None:
        """Return the first rule that matches, or may match, something below the directory."""
        for place in self._places:
            start = _deeper(directory, place.anchor)
            if start is None:
                continue
            try:
                if next(_fitting(start, place.expression, MOST_LOOKED_AT), None) is not None:
                    return place.rule
            except TooMany:
                return place.rule
        return None

    def paths(self) -> Iterator[str]:
        """Yield the topmost existing matches; for an expensive pattern, only those found within the limit."""
        for place in self._places:
            if place.exact:
                yield place.anchor
                continue
            try:
                yield from _fitting(place.anchor, place.expression, _MOST_TO_HIDE)
            except TooMany:
                continue


def swept(part: Part) -> tuple[str, ...]:
    """Return the directories that a simple command searches, whatever the files are called."""
    known = part.words or part.argv
    if not known:
        return ()
    if "find" in part.via:
        # Files found by find, at any depth.
        return tuple(before_glob(path) for path in part.reads if GLOB.search(path))
    match _program(known):
        case "grep" | "egrep" | "fgrep" | "zgrep" if any(
            word is not None and _RECURSIVE.fullmatch(word) for word in known[1:]
        ):
            return part.reads or (WORKING_DIRECTORY,)
        case "rg" if known[1:2] != ("--files",):
            return part.reads or (WORKING_DIRECTORY,)
        case "git" if "grep" in known:
            return (WORKING_DIRECTORY,)
        case "git" | "diff":
            return part.reads
    return ()


def perhaps_named(part: Part) -> Iterator[str]:
    """Yield words that may be paths it reads: of a git command or an unknown command."""
    known = part.words or part.argv or ()
    words = [word for word in known[1:] if word is not None]
    if known and _program(known) == "git":
        for word in [word for word in words if not word.startswith("-")][1:]:
            yield word
            _, revision, path = word.partition(":")
            if revision:
                yield path
    elif not part.read_only and not part.changes:
        for word in words:
            # As in `--in=file` and `data=@file`.
            yield word.rpartition("=")[2].removeprefix("@")


def _program(known: tuple[str | None, ...]) -> str:
    name = known[0] or ""
    return name[name.rfind("/") + 1 :]


def before_glob(path: str) -> str:
    """Return the directory in which the first wildcard of a path is looked up."""
    steps = path.split("/")
    fixed = next(at for at, step in enumerate(steps) if GLOB.search(step))
    return "/".join(steps[:fixed]) or ("/" if path.startswith("/") else ".")


def _deeper(directory: str, anchor: str) -> str | None:
    """Return the path that lies inside the other, or None."""
    if f"{anchor}/".startswith(f"{directory.rstrip('/')}/"):
        return anchor
    return directory if f"{directory}/".startswith(f"{anchor.rstrip('/')}/") else None


def _fitting(start: str, expression: re.Pattern[str], most: int) -> Iterator[str]:
    """Yield the topmost matching paths from here on; links are followed."""
    if not os.path.lexists(start):
        return
    if expression.fullmatch(start):
        yield start
        return
    waiting, known, looked = [start], {start}, 0
    while waiting:
        for entry in _entries(waiting.pop()):
            looked += 1
            if looked > most:
                raise TooMany
            real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
            if expression.fullmatch(real):
                yield real
            elif real not in known and os.path.isdir(real):  # noqa: PTH112 - for each of thousands
                known.add(real)
                waiting.append(real)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []
