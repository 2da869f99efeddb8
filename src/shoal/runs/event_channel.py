"""Bounded channel from a running turn to the reader of its events."""

from __future__ import annotations

import asyncio
from collections import deque

from shoal.core.events import Event


class EventChannel:
    """Channel with one reader and many writers; a writer waits while the reader is far behind.

    Writers are woken one by one, each by the previous one: of a thousand waiters, a few fill the channel.
    """

    def __init__(self, size: int = 1024) -> None:
        self._events: deque[Event] = deque()
        self._size: float = size
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def is_full(self) -> bool:
        return len(self._events) >= self._size and not self._closed

    async def put(self, event: Event) -> None:
        if self.is_full:
            await self.wait_for_room()
        self.force_put(event)

    def try_put(self, event: Event) -> bool:
        """Put an event without waiting; return False if the channel is full."""
        if len(self._events) >= self._size and not self._closed:
            return False
        # Inlined `force_put`: this runs dozens of times in each round.
        if not self._closed:
            self._events.append(event)
            if self._reader is not None:
                self._wake_reader()
        return True

    def try_get(self) -> Event | None:
        """Return an event without waiting; None if there is none."""
        if not self._events:
            return None
        event = self._events.popleft()
        if self._writers and len(self._events) == self._size // 2:
            self._wake_writer()
        return event

    def force_put(self, event: Event) -> None:
        """Put an event beyond the bound, for the rare event of code that cannot wait."""
        if self._closed:
            return
        self._events.append(event)
        if self._reader is not None:
            self._wake_reader()

    def remove_capacity_limit(self) -> None:
        """Remove the bound, so that no writer waits: the turn is ending, and its reader may be gone."""
        self._size = float("inf")
        self._wake_writer()

    def close(self) -> None:
        """Close the channel; queued events can still be read."""
        self._closed = True
        self._wake_reader()
        self._wake_writer()

    async def get(self) -> Event | None:
        """Return the next event; None when the channel is closed and empty."""
        while (event := self.try_get()) is None:
            if self._closed:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return event

    async def wait_for_room(self) -> None:
        """Wait until there is room for one more. A woken writer that finds none stays first in line."""
        enqueue = self._writers.append
        while self.is_full:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            enqueue(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                # It was woken and can no longer use its turn.
                if waiter.done() and not waiter.cancelled():
                    self._wake_writer()
                raise
            enqueue = self._writers.appendleft
        self._wake_writer()

    def _wake_writer(self) -> None:
        while self._writers:
            waiter = self._writers.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)
