"""The store in memory: what it keeps of many long conversations, and what it removes."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest

from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.ids import LEAD_ID, AgentId, SessionId
from shoal.stores.memory.memory_store import MemorySessionStore, MemoryStore, PackedEntries, UnpackedEntries
from shoal.testing.contracts.session_contract import (
    append_notes,
    create_used_session,
    make_entry,
    open_journal,
    read_entry_ids,
    read_notes,
)

LARGE = "many words " * 10_000
"""More than 200 KB with its id, which are compressed to a few."""
WORKERS = [AgentId(f"a{number}") for number in range(6)]


def write_conversation(session: MemorySessionStore, agent: AgentId, *texts: str) -> bytes:
    """Write a conversation, close it, and return what it contained before."""
    transcript = session.open_transcript(agent, cwd="/project", version="0")
    for number, text in enumerate(texts):
        transcript.append(make_entry(f"{number}-{text}"))
    content = session.read_transcript(agent)
    transcript.close()
    return content


def count_packed_bytes(session: MemorySessionStore, agent: AgentId) -> int | None:
    """Return the bytes of an ended conversation; None if it is kept as it is."""
    parts = session.transcripts[agent]
    if any(isinstance(part, UnpackedEntries) for part in parts):
        return None
    return sum(len(part.content) for part in parts if isinstance(part, PackedEntries))


def test_long_conversations_of_ended_agents_take_little_memory_and_lose_nothing() -> None:
    session = MemoryStore().create_session(SessionId("s-1"), cwd="/project")
    before = {agent: write_conversation(session, agent, LARGE, "end") for agent in WORKERS}
    sizes = [count_packed_bytes(session, agent) for agent in WORKERS]
    assert None not in sizes
    # The first ones are not compressed, because that would take more time than they are worth.
    assert [size > 200_000 for size in sizes if size is not None] == [True, True, False, False, False, False]
    assert {agent: session.read_transcript(agent) for agent in WORKERS} == before
    again = session.open_transcript(WORKERS[5], cwd="/elsewhere", version="1")
    again.append(make_entry("later"))
    again.close()
    assert read_entry_ids(session, WORKERS[5])[-1] == "entry-later"
    assert session.read_transcript(WORKERS[5]).startswith(before[WORKERS[5]])


@pytest.mark.parametrize("others", [0, 1])
def test_the_lead_of_the_only_session_stays_as_it_is(others: int) -> None:
    store = MemoryStore()
    session = store.create_session(SessionId("s-1"), cwd="/project")
    for number in range(others):
        store.create_session(SessionId(f"s-2{number}"), cwd="/project")
    before = write_conversation(session, LEAD_ID, "short")
    assert (count_packed_bytes(session, LEAD_ID) is None) is (others == 0)
    assert session.read_transcript(LEAD_ID) == before


def test_entries_of_two_writers_of_one_conversation_stay_in_their_order() -> None:
    session = MemoryStore().create_session(SessionId("s-1"), cwd="/project")
    first, second = (session.open_transcript(LEAD_ID, cwd="/project", version="0") for _ in range(2))
    for number, writer in enumerate((first, first, second, first, second, second)):
        writer.append(make_entry(str(number)))
    assert read_entry_ids(session) == [f"entry-{number}" for number in range(6)]
    assert len(session.transcripts[LEAD_ID]) == 4, "one part per change of the writer"


def test_sessions_are_found_by_id_by_its_start_and_by_the_latest_title() -> None:
    store = MemoryStore()
    names = ("boat-1", "boat-12", "crane")
    one, two, three = (create_used_session(store, SessionId(name), cwd=f"/{name[0]}") for name in names)
    store.create_session(SessionId("unused"), cwd="/b")
    assert store.find_session("boat-1") is one
    assert store.find_session("boat-12") is two
    assert store.find_session("c") is three
    for name, problem in (
        ("boat", "2 sessions start with 'boat'"),
        ("", "no session ''"),
        ("unused", "no session 'unused'"),
        ("other", "no session 'other'"),
    ):
        with pytest.raises(SessionNotFound, match=problem):
            store.find_session(name)
    for each in (one, two):
        each.set_title("Boats")
    assert store.find_session("Boats") is two
    one.open_transcript(LEAD_ID, cwd="/b", version="0").append(make_entry("more"))
    assert store.find_session("Boats") is one
    assert store.find_latest_session("/b") is one
    assert store.find_latest_session("/c") is three
    with pytest.raises(SessionNotFound, match="no session to continue in /d"):
        store.find_latest_session("/d")
    # The start of an id counts before a title.
    three.set_title("boat-12")
    assert store.find_session("boat-12") is two


def test_sessions_are_listed_latest_first_with_title_time_and_size() -> None:
    store, before = MemoryStore(), time.time() * 1000
    for name in ("one", "two", "three"):
        create_used_session(store, SessionId(name), cwd="/even" if name == "two" else "/odd")
    store.find_session("one").set_title("The first")
    listed = store.list_sessions(None)
    assert [(each.session, each.prompt) for each in listed] == [
        ("three", "hello"),
        ("two", "hello"),
        ("one", "The first"),
    ]
    assert [each.session for each in store.list_sessions("/odd")] == ["three", "one"]
    assert [each.session for each in store.list_sessions(None, limit=1)] == ["three"]
    assert all(before - 1_000 <= each.at <= time.time() * 1000 + 1 for each in listed)
    assert listed[0].size == len(store.find_session("three").read_transcript(LEAD_ID))


def test_a_session_in_use_is_refused_until_it_is_released() -> None:
    store, name = MemoryStore(), SessionId("s-1")
    session = create_used_session(store, name)
    assert not store.is_session_live(name)
    assert not store.is_session_live(SessionId("missing"))
    session.acquire_lock()
    assert store.is_session_live(name)
    with pytest.raises(StateFileError, match="is in use") as error:
        session.acquire_lock()
    assert error.value.path == session.directory
    session.release_lock()
    assert not store.is_session_live(name)
    with pytest.raises(StateFileError, match="already exists"):
        store.create_session(name, cwd="/project")
    with pytest.raises(SessionNotFound, match="no session 'missing'"):
        store.open_questions(SessionId("missing"))


@pytest.mark.parametrize("max_events", [None, 2])
def test_a_bounded_journal_keeps_the_last_events(max_events: int | None) -> None:
    session = MemoryStore(max_events=max_events).create_session(SessionId("s-1"), cwd="/project")
    append_notes(open_journal(session), "one", "two", "three")
    assert read_notes(open_journal(session)) == ["one", "two", "three"][-(max_events or 3) :]


@pytest.mark.parametrize("is_closed", [True, False])
def test_the_working_files_are_removed_with_their_store(tmp_path: Path, is_closed: bool) -> None:
    store = MemoryStore(directory=str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    directory = store.create_session(SessionId("s-1"), cwd="/project").directory
    assert directory.is_relative_to(tmp_path)
    assert directory.stat().st_mode & 0o777 == 0o700
    if is_closed:
        store.close()
        store.close()
    else:
        del store
        gc.collect()
    assert list(tmp_path.iterdir()) == []
