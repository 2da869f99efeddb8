"""Behavior that every implementation of a store port has."""

from __future__ import annotations

import pytest

from shoal.core.conversation.messages import user_message
from shoal.core.conversation.transcript_entries import TranscriptMessageEntry
from shoal.core.events import NoteAdded
from shoal.core.ids import LEAD_ID, EntryId, SessionId
from shoal.core.ports import Journal, ResultStore, Transcript
from shoal.stores.files.sessions.file_journal import FileJournal, read_journal
from shoal.stores.files.sessions.file_transcript import FileTranscript
from shoal.stores.files.sessions.result_files import FileResultStore
from shoal.stores.files.sessions.session_files import read_session_transcript
from shoal.stores.memory_stores import InMemoryJournal
from shoal.wire.transcript_codec import TranscriptEncoder


@pytest.mark.parametrize("durable", [False, True])
def test_a_transcript_keeps_messages_in_order(durable, tmp_path):
    path = tmp_path / "s-1.jsonl"
    lines = TranscriptEncoder(session=SessionId("s-1"), cwd="/", version="0")
    store: Transcript = FileTranscript(path, lines, durable=durable)
    entries = [
        TranscriptMessageEntry(
            id=EntryId(f"e-{n}"),
            parent=EntryId(f"e-{n - 1}") if n else None,
            at=n,
            message=user_message(f"{n}"),
        )
        for n in range(3)
    ]
    for entry in entries:
        store.append(entry)
    store.close()
    assert list(read_session_transcript(path).messages) == [entry.message for entry in entries]


@pytest.mark.parametrize("kind", ["memory", "file", "durable file"])
def test_a_journal_keeps_events_with_their_time(kind, tmp_path, clock):
    path = tmp_path / "journal.jsonl"
    memory = InMemoryJournal(clock)
    store: Journal = memory if kind == "memory" else FileJournal(path, clock, durable="durable" in kind)
    events = [NoteAdded(agent=LEAD_ID, text=f"{n}") for n in range(3)]
    expected = []
    for event in events:
        clock.time += 5
        store.append(event)
        expected.append((clock.time, event))
    store.close()
    stored = zip(memory.times, memory.events, strict=True)
    if kind != "memory":
        stored = ((line.at, line.event) for line in read_journal(path))
    assert list(stored) == expected


def test_a_memory_journal_keeps_only_the_latest_events(clock):
    journal = InMemoryJournal(clock, max_events=3)
    for n in range(5):
        journal.append(NoteAdded(agent=LEAD_ID, text=f"{n}"))
    assert [event.text for event in journal.events if isinstance(event, NoteAdded)] == ["2", "3", "4"]
    assert (len(journal.times), journal.get_position()) == (3, 5)


def test_results_with_the_same_name_do_not_overwrite_each_other(tmp_path):
    store: ResultStore = FileResultStore(tmp_path)
    paths = [store.save_result("../t1", content) for content in (b"1", b"2")]
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]
    assert {path.parent for path in paths} == {tmp_path}
