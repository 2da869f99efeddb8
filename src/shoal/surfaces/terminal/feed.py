"""Every event of a session in order, in turns and between them, for a surface that tells them."""

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
    """One reader. Who also reads the running turn keeps its agents from running far ahead."""

    def __init__(self, session: Session) -> None:
        self._waiting: deque[Event] = deque()
        self._news = asyncio.Event()
        self.close = session.watch(self._put)

    def taken(self) -> Iterator[Event]:
        """What was told and not taken yet."""
        while self._waiting:
            yield self._waiting.popleft()

    async def news(self) -> None:
        """Until something was told, or somebody wakes the reader."""
        await self._news.wait()
        self._news.clear()

    def wake(self) -> None:
        self._news.set()

    def _put(self, event: Event) -> None:
        self._waiting.append(event)
        self._news.set()


async def to_the_end(session: Session, prompt: str) -> Finished:
    """Run a prompt and every turn that follows from it; how the last of them ended."""
    turn = session.run(prompt)
    while True:
        async for event in turn:
            if isinstance(event, Finished):
                finished = event
        following = await session.next_turn() if finished.reason == "done" else None
        if following is None:
            return finished
        turn = following
