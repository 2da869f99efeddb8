"""Lock between all processes of a machine that change the worktrees of a repository."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shoal.core.clock import Clock
from shoal.core.errors import WorktreeError
from shoal.core.flock_queue import acquire_flock
from shoal.workspaces.workspace_texts import format_workspace_notice

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
            raise WorktreeError(
                format_workspace_notice("lock_not_opened", path=self._path, error=error.strerror)
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return await self._wait_for_lock(fd)
        return fd

    async def _wait_for_lock(self, fd: int) -> int:
        try:
            async with self._clock.deadline(LOCK_TIMEOUT):
                return await acquire_flock(fd)
        except TimeoutError as error:
            reason = f"another process has held it for {LOCK_TIMEOUT:g} s; check for a hanging git process"
            raise WorktreeError(
                format_workspace_notice("lock_not_taken", path=self._path, reason=reason)
            ) from error
        except OSError as error:
            raise WorktreeError(
                format_workspace_notice("lock_not_taken", path=self._path, reason=error.strerror)
            ) from error
