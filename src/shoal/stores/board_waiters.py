"""Waiters for claimable tasks, and the backoff between processes that claim."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Hashable, Iterable
from itertools import islice
from zlib import crc32

from shoal.core.names import TaskId

_MIN_SPREAD, _MAX_SPREAD = 0.003, 0.05
"""Seconds over which the claims of several processes for one task are spread out."""


class TaskClaimBackoff:
    """Delay before a process claims a task that other processes see too; it grows with each lost claim.

    If a hundred processes claim at once, one succeeds, and the others slow it and the lead down.
    """

    def __init__(self) -> None:
        self._spread = 0.0
        self._seed = os.urandom(8)

    def get_delay(self, task: TaskId) -> float:
        """Return the delay in seconds, different for each task, so that no process is always first."""
        return self._spread * crc32(self._seed + task.encode()) / 2**32

    def record_success(self) -> None:
        self._spread = self._spread / 2 if self._spread > _MIN_SPREAD else 0.0

    def record_failure(self) -> None:
        self._spread = min(_MAX_SPREAD, max(_MIN_SPREAD, 2 * self._spread))


class TaskClaimWaiters:
    """Waiters in order of arrival. Each task that becomes claimable wakes one of them, once."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._announced: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        # A new waiter found nothing claimable: announced tasks are claimed, and may become claimable again.
        self._announced.clear()
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._wake_one()  # it was woken for a task that it will not claim now
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            raise

    @property
    def max_announced(self) -> int:
        """Number of claimable tasks that are enough to wake everyone."""
        return len(self._announced) + len(self._waiting)

    def notify_claimable(self, tasks: Iterable[Hashable]) -> None:
        """Wake one waiter for each newly claimable task. The tasks are read only if someone waits."""
        if not self._waiting:
            return
        claimable = set(islice(tasks, self.max_announced))
        new_count = len(claimable - self._announced)
        self._announced = claimable
        for _ in range(new_count):
            self._wake_one()

    def _wake_one(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
