"""What one implementation of a store port does beyond the contract."""

from __future__ import annotations

import pytest

from shoal.core.conversation.messages import user_message
from shoal.core.conversation.transcript_entries import TranscriptMessageEntry
from shoal.core.errors import SettingsError
from shoal.core.events import NoteAdded
from shoal.core.ids import LEAD_ID, AgentId, EntryId, SessionId
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR
from shoal.stores.files.file_store import FileStore
from shoal.stores.memory.memory_store import MemoryStore
from shoal.stores.store_choice import open_store


def test_a_bounded_memory_journal_keeps_only_the_latest_events(clock):
    session = MemoryStore(max_events=3).create_session(SessionId("s-1"), cwd="/")
    journal = session.open_journal(clock, secrets=KEY_SHAPE_REDACTOR)
    for n in range(5):
        journal.append(NoteAdded(agent=LEAD_ID, text=f"{n}"))
    records = list(journal.read_records())
    assert [record.event.text for record in records] == ["2", "3", "4"]
    assert journal.get_position() == records[-1].next > records[0].offset > 0


def test_transcripts_of_ended_agents_are_compressed_when_there_are_many():
    session = MemoryStore().create_session(SessionId("s-1"), cwd="/")
    agents = [AgentId(f"a{number:07d}") for number in range(400)]
    for number, agent in enumerate(agents):
        transcript = session.open_transcript(agent, cwd="/", version="1")
        message = user_message(f"{number} " + "word " * 800)
        transcript.append(
            TranscriptMessageEntry(id=EntryId(f"e{number}"), parent=None, at=1, message=message)
        )
        transcript.close()
    texts = [session.restore_conversation(agent).messages[0].text for agent in agents]
    assert texts == [f"{number} " + "word " * 800 for number in range(400)]
    size = sum(len(part.content) for parts in session.transcripts.values() for part in parts)
    assert size < 400 * 4_000 / 2


def test_a_closed_memory_store_leaves_no_working_files():
    store = MemoryStore()
    directory = store.create_session(SessionId("s-1"), cwd="/").directory
    assert directory.is_dir()
    store.close()
    assert not directory.parent.exists()


def test_a_store_is_chosen_by_its_address(home):
    assert isinstance(open_store("memory:"), MemoryStore)
    assert open_store(home).url == open_store(f"file:{home}").url == f"file:{home}"
    store = FileStore(home)
    assert open_store(store) is store


@pytest.mark.parametrize("place", ["", "memory", "memory:x", "file:", "file:here", "mysql://db/shoal"])
def test_an_unknown_store_address_is_refused(place):
    with pytest.raises(SettingsError, match="There is no store"):
        open_store(place)
