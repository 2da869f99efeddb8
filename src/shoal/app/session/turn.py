"""One turn of a session, as its caller sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from shoal.core.events import Event
from shoal.runs.event_channel import EventChannel


class Turn(AsyncIterator[Event]):
    """Events of one turn; the last one is `RunFinished`. `aclose` before that ends the turn."""

    def __init__(
        self, channel: EventChannel, task: asyncio.Task[None], interrupt: Callable[[], Awaitable[bool]]
    ) -> None:
        self._channel = channel
        self._task = task
        self._interrupt = interrupt

    async def __anext__(self) -> Event:
        event = self._channel.try_get() or await self._channel.get()
        if event is None:
            await self._task
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        self._channel.close()
        if not self._task.done():
            await self._interrupt()
