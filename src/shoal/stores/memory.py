"""In-memory stores for runs that write no files."""

from __future__ import annotations

from collections import deque

from shoal.core.clock import Clock
from shoal.core.entries import Entry
from shoal.core.events import Journaled


class NoTranscript:
    """Transcript that stores nothing, for a conversation that lives only in memory."""

    def append(self, entry: Entry) -> None: ...

    def close(self) -> None: ...


class MemoryJournal:
    """Newest events of a run; bounded, so that a long run does not grow without limit."""

    def __init__(self, clock: Clock, most: int = 1_000) -> None:
        self._clock = clock
        self._position = 0
        self.events: deque[Journaled] = deque(maxlen=most)
        self.times: deque[int] = deque(maxlen=most)

    def append(self, event: Journaled) -> None:
        self._position += 1
        self.times.append(self._clock.now())
        self.events.append(event)

    def position(self) -> int:
        return self._position

    def close(self) -> None: ...
