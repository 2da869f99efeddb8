"""An event that takes a tenth of the memory of `asyncio.Event`, for objects of which there are thousands."""

from __future__ import annotations

import asyncio
from typing import Literal


class CompactEvent:
    """Works like `asyncio.Event`, but has no queue of 700 bytes. Meant for few waiters at the same time."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: tuple[asyncio.Future[None], ...] = ()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Wake all that wait, and let nobody wait until it is cleared."""
        self._is_set = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> Literal[True]:
        if self._is_set:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = (*self._waiters, waiter)
        try:
            await waiter
        finally:
            self._waiters = tuple(each for each in self._waiters if each is not waiter)
        return True
