"""Lock of a file shared with other programs: our processes queue on a flock, then take the foreign locks.

The kernel frees the flock the moment its holder dies, and waiting for it needs no polling. Code that runs
while a lock is held does not await.
"""

from __future__ import annotations

import asyncio
import os
import time
from types import TracebackType

from shoal.core.errors import LockUnavailable
from shoal.core.flock_queue import acquire_flock
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.locks.directory_flock import SharedDirectoryFlock
from shoal.stores.files.locks.foreign_lock import ForeignProgramLock
from shoal.stores.store_texts import format_store_notice

LOCK_TIMEOUT = 15.0
"""Seconds until a lock counts as unavailable; longer than a foreign lock takes to become stale."""


class AsyncFlock:
    """Lock between our processes. Tasks of one process that share this object wait in turn."""

    __slots__ = ("_directory", "_fd", "_name", "_patience", "_queued", "_turn", "deadline")

    def __init__(self, directory: DirectoryHandle, name: str, *, timeout: float = LOCK_TIMEOUT) -> None:
        self._directory = directory
        self._name = name
        self._patience = timeout
        self._turn = asyncio.Lock()
        self._queued = 0
        """Number of waiters, even while the lock is promised to the first of them and nobody has it."""
        self._fd: int
        """Set while the lock is held."""
        self.deadline = 0.0

    async def __aenter__(self) -> AsyncFlock:
        deadline = time.monotonic() + self._patience
        if await self.try_acquire():
            return self
        try:
            async with asyncio.timeout(self._patience):
                await self._wait_for_lock()
        except TimeoutError:
            raise LockUnavailable(
                format_store_notice("lock_held", lock=self._directory.path / self._name)
            ) from None
        self.deadline = deadline
        return self

    async def try_acquire(self) -> bool:
        """Take the lock if it is free, without waiting. It is released like `async with`."""
        if self._turn.locked() or self._queued:
            return False
        await self._turn.acquire()  # does not wait
        try:
            acquired = self._try_flock_file()
        except BaseException:
            self._turn.release()
            raise
        if acquired:
            self.deadline = time.monotonic() + self._patience
        else:
            self._turn.release()
        return acquired

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        os.close(self._fd)
        self._turn.release()

    async def _wait_for_lock(self) -> None:
        self._queued += 1
        try:
            await self._turn.acquire()
        finally:
            self._queued -= 1
        try:
            while not self._try_flock_file():
                fd = await acquire_flock(self._open_lock_file())
                if self._is_still_linked(fd):
                    self._fd = fd
                    return
                os.close(fd)
        except BaseException:
            self._turn.release()
            raise

    def _try_flock_file(self) -> bool:
        fd = self._directory.try_lock_file(self._name)
        if fd is None:
            return False
        self._fd = fd
        return True

    def _open_lock_file(self) -> int:
        return self._directory.open_file(self._name, os.O_RDWR | os.O_CREAT)

    def _is_still_linked(self, fd: int) -> bool:
        """Return True if the lock file still exists; a removed one guards nothing."""
        return os.fstat(fd).st_nlink > 0


class SharedFileLock:
    """`async with lock:` holds both locks; raises LockUnavailable if they are not available in time.

    `own` and `build_foreign_lock_context` can be taken separately if the second may not be needed.
    """

    __slots__ = ("_directory_flock", "_foreign", "_held", "own")

    def __init__(
        self,
        locks: DirectoryHandle,
        name: str,
        *,
        directory: DirectoryHandle,
        file: str,
        timeout: float = LOCK_TIMEOUT,
        directory_flock: SharedDirectoryFlock | None = None,
    ) -> None:
        """`name` is the flock file in `locks`; `file` in `directory` is shared with other programs.

        `directory_flock` is the lock of programs that lock the whole directory.
        """
        self.own = AsyncFlock(locks, name, timeout=timeout)
        self._directory_flock = directory_flock
        self._foreign = (directory, file, locks)
        self._held: ForeignProgramLock | None = None

    def build_foreign_lock_context(self) -> _ForeignProgramLockContext:
        """Return the context manager of the foreign lock; enter it while `own` is held."""
        return _ForeignProgramLockContext(ForeignProgramLock(*self._foreign), self.own, self._directory_flock)

    async def __aenter__(self) -> ForeignProgramLock:
        await self.own.__aenter__()
        foreign_lock = ForeignProgramLock(*self._foreign)
        try:
            await _acquire_foreign_locks(foreign_lock, self._directory_flock, self.own.deadline)
        except BaseException:
            await self.own.__aexit__(None, None, None)
            raise
        self._held = foreign_lock
        return foreign_lock

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        foreign_lock, self._held = self._held, None
        if foreign_lock is not None:
            if self._directory_flock is not None:
                self._directory_flock.release()
            foreign_lock.release()
        await self.own.__aexit__(kind, error, trace)


async def _acquire_foreign_locks(
    lock: ForeignProgramLock, directory_flock: SharedDirectoryFlock | None, deadline: float
) -> None:
    await lock.acquire(deadline)
    if directory_flock is not None:
        try:
            await directory_flock.acquire(deadline)
        except BaseException:
            lock.release()
            raise


class _ForeignProgramLockContext:
    __slots__ = ("_directory_flock", "_lock", "_own")

    def __init__(
        self, lock: ForeignProgramLock, own: AsyncFlock, directory_flock: SharedDirectoryFlock | None
    ) -> None:
        self._lock = lock
        self._own = own
        self._directory_flock = directory_flock

    async def __aenter__(self) -> ForeignProgramLock:
        await _acquire_foreign_locks(self._lock, self._directory_flock, self._own.deadline)
        return self._lock

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._directory_flock is not None:
            self._directory_flock.release()
        self._lock.release()
