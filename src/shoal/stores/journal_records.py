"""Journal records parsed from the bytes of a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from shoal.core.events import PREVIEW_LENGTH, JournalRecord, UnknownJournalEvent
from shoal.core.ports import JournalState
from shoal.core.text.text_format import to_one_line
from shoal.wire.journal_codec import parse_journal_line, recover_event_from_torn_line

S = TypeVar("S", bound=JournalState)


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
    remainder = b""
    for chunk in chunks:
        *lines, remainder = (remainder + chunk).split(b"\n")
        for line in lines:
            end = offset + len(line) + 1
            record = _parse_journal_record(line, offset, end, report_problem)
            if record is not None:
                yield record
            offset = end


def _parse_journal_record(
    line: bytes, offset: int, end: int, report_problem: Callable[[str], None]
) -> JournalRecord | None:
    try:
        at, event = parse_journal_line(line)
    except ValueError:
        if line:
            report_problem(f"The journal has an incomplete event at offset {offset} ({len(line)} bytes).")
        recovered = recover_event_from_torn_line(line)
        if recovered is None:
            return None
        at, event = recovered
    if isinstance(event, UnknownJournalEvent) and event.is_damaged:
        name = to_one_line(event.type)[:PREVIEW_LENGTH] or "without a type"
        report_problem(f"The journal has an event ({name}) with fields of other types at offset {offset}.")
    return JournalRecord(offset=offset, next=end, at=at, event=event)
