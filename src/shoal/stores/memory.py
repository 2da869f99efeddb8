"""Stores that keep everything in memory, for runs that leave nothing behind."""

from __future__ import annotations

from shoal.core.clock import Clock
from shoal.core.entries import Entry
from shoal.core.events import Journaled


class MemoryTranscript:
    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)

    def close(self) -> None: ...


class NoTranscript:
    """For a conversation that is read again where it is: in memory."""

    def append(self, entry: Entry) -> None: ...

    def close(self) -> None: ...


class MemoryJournal:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.events: list[Journaled] = []
        self.times: list[int] = []

    def append(self, event: Journaled) -> None:
        self.times.append(self._clock.now())
        self.events.append(event)

    def position(self) -> int:
        return len(self.events)

    def close(self) -> None: ...
