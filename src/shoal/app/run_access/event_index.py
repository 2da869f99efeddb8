"""Index of a journal: where the events are that commands look for, so that they read only those.

The index has a snapshot like other state of a journal (`docs/decisions/0028`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import ClassVar

from shoal.app.run_access.run_handle import RunHandle
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    BackgroundShellEnded,
    BackgroundShellStarted,
    Event,
    JournalRecord,
    NotificationDelivered,
    PermissionDenied,
    SessionStarted,
)
from shoal.stores.files.home.home_paths import open_state_file
from shoal.stores.files.sessions.journal_snapshots import load_journal_state
from shoal.stores.journal_records import parse_journal_records

LATEST_EVENTS = 200
"""Number of each agent's latest events that the index contains."""
_INDEXED_KINDS: tuple[type[Event], ...] = (
    AgentEnded,
    AgentStarted,
    BackgroundShellEnded,
    BackgroundShellStarted,
    NotificationDelivered,
    PermissionDenied,
    SessionStarted,
)


class RunEventIndex:
    """Offsets of all events of some kinds, and of the latest events of each agent."""

    snapshot_name: ClassVar[str] = "events"
    snapshot_modules: ClassVar[tuple[str, ...]] = (__name__,)

    def __init__(self) -> None:
        self._by_kind: dict[str, array[int]] = {}
        self._by_agent: dict[str, array[int]] = {}

    def apply_record(self, record: JournalRecord) -> None:
        event = record.event
        if not isinstance(event, Event):
            return
        if isinstance(event, _INDEXED_KINDS):
            self._by_kind.setdefault(type(event).__name__, array("q")).append(record.offset)
        offsets = self._by_agent.setdefault(event.agent, array("q"))
        offsets.append(record.offset)
        if len(offsets) >= 2 * LATEST_EVENTS:
            del offsets[:LATEST_EVENTS]

    def has_agent(self, agent: str) -> bool:
        return agent in self._by_agent

    def get_latest_offsets(self, agent: str) -> Iterable[int]:
        return self._by_agent.get(agent, ())[-LATEST_EVENTS:]

    def get_offsets(self, kinds: Iterable[type[Event]]) -> list[int]:
        """Return the offsets of all events of these kinds, in their order."""
        return sorted(offset for kind in kinds for offset in self._by_kind.get(kind.__name__, ()))


def load_event_index(run: RunHandle) -> tuple[RunEventIndex, int]:
    """Return the index of the run's journal, and the offset after the last event in it."""
    return load_journal_state(run.journal_path, RunEventIndex)


def read_records_at(run: RunHandle, offsets: Iterable[int]) -> Iterator[JournalRecord]:
    """Yield the records at these offsets."""
    with open_state_file(run.journal_path) as file:
        for offset in offsets:
            file.seek(offset)
            yield from parse_journal_records((file.readline(),), offset)


def read_events_of_kinds(run: RunHandle, *kinds: type[Event]) -> Iterator[tuple[int, Event]]:
    """Yield all events of these kinds with their times. Raises `ValueError` for a kind without an index."""
    if missing := [kind.__name__ for kind in kinds if kind not in _INDEXED_KINDS]:
        raise ValueError(f"The index does not contain {', '.join(missing)}.")
    index, _ = load_event_index(run)
    offsets = index.get_offsets(kinds)
    if not offsets:
        return
    for record in read_records_at(run, offsets):
        if isinstance(record.event, kinds):
            yield record.at, record.event
