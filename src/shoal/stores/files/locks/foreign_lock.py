"""Lock that other programs use: a directory `{file}.lock` next to the file, refreshed while it is held.

Our locks have the sticky bit, which means nothing on an empty directory: a process that holds our flock and
finds one knows that a dead Shoal process made it. Creating and removing a directory costs more than moving
one, so a spare one is moved in and out if the system can do that without replacing another.
"""

from __future__ import annotations

import asyncio
import os
import random
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from shoal.core.errors import LockUnavailable
from shoal.stores.files.access.atomic_rename import rename_unless_target_exists
from shoal.stores.files.access.directory_handle import DirectoryHandle, build_open_error
from shoal.stores.files.home.home_paths import make_private_directory
from shoal.stores.store_texts import format_store_notice

STALE_AFTER = 10.0
"""Seconds without a refresh after which anybody may take over the lock."""
REFRESH_INTERVAL = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.05
_OWN_MODE = 0o1700
_WAIT = 15.0
"""Seconds; longer than a lock takes to become stale."""
_SPARE_COUNT = 16


class _ForeignLockStamp(NamedTuple):
    """Identity of a lock directory: the same name may be another directory later."""

    inode: int
    mtime: int
    mode: int

    @property
    def is_made_by_shoal(self) -> bool:
        return bool(self.mode & stat.S_ISVTX)


class ForeignProgramLock:
    """Lock taken while the flock of the same file is held, so that only one of our processes waits for it."""

    __slots__ = ("_directory", "_name", "_seen", "_since", "_spare", "_spares", "_timer")

    def __init__(
        self, directory: DirectoryHandle, file: str, spares: DirectoryHandle, *, spare: str | None = None
    ) -> None:
        """`spare` is the name of a spare directory that nobody else uses at the same time."""
        self._directory = directory
        self._name = f"{file}.lock"
        self._spares = spares
        self._spare = spare or f"spare-{zlib.crc32(self._name.encode()) % _SPARE_COUNT}"
        self._seen: _ForeignLockStamp | None = None
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, deadline: float, *, is_brief: bool = False) -> None:
        """Take the lock; raise LockUnavailable at the deadline (monotonic).

        A brief lock is not refreshed: the event loop does not run before it is released.
        """
        if not self._try_create_lock_directory():
            await self._wait_to_create_lock(deadline)
        self._seen = self._read_lock_stamp()
        self._since = time.monotonic()
        if not is_brief:
            self._timer = asyncio.get_running_loop().call_later(REFRESH_INTERVAL, self._refresh_lock)

    def confirm_held(self) -> None:
        """Raise LockUnavailable if somebody took over the lock while this process was suspended."""
        if not self._is_lock_still_held():
            raise LockUnavailable(format_store_notice("lock_lost", lock=self._directory.path / self._name))

    def release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_lock_still_held():
            return
        with suppress(OSError):
            if not rename_unless_target_exists(self._directory.fd, self._name, self._spares.fd, self._spare):
                os.rmdir(self._name, dir_fd=self._directory.fd)

    def _is_lock_still_held(self) -> bool:
        return time.monotonic() - self._since <= REFRESH_INTERVAL or self._read_lock_stamp() == self._seen

    def _try_create_lock_directory(self) -> bool:
        try:
            moved = self._move_spare_lock_in_place()
            if moved is None:
                os.mkdir(self._name, _OWN_MODE, dir_fd=self._directory.fd)
                return True
        except FileExistsError:
            return False
        except OSError as error:
            raise build_open_error(self._directory.path / self._name, error) from error
        return moved

    def _move_spare_lock_in_place(self) -> bool | None:
        """Move the spare directory in; return None if there is none."""
        try:
            os.utime(self._spare, dir_fd=self._spares.fd, follow_symlinks=False)
            return rename_unless_target_exists(self._spares.fd, self._spare, self._directory.fd, self._name)
        except FileNotFoundError:
            return None

    async def _wait_to_create_lock(self, deadline: float) -> None:
        last_stamp = self._read_lock_stamp()
        since = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            stamp = self._read_lock_stamp()
            if stamp is not None and stamp.is_made_by_shoal:
                # Left by a dead process of ours, or we would not hold the flock: it is reused.
                # It may be stale for other programs too: a faster one may have removed it.
                with suppress(FileNotFoundError):
                    os.utime(self._name, dir_fd=self._directory.fd, follow_symlinks=False)
                    return
            if stamp != last_stamp:
                last_stamp, since = stamp, time.monotonic()
            if stamp is not None and _is_lock_stale(stamp, time.monotonic() - since):
                with suppress(OSError):
                    os.rmdir(self._name, dir_fd=self._directory.fd)
            if self._try_create_lock_directory():
                return
            if time.monotonic() >= deadline:
                raise LockUnavailable(
                    format_store_notice("lock_directory_held", lock=self._directory.path / self._name)
                )
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads waiters
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _read_lock_stamp(self) -> _ForeignLockStamp | None:
        status = self._directory.get_entry_stat(self._name)
        return (
            None if status is None else _ForeignLockStamp(status.st_ino, status.st_mtime_ns, status.st_mode)
        )

    def _refresh_lock(self) -> None:
        if self._read_lock_stamp() != self._seen:
            return  # no longer ours; `confirm_held` will raise
        with suppress(OSError):
            os.utime(self._name, dir_fd=self._directory.fd, follow_symlinks=False)
        self._seen = self._read_lock_stamp()
        self._since = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(REFRESH_INTERVAL, self._refresh_lock)


@contextmanager
def hold_foreign_lock(path: Path, *, timeout: float = _WAIT) -> Iterator[Callable[[], None]]:
    """Hold the lock of a file for a moment, without an event loop; the value raises if the lock was lost.

    Raises `LockUnavailable` if another program does not release the lock.
    """
    lock, deadline = path.with_name(f"{path.name}.lock"), time.monotonic() + timeout
    make_private_directory(path.parent)
    pause = _FIRST_PAUSE
    while True:
        try:
            lock.mkdir(_OWN_MODE)
            break
        except FileExistsError:
            pass
        except OSError as error:
            raise build_open_error(lock, error) from error
        with suppress(OSError):
            if time.time() - lock.lstat().st_mtime > STALE_AFTER:
                lock.rmdir()
                continue
        if time.monotonic() >= deadline:
            raise LockUnavailable(format_store_notice("lock_directory_held", lock=lock))
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    identity = _read_identity(lock)

    def confirm_held() -> None:
        if _read_identity(lock) != identity:
            raise LockUnavailable(format_store_notice("lock_lost", lock=lock))

    try:
        yield confirm_held
    finally:
        if _read_identity(lock) == identity:
            with suppress(OSError):
                lock.rmdir()


def _read_identity(lock: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = lock.lstat()
        # A new directory often gets the number of a removed one.
        return status.st_ino, status.st_mtime_ns
    return None


def _is_lock_stale(stamp: _ForeignLockStamp, unchanged: float) -> bool:
    # Observed as well as dated: a clock that was set back must not keep a dead lock alive forever.
    return time.time() - stamp.mtime / 1e9 > STALE_AFTER or unchanged > STALE_AFTER
