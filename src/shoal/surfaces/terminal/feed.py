"""All events of a session in order, during turns and between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shoal.core.events import Finished

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.core.events import Event


class Feed:
    """Queue for one reader. Reading the running turn as well keeps its agents from running far ahead."""

    def __init__(self, session: Session) -> None:
        self._waiting: deque[Event] = deque()
        self._news = asyncio.Event()
        self.close = session.watch(self._put)

    def taken(self) -> Iterator[Event]:
        """Yield the queued events."""
        while self._waiting:
            yield self._waiting.popleft()

    async def news(self) -> None:
        """Wait for an event or for `wake`."""
        await self._news.wait()
        self._news.clear()

    def wake(self) -> None:
        self._news.set()

    def _put(self, event: Event) -> None:
        self._waiting.append(event)
        self._news.set()


async def to_the_end(session: Session, prompt: str) -> Finished:
    """Run a prompt and every follow-up turn; return how the last one finished."""
    turn = session.run(prompt)
    while True:
        async for event in turn:
            if isinstance(event, Finished):
                finished = event
        following = await session.next_turn() if finished.reason == "done" else None
        if following is None:
            return finished
        turn = following
