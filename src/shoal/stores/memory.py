"""Stores that keep everything in memory, for tests and for runs that leave nothing behind."""

from __future__ import annotations

from pathlib import Path

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


class MemoryResults:
    """Its paths name what was kept; there is no such file."""

    def __init__(self) -> None:
        self.kept: dict[Path, bytes] = {}

    def keep(self, name: str, content: bytes) -> Path:
        path = Path("/memory") / f"{len(self.kept) + 1}" / name.replace("/", "-")
        self.kept[path] = content
        return path
