"""Bounded expansion of the wildcards in a path, as a shell expands them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from fnmatch import translate

MAX_ENTRIES = 20_000
"""Maximum number of directory entries; with more, the expansion is unknown."""
GLOB = re.compile(r"[*?\[]")
_ODD_NAME = re.compile(r"-|.*[^\w.,@%+:/=^-]", re.DOTALL)
_NAMED_CLASS = re.compile(r"\[[^/]*?\[[:=.][^/]*\]")


class TooManyDirectoryEntriesError(Exception):
    """There are more entries than can be checked before a command."""


def expand_path_wildcards(pattern: str) -> Iterator[str]:
    """Return the real paths that an absolute pattern matches; `**` is any number of directories, as in zsh.

    Raises `TooManyDirectoryEntriesError`.
    """
    # A negated set may also be written `[^…]`; a named class becomes any character.
    steps = [step for step in _NAMED_CLASS.sub("?", pattern).replace("[^", "[!").split("/") if step]
    scanner = _BoundedDirectoryScanner()
    paths: list[str] = [""]
    for step in steps:
        if step == "**":
            # To bash this is a plain star, which also names links.
            below = [each for place in paths for each in scanner.iter_directories(place)]
            paths = list(dict.fromkeys((*below, *scanner.iter_matches(paths, "*"))))
        elif GLOB.search(step):
            paths = list(scanner.iter_matches(paths, step))
        else:
            paths = [f"{place}/{step}" for place in paths]
    return (_resolve_real_path(place) for place in paths if os.path.lexists(place))


class _BoundedDirectoryScanner:
    """Lists directories and counts the entries."""

    def __init__(self) -> None:
        self._count = 0

    def list_entries(self, directory: str) -> list[os.DirEntry[str]]:
        found: list[os.DirEntry[str]] = []
        try:
            with os.scandir(directory or "/") as entries:
                for entry in entries:
                    self._count += 1
                    if self._count > MAX_ENTRIES:
                        raise TooManyDirectoryEntriesError
                    found.append(entry)
        except OSError:
            return found
        return found

    def iter_matches(self, directories: list[str], step: str) -> Iterator[str]:
        """Yield the entries of directories that one step of a pattern matches."""
        matches = re.compile(translate(step)).match
        is_hidden = step.startswith(".")
        for directory in directories:
            for entry in self.list_entries(directory):
                if matches(entry.name) and (is_hidden or not entry.name.startswith(".")):
                    yield f"{directory}/{entry.name}"
            if is_hidden and matches(".."):
                yield f"{directory}/.."

    def iter_directories(self, directory: str) -> Iterator[str]:
        """Yield the directory and all directories under it; links are not followed."""
        pending = [directory]
        while pending:
            current = pending.pop()
            yield current
            pending += [
                f"{current}/{each.name}" for each in self.list_entries(current) if _is_directory(each)
            ]


def iter_link_targets(
    directory: str, is_inside: Callable[[str], bool], *, name_pattern: str = "*"
) -> Iterator[str]:
    """Yield the targets of links below a directory whose names match, including links below those targets.

    Raises `TooManyDirectoryEntriesError`.
    """
    if not name_pattern:
        return
    matches = re.compile(translate(name_pattern)).match
    scanner = _BoundedDirectoryScanner()
    pending, seen = [directory], {directory}
    while pending:
        for entry in scanner.list_entries(pending.pop()):
            real = _resolve_real_path(entry.path) if entry.is_symlink() else entry.path
            if entry.is_symlink() and matches(entry.name):
                yield real
            if real not in seen and (_is_directory(entry) or (entry.is_symlink() and is_inside(real))):
                seen.add(real)
                pending.append(real)


def has_odd_names(directory: str) -> bool:
    """Return True if a name below the directory would be split, or taken for a flag, as a word of a command.

    Raises `TooManyDirectoryEntriesError`.
    """
    scanner = _BoundedDirectoryScanner()
    pending = [directory]
    while pending:
        for entry in scanner.list_entries(pending.pop()):
            if _ODD_NAME.match(entry.name):
                return True
            if _is_directory(entry):
                pending.append(entry.path)
    return False


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _resolve_real_path(path: str) -> str:
    try:
        return os.path.realpath(path)
    except OSError:
        return path
