"""All events of a session in order, during turns and between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shoal.core.events import RunFinished

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.core.events import Event


class EventFeed:
    """Queue for one reader. Reading the running turn as well keeps its agents from running far ahead."""

    def __init__(self, session: Session) -> None:
        self._queue: deque[Event] = deque()
        self._has_events = asyncio.Event()
        self.close = session.subscribe(self._enqueue)

    def drain(self) -> Iterator[Event]:
        """Yield the queued events."""
        while self._queue:
            yield self._queue.popleft()

    async def wait_for_events(self) -> None:
        """Wait for an event or for `wake`."""
        await self._has_events.wait()
        self._has_events.clear()

    def wake(self) -> None:
        self._has_events.set()

    def _enqueue(self, event: Event) -> None:
        self._queue.append(event)
        self._has_events.set()


async def run_prompt_to_end(session: Session, prompt: str) -> RunFinished:
    """Run a prompt and every follow-up turn; return how the last one finished."""
    turn = session.run(prompt)
    while True:
        async for event in turn:
            if isinstance(event, RunFinished):
                finished = event
        next_turn = await session.next_turn() if finished.reason == "done" else None
        if next_turn is None:
            return finished
        turn = next_turn
