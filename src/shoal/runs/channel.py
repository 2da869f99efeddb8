"""A bounded channel from a running turn to whoever reads its events."""

from __future__ import annotations

import asyncio
from collections import deque

from shoal.core.events import Event


class Channel:
    """One reader, many writers; a writer waits while the reader is far behind.

    Writers are woken one by one, each by the one before it: of a thousand that wait, a few fill the channel.
    """

    def __init__(self, size: int = 1024) -> None:
        self._events: deque[Event] = deque()
        self._size: float = size
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def full(self) -> bool:
        return len(self._events) >= self._size and not self._closed

    async def put(self, event: Event) -> None:
        if self.full:
            await self.room()
        self.push(event)

    def offer(self, event: Event) -> bool:
        """As `put`, where nobody has to wait; False where somebody has."""
        if len(self._events) >= self._size and not self._closed:
            return False
        # As `push` does: this is passed dozens of times in each round.
        if not self._closed:
            self._events.append(event)
            if self._reader is not None:
                self._wake_reader()
        return True

    def taken(self) -> Event | None:
        """As `get`, where nobody has to wait; None where somebody has."""
        if not self._events:
            return None
        event = self._events.popleft()
        if self._writers and len(self._events) == self._size // 2:
            self._wake_writer()
        return event

    def push(self, event: Event) -> None:
        """As `put`, for the rare event told by code that cannot wait: it may pass the bound."""
        if self._closed:
            return
        self._events.append(event)
        if self._reader is not None:
            self._wake_reader()

    def widen(self) -> None:
        """No writer waits any more: the turn is ending, and its reader may be gone."""
        self._size = float("inf")
        self._wake_writer()

    def close(self) -> None:
        """Nothing more will come; what is there can still be read."""
        self._closed = True
        self._wake_reader()
        self._wake_writer()

    async def get(self) -> Event | None:
        """The next event; None when the channel is closed and empty."""
        while (event := self.taken()) is None:
            if self._closed:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return event

    async def room(self) -> None:
        """Until there is room for one more. Whoever was woken and found none keeps the first place."""
        join = self._writers.append
        while self.full:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            join(woken)
            try:
                await woken
            except asyncio.CancelledError:
                # Its turn had come, and it cannot take it any more.
                if woken.done() and not woken.cancelled():
                    self._wake_writer()
                raise
            join = self._writers.appendleft
        self._wake_writer()

    def _wake_writer(self) -> None:
        while self._writers:
            woken = self._writers.popleft()
            if not woken.done():
                woken.set_result(None)
                return

    def _wake_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)
