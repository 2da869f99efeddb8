"""Files that rules make unreadable, for tools and commands that search whole directories."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from shoal.policy.path_patterns import convert_path_pattern_to_regex, find_path_pattern_anchor
from shoal.policy.permission_rules import ToolPermissionRule
from shoal.policy.shell.simple_commands import SimpleShellCommand
from shoal.policy.wildcards import GLOB, MAX_ENTRIES, TooManyDirectoryEntriesError

WORKING_DIRECTORY = ""
"""The directory that a command runs in, which a preceding `cd` may have changed."""
_MAX_HIDDEN = 5_000
_RECURSIVE = re.compile(r"-[A-Za-z0-9]*[rR].*|--recursive|--dereference-recursive|--directories.*|-d.*")


class _UnreadablePathPattern(Struct, frozen=True):
    anchor: str
    exact: bool
    expression: re.Pattern[str]
    rule: ToolPermissionRule


class UnreadableFileRules:
    """`rules` have patterns, which are relative to `roots`."""

    def __init__(self, rules: Iterable[ToolPermissionRule], roots: Sequence[str]) -> None:
        self._patterns: list[_UnreadablePathPattern] = []
        for rule in rules:
            for root in roots:
                anchor, exact = find_path_pattern_anchor(rule.pattern or "", root)
                expression = re.compile(convert_path_pattern_to_regex(rule.pattern or "", root), re.DOTALL)
                self._patterns.append(_UnreadablePathPattern(anchor, exact, expression, rule))

    def find_rule_below(self, directory: str) -> ToolPermissionRule | None:
        """Return the first rule that matches, or may match, something below the directory."""
        for pattern in self._patterns:
            start = _get_inner_path(directory, pattern.anchor)
            if start is None:
                continue
            try:
                if next(_iter_matching_paths(start, pattern.expression, MAX_ENTRIES), None) is not None:
                    return pattern.rule
            except TooManyDirectoryEntriesError:
                return pattern.rule
        return None

    def iter_unreadable_paths(self) -> Iterator[str]:
        """Yield the topmost existing matches; for an expensive pattern, only those found within the limit."""
        for pattern in self._patterns:
            if pattern.exact:
                yield pattern.anchor
                continue
            try:
                yield from _iter_matching_paths(pattern.anchor, pattern.expression, _MAX_HIDDEN)
            except TooManyDirectoryEntriesError:
                continue


def list_searched_directories(part: SimpleShellCommand) -> tuple[str, ...]:
    """Return the directories that a simple command searches, whatever the files are called."""
    words = part.words or part.argv
    if not words:
        return ()
    if "find" in part.via:
        # Files found by find, at any depth.
        return tuple(find_glob_base(path) for path in part.reads if GLOB.search(path))
    match _get_program_name(words):
        case "grep" | "egrep" | "fgrep" | "zgrep" if any(
            word is not None and _RECURSIVE.fullmatch(word) for word in words[1:]
        ):
            return part.reads or (WORKING_DIRECTORY,)
        case "rg" if words[1:2] != ("--files",):
            return part.reads or (WORKING_DIRECTORY,)
        case "git" if "grep" in words:
            return (WORKING_DIRECTORY,)
        case "git" | "diff":
            return part.reads
    return ()


def iter_possible_read_paths(part: SimpleShellCommand) -> Iterator[str]:
    """Yield words that may be paths it reads: of a git command or an unknown command."""
    all_words = part.words or part.argv or ()
    words = [word for word in all_words[1:] if word is not None]
    if all_words and _get_program_name(all_words) == "git":
        for word in [word for word in words if not word.startswith("-")][1:]:
            yield word
            _, revision, path = word.partition(":")
            if revision:
                yield path
    elif not part.read_only and not part.changes:
        for word in words:
            # As in `--in=file` and `data=@file`.
            yield word.rpartition("=")[2].removeprefix("@")


def _get_program_name(words: tuple[str | None, ...]) -> str:
    name = words[0] or ""
    return name[name.rfind("/") + 1 :]


def find_glob_base(path: str) -> str:
    """Return the directory in which the first wildcard of a path is looked up."""
    steps = path.split("/")
    literal_count = next(at for at, step in enumerate(steps) if GLOB.search(step))
    return "/".join(steps[:literal_count]) or ("/" if path.startswith("/") else ".")


def _get_inner_path(directory: str, anchor: str) -> str | None:
    """Return the path that is inside the other, or None."""
    if f"{anchor}/".startswith(f"{directory.rstrip('/')}/"):
        return anchor
    return directory if f"{directory}/".startswith(f"{anchor.rstrip('/')}/") else None


def _iter_matching_paths(start: str, expression: re.Pattern[str], limit: int) -> Iterator[str]:
    """Yield the topmost matching paths from here on; links are followed."""
    if not os.path.lexists(start):
        return
    if expression.fullmatch(start):
        yield start
        return
    pending, seen, entry_count = [start], {start}, 0
    while pending:
        for entry in _list_directory_entries(pending.pop()):
            entry_count += 1
            if entry_count > limit:
                raise TooManyDirectoryEntriesError
            real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
            if expression.fullmatch(real):
                yield real
            elif real not in seen and os.path.isdir(real):  # noqa: PTH112 - for each of thousands
                seen.add(real)
                pending.append(real)


def _list_directory_entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []
