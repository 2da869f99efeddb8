"""What every store keeps, whichever it is."""

from __future__ import annotations

import pytest

from shoal.core.entries import Said
from shoal.core.events import Noted
from shoal.core.ids import LEAD, EntryId, SessionId
from shoal.core.messages import user
from shoal.core.ports import Journal, Results, Transcript
from shoal.stores.files.journal import FileJournal, read_journal
from shoal.stores.files.results import FileResults
from shoal.stores.files.sessions import read_session
from shoal.stores.files.transcripts import FileTranscript
from shoal.stores.memory import MemoryJournal
from shoal.wire.transcript import Lines


@pytest.mark.parametrize("durable", [False, True])
def test_a_transcript_keeps_what_is_said_in_order(durable, tmp_path):
    path = tmp_path / "s-1.jsonl"
    lines = Lines(session=SessionId("s-1"), cwd="/", version="0")
    store: Transcript = FileTranscript(path, lines, durable=durable)
    entries = [
        Said(id=EntryId(f"e-{n}"), parent=EntryId(f"e-{n - 1}") if n else None, at=n, message=user(f"{n}"))
        for n in range(3)
    ]
    for entry in entries:
        store.append(entry)
    store.close()
    assert list(read_session(path).messages) == [entry.message for entry in entries]


@pytest.mark.parametrize("kind", ["memory", "file", "durable file"])
def test_a_journal_keeps_what_happened_with_its_time(kind, tmp_path, clock):
    path = tmp_path / "journal.jsonl"
    memory = MemoryJournal(clock)
    store: Journal = memory if kind == "memory" else FileJournal(path, clock, durable="durable" in kind)
    events = [Noted(agent=LEAD, text=f"{n}") for n in range(3)]
    expected = []
    for event in events:
        clock.time += 5
        store.append(event)
        expected.append((clock.time, event))
    store.close()
    kept = zip(memory.times, memory.events, strict=True)
    if kind != "memory":
        kept = ((line.at, line.event) for line in read_journal(path))
    assert list(kept) == expected


def test_a_journal_in_memory_does_not_grow_for_as_long_as_a_session_lives(clock):
    journal = MemoryJournal(clock, most=3)
    for n in range(5):
        journal.append(Noted(agent=LEAD, text=f"{n}"))
    assert [event.text for event in journal.events if isinstance(event, Noted)] == ["2", "3", "4"]
    assert (len(journal.times), journal.position()) == (3, 5)


def test_results_of_one_name_do_not_overwrite_each_other(tmp_path):
    store: Results = FileResults(tmp_path)
    paths = [store.keep("../t1", content) for content in (b"1", b"2")]
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]
    assert {path.parent for path in paths} == {tmp_path}
