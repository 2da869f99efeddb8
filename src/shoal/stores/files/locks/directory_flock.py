"""Flock of `.lock` in a directory shared with other programs: some lock all files of a directory at once."""

from __future__ import annotations

import asyncio
import os
import time

from shoal.core.errors import LockUnavailable
from shoal.core.flock_queue import acquire_flock
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.store_texts import format_store_notice

LOCK_FILE = ".lock"


class SharedDirectoryFlock:
    """Held once per process, by any number of holders: the process's other locks keep them apart.

    Code that waits for other locks while it holds this one must take it before them everywhere.
    """

    __slots__ = ("_directory", "_fd", "_holders", "_turn")

    def __init__(self, directory: DirectoryHandle) -> None:
        self._directory = directory
        self._turn = asyncio.Lock()
        self._fd: int
        """Set while there are holders."""
        self._holders = 0

    async def acquire(self, deadline: float) -> None:
        """Take the lock; raise LockUnavailable at the deadline (monotonic)."""
        if self.try_acquire():
            return
        async with self._turn:
            if not self._holders and not self._try_flock_file():
                await self._wait_for_flock(deadline)
            self._holders += 1

    def try_acquire(self) -> bool:
        """Take the lock if it is free, without waiting."""
        if self._turn.locked() or not (self._holders or self._try_flock_file()):
            return False
        self._holders += 1
        return True

    def release(self) -> None:
        self._holders -= 1
        if not self._holders:
            os.close(self._fd)

    async def _wait_for_flock(self, deadline: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                while not self._try_flock_file():
                    fd = await acquire_flock(self._open_lock_file())
                    if os.fstat(fd).st_nlink:
                        self._fd = fd
                        return
                    os.close(fd)
        except TimeoutError:
            raise LockUnavailable(
                format_store_notice("lock_held", lock=self._directory.path / LOCK_FILE)
            ) from None

    def _try_flock_file(self) -> bool:
        fd = self._directory.try_lock_file(LOCK_FILE)
        if fd is None:
            return False
        self._fd = fd
        return True

    def _open_lock_file(self) -> int:
        return self._directory.open_file(LOCK_FILE, os.O_RDWR | os.O_CREAT)
