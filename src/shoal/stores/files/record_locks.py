"""Lock of a file shared with other programs: our processes queue on a flock, then take the foreign lock.

The kernel frees the flock the moment its holder dies, and waiting for it needs no polling. Code that runs
while a lock is held does not await.
"""

from __future__ import annotations

import asyncio
import os
import time
from types import TracebackType

from shoal.core.errors import LockUnavailable
from shoal.stores.files.flock_queue import flock
from shoal.stores.files.flocks import try_flock
from shoal.stores.files.foreign_lock import ForeignLock
from shoal.stores.files.handles import Directory

PATIENCE = 15.0
"""Seconds until a lock counts as unavailable; longer than a foreign lock takes to become stale."""


class OwnLock:
    """Lock between our processes. Tasks of one process that share this object wait in turn."""

    __slots__ = ("_directory", "_fd", "_name", "_patience", "_queued", "_turn", "deadline")

    def __init__(self, directory: Directory, name: str, *, patience: float = PATIENCE) -> None:
        self._directory = directory
        self._name = name
        self._patience = patience
        self._turn = asyncio.Lock()
        self._queued = 0
        """Number of waiters, also while the lock is promised to the first of them and nobody has it."""
        self._fd = -1
        self.deadline = 0.0

    async def __aenter__(self) -> OwnLock:
        deadline = time.monotonic() + self._patience
        if await self.take_now():
            return self
        try:
            async with asyncio.timeout(self._patience):
                await self._wait()
        except TimeoutError:
            raise LockUnavailable(
                f"{self._directory.path / self._name} is held by another process of Shoal; "
                "nothing was written. Try again."
            ) from None
        self.deadline = deadline
        return self

    async def take_now(self) -> bool:
        """Take the lock if it is free, without waiting. It is released like `async with`."""
        if self._turn.locked() or self._queued:
            return False
        await self._turn.acquire()  # does not wait
        try:
            taken = self._taken_at_once()
        except BaseException:
            self._turn.release()
            raise
        if taken:
            self.deadline = time.monotonic() + self._patience
        else:
            self._turn.release()
        return taken

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)
        self._turn.release()

    async def _wait(self) -> None:
        self._queued += 1
        try:
            await self._turn.acquire()
        finally:
            self._queued -= 1
        try:
            while not self._taken_at_once():
                fd = await flock(self._open())
                if self._still_there(fd):
                    self._fd = fd
                    return
                os.close(fd)
        except BaseException:
            self._turn.release()
            raise

    def _taken_at_once(self) -> bool:
        fd = self._open()
        if try_flock(fd) and self._still_there(fd):
            self._fd = fd
            return True
        os.close(fd)
        return False

    def _open(self) -> int:
        return self._directory.open(self._name, os.O_RDWR | os.O_CREAT)

    def _still_there(self, fd: int) -> bool:
        """Return True if the lock file still exists; a removed one guards nothing."""
        return os.fstat(fd).st_nlink > 0


class RecordLock:
    """`async with lock:` holds both locks; raises LockUnavailable if they are not available in time.

    `own` and `lock_foreign` can be taken separately if the second may not be needed.
    """

    __slots__ = ("_foreign", "_held", "own")

    def __init__(
        self, locks: Directory, name: str, *, beside: Directory, file: str, patience: float = PATIENCE
    ) -> None:
        """`name` is the flock file in `locks`; `file` in `directory` is shared with other programs."""
        self.own = OwnLock(locks, name, patience=patience)
        self._foreign = (beside, file, locks)
        self._held: ForeignLock | None = None

    def foreign(self) -> _Foreign:
        """Return the context manager of the foreign lock; enter it while `own` is held."""
        return _Foreign(ForeignLock(*self._foreign), self.own)

    async def __aenter__(self) -> ForeignLock:
        await self.own.__aenter__()
        held = ForeignLock(*self._foreign)
        try:
            await held.take(self.own.deadline)
        except BaseException:
            await self.own.__aexit__(None, None, None)
            raise
        self._held = held
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.release()
        await self.own.__aexit__(kind, error, trace)


class _Foreign:
    __slots__ = ("_lock", "_own")

    def __init__(self, lock: ForeignLock, own: OwnLock) -> None:
        self._lock = lock
        self._own = own

    async def __aenter__(self) -> ForeignLock:
        await self._lock.take(self._own.deadline)
        return self._lock

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
