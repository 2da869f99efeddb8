"""Placeholders for paths that commands must not create: a mount needs something on the disk to cover.

A placeholder is there only while a command runs. One that a killed process left is recognized by its time
and removed by the next command.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from shoal.backends.backend_texts import format_backend_notice
from shoal.core.errors import ProcessError

# All others are directories: git does not add an empty directory to a commit.
_FILE_NAMES = frozenset({"config.worktree"})
_MARK_NS = 1_234_567_890
"""Time of the last change of a placeholder, in nanoseconds since 1970. Writing in it changes the time."""
# Nobody can create the path there, so nothing has to be kept from it.
_UNCREATABLE_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR)
_LOCK_ATTEMPTS = 50
_LOCK_PAUSE = 0.002


class SandboxPlaceholders:
    """Creates placeholders for the running commands, and removes them after the last one.

    Other processes do the same in the same directories, so each holds a shared lock on the directory.
    """

    def __init__(self) -> None:
        self._users = 0
        self._turn = asyncio.Lock()
        """Held while a command's paths are covered: two commands must not lock one directory twice."""
        self._locks: dict[Path, int] = {}
        self._paths: set[Path] = set()

    async def acquire(self, paths: Iterable[Path]) -> None:
        """Create what is missing, for one more command. Raises `ProcessError`."""
        self._users += 1
        try:
            async with self._turn:
                for path in paths:
                    await self._cover(path)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """End the use by one command."""
        self._users -= 1
        if self._users:
            return
        locks, self._locks = self._locks, {}
        paths, self._paths = self._paths, set()
        for directory, lock in locks.items():
            with suppress(OSError):
                # Otherwise another process has commands running there, and removes them later.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for path in paths:
                    if path.parent == directory and is_placeholder(path):
                        _remove_placeholder(path)
            os.close(lock)

    async def _cover(self, path: Path) -> None:
        if not _needs_placeholder(path):
            return
        try:
            if path.parent not in self._locks:
                self._locks[path.parent] = await _lock_directory(path.parent)
            self._paths.add(path)
            _create_placeholder(path)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in _UNCREATABLE_ERRORS:
                raise ProcessError(
                    format_backend_notice("no_placeholder", path=path, error=error.strerror or error)
                ) from error


def _needs_placeholder(path: Path) -> bool:
    return not is_placeholder(path.parent) and (not os.path.lexists(path) or is_placeholder(path))


def is_placeholder(path: Path) -> bool:
    try:
        found = path.lstat()
        if found.st_mtime_ns != _MARK_NS:
            return False
        return path.name in _FILE_NAMES or not any(path.iterdir())
    except OSError:
        return False


def _create_placeholder(path: Path) -> None:
    if path.name in _FILE_NAMES:
        path.touch(exist_ok=False)
    else:
        path.mkdir()
    os.utime(path, ns=(_MARK_NS, _MARK_NS))


def _remove_placeholder(path: Path) -> None:
    with suppress(OSError):
        if path.name in _FILE_NAMES:
            path.unlink()
        else:
            path.rmdir()


async def _lock_directory(directory: Path) -> int:
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                # Held for a moment by a process that removes its placeholders, or for long by a command.
                await asyncio.sleep(_LOCK_PAUSE)
            else:
                return lock
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    raise ProcessError(format_backend_notice("placeholder_locked", directory=directory))
