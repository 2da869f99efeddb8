"""One at a time among all processes of a machine that change which worktrees a repository has."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shoal.core.clock import Clock
from shoal.core.errors import WorktreeError

PATIENCE = 300.0
"""Seconds; who holds it has deadlines of its own."""


class RepositoryLock:
    """In the repository, not in a home: two homes may work on one repository."""

    def __init__(self, common: Path, clock: Clock) -> None:
        self._path = common / "shoal-worktrees.lock"
        self._clock = clock
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        async with self._turn:
            fd = await self._locked()
            try:
                yield
            finally:
                os.close(fd)

    async def _locked(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise WorktreeError(f"{self._path} cannot be opened: {error.strerror}.") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await self._waited(fd)
        return fd

    async def _waited(self, fd: int) -> None:
        waiting = asyncio.get_running_loop().run_in_executor(None, fcntl.flock, fd, fcntl.LOCK_EX)
        try:
            async with self._clock.deadline(PATIENCE):
                await asyncio.shield(waiting)
        except TimeoutError:
            waiting.add_done_callback(lambda _: os.close(fd))
            raise WorktreeError(
                f"Another process has held {self._path} for {PATIENCE:g} s. Look for a git that hangs."
            ) from None
        except BaseException:
            # The thread still waits, and its descriptor must not become another file's.
            waiting.add_done_callback(lambda _: os.close(fd))
            raise
