"""Directories that a command may run in, derived from preceding `cd` commands."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.policy.shell.shell_words import ShellWord
from shoal.policy.shell.simple_commands import UNKNOWN_PATH

_MAX_DIRECTORIES = 6
_START = ("",)
"""The directory of the command line, before any `cd`."""


class PossibleShellDirectories:
    """Directories the shell may be in; a `cd` adds one and never removes one, because it may fail."""

    def __init__(self, candidates: tuple[str, ...] = _START) -> None:
        self.candidates = candidates

    @property
    def may_have_moved(self) -> bool:
        return self.candidates != _START

    def add_cd_target(self, to: ShellWord) -> None:
        target = to.value
        if target is None or target == "-" or len(self.candidates) >= _MAX_DIRECTORIES:
            new: tuple[str, ...] = (UNKNOWN_PATH,)
        else:
            new = tuple(_join_directory_and_path(place, target) for place in self.candidates)
        self.candidates = tuple(dict.fromkeys((*self.candidates, *new)))

    def resolve_paths(self, words: Iterable[ShellWord]) -> tuple[str, ...]:
        """Return the paths that words name from these directories; an unknown one is UNKNOWN_PATH."""
        found: dict[str, None] = {}
        for word in words:
            if word.stream:
                continue
            path = word.pattern if word.value is None else word.value
            if path is None:
                found[UNKNOWN_PATH] = None
            elif path and self.candidates is _START:
                found[path] = None
            elif path:
                for directory in self.candidates:
                    found[_join_directory_and_path(directory, path)] = None
        return tuple(found)


def _join_directory_and_path(directory: str, path: str) -> str:
    return f"{directory}/{path}" if directory and not path.startswith("/") else path
