"""In-memory stores for runs that write no files."""

from __future__ import annotations

from collections import deque

from shoal.core.clock import Clock
from shoal.core.conversation.transcript_entries import TranscriptEntry
from shoal.core.events import JournaledEvent


class NullTranscript:
    """Transcript that stores nothing, for a conversation that lives only in memory."""

    def append(self, entry: TranscriptEntry) -> None: ...

    def close(self) -> None: ...


class InMemoryJournal:
    """Newest events of a run; bounded, so that a long run does not grow without limit."""

    def __init__(self, clock: Clock, max_events: int = 1_000) -> None:
        self._clock = clock
        self._position = 0
        self.events: deque[JournaledEvent] = deque(maxlen=max_events)
        self.times: deque[int] = deque(maxlen=max_events)

    def append(self, event: JournaledEvent) -> None:
        self._position += 1
        self.times.append(self._clock.now())
        self.events.append(event)

    def get_position(self) -> int:
        return self._position

    def close(self) -> None: ...
