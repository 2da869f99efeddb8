"""Who waits for something to claim, and who of them is woken."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice

from shoal.core.names import TaskId
from shoal.stores.files.board_index import BoardIndex


class Waiters:
    """In order of arrival. Each task that becomes claimable wakes one of them, once."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._announced: set[TaskId] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(woken)
        # Who comes to wait found nothing claimable: what was announced is claimed, and may come back.
        self._announced.clear()
        try:
            await woken
        except asyncio.CancelledError:
            if woken.done() and not woken.cancelled():
                self._wake_one()  # it was told of a task that it will not claim now
            raise
        finally:
            if woken in self._waiting:
                self._waiting.remove(woken)

    def notice(self, index: BoardIndex) -> None:
        """Look at what is claimable now."""
        if not self._waiting:
            self._announced.clear()
            return
        most = len(self._announced) + len(self._waiting)
        claimable = {task.id for task in islice(index.claimable(), most)}
        new = claimable - self._announced
        self._announced = claimable
        for _ in new:
            self._wake_one()

    def _wake_one(self) -> None:
        while self._waiting:
            woken = self._waiting.popleft()
            if not woken.done():
                woken.set_result(None)
                return
