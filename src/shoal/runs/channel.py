"""A bounded channel from a running turn to whoever reads its events."""

from __future__ import annotations

import asyncio
from collections import deque

from shoal.core.events import Event


class Channel:
    """One reader, many writers; a writer waits while the reader is far behind."""

    def __init__(self, size: int = 1024) -> None:
        self._events: deque[Event] = deque()
        self._size: float = size
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = False

    async def put(self, event: Event) -> None:
        while len(self._events) >= self._size and not self._closed:
            self._writable.clear()
            await self._writable.wait()
        self.push(event)

    def push(self, event: Event) -> None:
        """As `put`, for the rare event told by code that cannot wait: it may pass the bound."""
        if self._closed:
            return
        self._events.append(event)
        self._readable.set()

    def widen(self) -> None:
        """No writer waits any more: the turn is ending, and its reader may be gone."""
        self._size = float("inf")
        self._writable.set()

    def close(self) -> None:
        """Nothing more will come; what is there can still be read."""
        self._closed = True
        self._readable.set()
        self._writable.set()

    async def get(self) -> Event | None:
        """The next event; None when the channel is closed and empty."""
        while not self._events:
            if self._closed:
                return None
            self._readable.clear()
            await self._readable.wait()
        event = self._events.popleft()
        if not self._writable.is_set() and len(self._events) <= self._size // 2:
            self._writable.set()
        return event
