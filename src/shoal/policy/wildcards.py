"""Bounded expansion of the wildcards in a path, as a shell expands them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import translate

MOST_LOOKED_AT = 20_000
"""Maximum number of directory entries; with more, the expansion is unknown."""
GLOB = re.compile(r"[*?\[]")
_NAMED_CLASS = re.compile(r"\[[^/]*?\[[:=.][^/]*\]")


class TooMany(Exception):
    """There are more entries than can be checked before a command."""


def expanded(pattern: str) -> Iterator[str]:
    """Return the real paths that an absolute pattern matches; `**` is any number of directories, as in zsh.

    Raises `TooManyEntries`.
    """
    # A negated set may also be written `[^…]`; a named class becomes any character.
    steps = [step for step in _NAMED_CLASS.sub("?", pattern).replace("[^", "[!").split("/") if step]
    looked = _Looked()
    places: list[str] = [""]
    for step in steps:
        if step == "**":
            places = [below for place in places for below in looked.all_below(place)]
        elif GLOB.search(step):
            fits = re.compile(translate(step)).match
            hidden = step.startswith(".")
            places = [
                f"{place}/{entry.name}"
                for place in places
                for entry in looked.entries(place)
                if fits(entry.name) and (hidden or not entry.name.startswith("."))
            ]
        else:
            places = [f"{place}/{step}" for place in places]
    return (_real(place) for place in places if os.path.lexists(place))


class _Looked:
    """Lists directories and counts the entries."""

    def __init__(self) -> None:
        self._count = 0

    def entries(self, directory: str) -> list[os.DirEntry[str]]:
        found: list[os.DirEntry[str]] = []
        try:
            with os.scandir(directory or "/") as entries:
                for entry in entries:
                    self._count += 1
                    if self._count > MOST_LOOKED_AT:
                        raise TooMany
                    found.append(entry)
        except OSError:
            return found
        return found

    def all_below(self, directory: str) -> Iterator[str]:
        """Yield the directory and all directories below it; links are not followed."""
        waiting = [directory]
        while waiting:
            place = waiting.pop()
            yield place
            waiting += [f"{place}/{each.name}" for each in self.entries(place) if _is_directory(each)]


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _real(path: str) -> str:
    try:
        return os.path.realpath(path)
    except OSError:
        return path
