"""Lock between all processes of a machine that change the worktrees of a repository."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shoal.core.clock import Clock
from shoal.core.errors import WorktreeError

LOCK_TIMEOUT = 300.0
"""Seconds; the holder has its own timeouts."""


class GitRepositoryLock:
    """Lock file in the repository, not in a home, because two homes may use one repository."""

    def __init__(self, common: Path, clock: Clock) -> None:
        self._path = common / "shoal-worktrees.lock"
        self._clock = clock
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        async with self._turn:
            fd = await self._open_locked_file()
            try:
                yield
            finally:
                os.close(fd)

    async def _open_locked_file(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise WorktreeError(f"Cannot open {self._path}: {error.strerror}.") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await self._wait_for_lock(fd)
        return fd

    async def _wait_for_lock(self, fd: int) -> None:
        wait = _RepositoryLockWait(fd)
        # Not a thread of the loop's pool: all of those could wait here while the holder needs one.
        threading.Thread(target=wait.wait_for_lock, name="shoal-worktrees", daemon=True).start()
        try:
            async with self._clock.deadline(LOCK_TIMEOUT):
                await wait.acquired
        except BaseException as error:
            wait.abandon()
            if isinstance(error, TimeoutError):
                reason = (
                    f"another process has held it for {LOCK_TIMEOUT:g} s; check for a hanging git process"
                )
            elif isinstance(error, OSError):
                reason = str(error.strerror)
            else:
                raise
            raise WorktreeError(f"Cannot lock {self._path}: {reason}.") from error


class _RepositoryLockWait:
    """Pending flock on a descriptor, which this object owns until the lock is acquired."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self.acquired: asyncio.Future[None] = self._loop.create_future()

    def wait_for_lock(self) -> None:
        """Acquire the lock; runs in the thread."""
        failure: OSError | None = None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            failure = error
        try:
            self._loop.call_soon_threadsafe(self._set_lock_result, failure)
        except RuntimeError:  # the loop was closed meanwhile
            os.close(self._fd)

    def abandon(self) -> None:
        """Give up the wait; if the thread still waits, the descriptor is closed once it ends."""
        if self.acquired.cancelled() or self.acquired.cancel():
            return
        os.close(self._fd)

    def _set_lock_result(self, failure: OSError | None) -> None:
        if self.acquired.cancelled():
            os.close(self._fd)
        elif failure is not None:
            self.acquired.set_exception(failure)
        else:
            self.acquired.set_result(None)
