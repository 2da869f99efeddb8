"""The lock other programs know: a directory `{file}.lock` beside the file, fresh while it is held."""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import suppress
from typing import NamedTuple

from shoal.core.errors import LockUnavailable
from shoal.stores.files.handles import Directory, refused
from shoal.stores.files.spare import Spare

STALE = 10.0
"""Seconds without a refresh after which anybody may take the lock over."""
REFRESH = 5.0
DOUBTFUL = 1.0
"""Seconds after which a lock that a dead process of ours may just have made is taken over."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.05
_NOTE = 64


class Mark(NamedTuple):
    """Which directory it is: the same name may come back as another one."""

    inode: int
    mtime: int


class LockNote:
    """What the holder writes into its own lock file, so that the one after it can tell what a dead one left.

    The file is guarded by its flock: a note found on getting it was left by a process that died.
    """

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def left_behind(self) -> Mark | None:
        """None: nothing. Inode 0: the dead one was about to make the directory, or had just made it."""
        fields = os.pread(self._fd, _NOTE, 0).split()
        if len(fields) != 3:
            return None
        try:
            return Mark(int(fields[1]), int(fields[2]))
        except ValueError:
            return None

    def write(self, mark: Mark) -> None:
        os.pwrite(self._fd, f"{os.getpid()} {mark.inode} {mark.mtime}".encode().ljust(_NOTE), 0)

    def clear(self) -> None:
        os.pwrite(self._fd, b" " * _NOTE, 0)


class ForeignLock:
    """Taken while the flock of the same record is held, so that of our processes only one asks for it."""

    __slots__ = ("_directory", "_mark", "_name", "_note", "_since", "_spare", "_timer")

    def __init__(self, directory: Directory, file: str, spare: Spare | None = None) -> None:
        """With a `spare` the lock is moved in and out instead of made and removed."""
        self._directory = directory
        self._spare = spare
        self._name = f"{file}.lock"
        self._mark = Mark(0, 0)
        self._note: LockNote | None = None
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, fd: int, deadline: float) -> None:
        """`fd` is our flock file, held. Raises LockUnavailable at the deadline (monotonic)."""
        note = LockNote(fd)
        left = note.left_behind()
        note.write(Mark(0, 0))
        try:
            if not self._made():
                await self._made_in_time(left, deadline)
        except BaseException:
            note.clear()
            raise
        self._note = note
        self._noted()
        self._timer = asyncio.get_running_loop().call_later(REFRESH, self._refresh)

    def confirm(self) -> None:
        """Raises LockUnavailable if somebody took it over meanwhile: this process was stopped for long."""
        if time.monotonic() - self._since > REFRESH and self._seen() != self._mark:
            raise LockUnavailable(f"{self._directory.path / self._name} was taken over; nothing was written.")

    def release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if time.monotonic() - self._since <= REFRESH or self._seen() == self._mark:
            self._remove()
        if self._note is not None:
            self._note.clear()

    def _remove(self) -> None:
        if self._spare is not None:
            try:
                self._spare.move_back(self._directory, self._name)
            except OSError:
                pass  # the spare's place is gone: the lock is removed instead
            else:
                return
        with suppress(OSError):
            os.rmdir(self._name, dir_fd=self._directory.fd)

    def _made(self) -> bool:
        moved = None if self._spare is None else self._spare.move_to(self._directory, self._name)
        if moved is not None:
            return moved
        try:
            os.mkdir(self._name, 0o700, dir_fd=self._directory.fd)
        except FileExistsError:
            return False
        except OSError as error:
            raise refused(self._directory.path / self._name, error) from error
        return True

    async def _made_in_time(self, left: Mark | None, deadline: float) -> None:
        first_seen = self._seen()
        since = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            seen = self._seen()
            if seen != first_seen:
                first_seen, since = seen, time.monotonic()
            if seen is not None and _is_stale(seen, left, time.monotonic() - since):
                with suppress(OSError):
                    os.rmdir(self._name, dir_fd=self._directory.fd)
            if self._made():
                return
            if time.monotonic() >= deadline:
                raise LockUnavailable(
                    f"{self._directory.path / self._name} is held by another program; nothing was written. "
                    "Try again, or remove that directory if no program is using it."
                )
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads waiters
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _seen(self) -> Mark | None:
        status = self._directory.status(self._name)
        return None if status is None else Mark(status.st_ino, status.st_mtime_ns)

    def _noted(self) -> None:
        self._mark = self._seen() or Mark(0, 0)
        self._since = time.monotonic()
        if self._note is not None:
            self._note.write(self._mark)

    def _refresh(self) -> None:
        if self._seen() != self._mark:
            return  # not ours any more; `confirm` will say so
        with suppress(OSError):
            os.utime(self._name, dir_fd=self._directory.fd, follow_symlinks=False)
        self._noted()
        self._timer = asyncio.get_running_loop().call_later(REFRESH, self._refresh)


def _is_stale(seen: Mark, left: Mark | None, unchanged: float) -> bool:
    if seen == left:
        return True
    patience = DOUBTFUL if left is not None and left.inode == 0 else STALE
    # Watched as well as dated: a clock that was set back must not make a dead lock live for ever.
    return time.time() - seen.mtime / 1e9 > patience or unchanged > patience
