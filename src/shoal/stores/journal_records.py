"""Journal records parsed from the bytes of a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from shoal.core.events import PREVIEW_LENGTH, JournalRecord, UnknownJournalEvent
from shoal.core.ports import JournalState
from shoal.core.text.text_format import to_one_line
from shoal.wire.journal_codec import is_start_of_event, parse_journal_line, split_torn_line

S = TypeVar("S", bound=JournalState)
_MAX_TORN_EVENTS = 64
"""Number of incomplete events that are compared with later lines; those before them are reported."""


def replay_records(kind: type[S], records: Iterable[JournalRecord]) -> S:
    """Return the state after the records of a whole journal."""
    state = kind()
    for record in records:
        state.apply_record(record)
    return state


def parse_journal_records(
    chunks: Iterable[bytes], offset: int, report_problem: Callable[[str], None] = lambda _: None
) -> Iterator[JournalRecord]:
    """Yield the events up to the last complete line; `offset` is that of the first chunk."""
    parser = _JournalRecordParser(report_problem)
    remainder = b""
    for chunk in chunks:
        *lines, remainder = (remainder + chunk).split(b"\n")
        for line in lines:
            end = offset + len(line) + 1
            record = parser.parse_line(line, offset, end)
            if record is not None:
                yield record
            offset = end
    parser.report_lost_events()


class _JournalRecordParser:
    """Parser of the lines of a journal.

    On a full disk, a writer may write only a part of an event, and all of it on a later line when there is
    space again. Such a part is not a loss, so parts are reported only once no later line completes them.
    """

    def __init__(self, report_problem: Callable[[str], None]) -> None:
        self._report_problem = report_problem
        self._torn_events: dict[int, bytes] = {}
        """Parts of events that no line has completed yet, by offset."""

    def parse_line(self, line: bytes, offset: int, end: int) -> JournalRecord | None:
        if not line:
            return None
        try:
            at, event = parse_journal_line(line)
        except ValueError:
            torn, line = split_torn_line(line)
            self._add_torn_event(offset, torn)
            if not line:
                return None
            at, event = parse_journal_line(line)
        if self._torn_events:
            self._forget_completed_events(line)
        if isinstance(event, UnknownJournalEvent) and event.is_damaged:
            name = to_one_line(event.type)[:PREVIEW_LENGTH] or "without a type"
            self._report_problem(
                f"The journal has an event ({name}) with fields of other types at offset {offset}."
            )
        return JournalRecord(offset=offset, next=end, at=at, event=event)

    def report_lost_events(self) -> None:
        """Report the parts of events that no line has completed."""
        for offset, torn in self._torn_events.items():
            self._report_torn_event(offset, torn)
        self._torn_events.clear()

    def _add_torn_event(self, offset: int, torn: bytes) -> None:
        if not is_start_of_event(torn):
            self._report_torn_event(offset, torn)
            return
        self._torn_events[offset] = torn
        if len(self._torn_events) > _MAX_TORN_EVENTS:
            oldest = next(iter(self._torn_events))
            self._report_torn_event(oldest, self._torn_events.pop(oldest))

    def _forget_completed_events(self, line: bytes) -> None:
        for offset in [each for each, torn in self._torn_events.items() if line.startswith(torn)]:
            del self._torn_events[offset]

    def _report_torn_event(self, offset: int, torn: bytes) -> None:
        self._report_problem(f"The journal has an incomplete event at offset {offset} ({len(torn)} bytes).")
