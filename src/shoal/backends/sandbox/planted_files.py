"""Search for files that make other programs run something, after a command may have created them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from shoal.backends.sandbox.placeholders import is_placeholder

PLANTABLE_NAMES = frozenset({".git", ".claude", ".mcp.json", ".envrc"})
_BARE_REPOSITORY_NAMES = frozenset({"HEAD", "objects", "refs"})
_GIT_REDIRECTIONS = ("commondir", "config.worktree")
_MAX_DIRECTORIES = 20_000
_MAX_SECONDS = 0.5
_SETTLED_AGE = 100_000_000
"""Nanoseconds after which a change to a directory certainly changes its timestamp too."""


class _ListedDirectory(Struct, frozen=True):
    changed_at: int
    inode: int
    directories: tuple[str, ...]
    found: tuple[str, ...]


class PlantedFileSearch:
    """Remembers directories that did not change, so that a search looks at each only once."""

    def __init__(self) -> None:
        self._listed: dict[str, _ListedDirectory] = {}
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self.is_complete = True
        """False if the last search stopped at its limit."""

    def remember_existing(self, directories: Sequence[Path]) -> None:
        """Treat everything that is there now as known."""
        self.find_new(directories)

    def find_new(self, directories: Sequence[Path]) -> tuple[Path, ...]:
        """Return what was not there in the search before."""
        with self._lock:
            found = self._search(directories)
            new = found - self._known
            self._known = found if self.is_complete else self._known | found
        return tuple(Path(path) for path in sorted(new) if not is_placeholder(Path(path)))

    def _search(self, directories: Sequence[Path]) -> set[str]:
        end = time.monotonic() + _MAX_SECONDS
        pending = [os.path.realpath(directory) for directory in directories]
        seen: dict[str, _ListedDirectory] = {}
        found: set[str] = set()
        self.is_complete = True
        # Outer directories first: at the limit, deep ones are left out.
        for path in pending:
            if path in seen:
                continue
            if len(seen) >= _MAX_DIRECTORIES or time.monotonic() > end:
                self.is_complete = False
                break
            listed = self._list(path)
            if listed is not None:
                seen[path] = listed
                found.update(f"{path}/{name}" for name in listed.found)
                pending.extend(f"{path}/{name}" for name in listed.directories)
        self._listed = seen
        return found

    def _list(self, path: str) -> _ListedDirectory | None:
        try:
            status = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - once per directory of the project
            before = self._listed.get(path)
            if before is not None and (before.changed_at, before.inode) == (
                status.st_ctime_ns,
                status.st_ino,
            ):
                return before
            listed = _list_directory(path, status)
        except OSError:
            return None
        return listed


def _list_directory(path: str, status: os.stat_result) -> _ListedDirectory:
    directories: list[str] = []
    found: list[str] = []
    names: set[str] = set()
    with os.scandir(path) as entries:
        for entry in entries:
            names.add(entry.name)
            if entry.name in PLANTABLE_NAMES:
                found.append(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
    if ".git" in names:
        found += (f".git/{name}" for name in _GIT_REDIRECTIONS if os.path.lexists(f"{path}/.git/{name}"))
    if names >= _BARE_REPOSITORY_NAMES:
        found.append("HEAD")
    is_settled = ".git" not in names and time.time_ns() - status.st_ctime_ns > _SETTLED_AGE
    changed_at = status.st_ctime_ns if is_settled else 0
    return _ListedDirectory(changed_at, status.st_ino, tuple(sorted(directories)), tuple(found))
