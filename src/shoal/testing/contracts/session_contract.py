"""Contract of the sessions of every store: transcripts, journal, results, locks, and finding a session."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from shoal.core.agents.subagent_metadata import SubagentMetadata, SubagentOrigin, SubagentRestrictions
from shoal.core.budgets.usage import Usage
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import Message, ToolUseBlock, user_message
from shoal.core.conversation.transcript_entries import (
    ModelReplyMetadata,
    TranscriptCompactionMarker,
    TranscriptEntry,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.events import EVENT_MODULES, JournalRecord, NoteAdded
from shoal.core.ids import LEAD_ID, AgentId, EntryId, RequestId, SessionId
from shoal.core.ports import Journal
from shoal.core.store import SessionStore, Store
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR
from shoal.testing.contracts.contract_rules import (
    ContractRules,
    StoreOpener,
    expect_raised,
    open_store_handles,
)

RULES = ContractRules()
FIRST = SessionId("b0000000-0000-4000-8000-000000000001")
SECOND = SessionId("a0000000-0000-4000-8000-000000000002")
WORKER = AgentId("a1")
CWD = "/project"
_HOUR = 3_600_000
_MAX_ENTRIES = 1_000
_AT = 1_700_000_000_000
_SECRET = "sk-ant-api03-" + "s" * 90


def make_entry(text: str, *, after: str | None = None) -> TranscriptMessageEntry:
    parent = None if after is None else EntryId(f"entry-{after}")
    return TranscriptMessageEntry(
        id=EntryId(f"entry-{text}"), parent=parent, at=_AT, message=user_message(text)
    )


def make_entries_of_all_kinds() -> tuple[TranscriptEntry, ...]:
    first, second, third, fourth, fifth = (EntryId(f"entry-{number}") for number in range(1, 6))
    call = ToolUseBlock(id="c1", name="Read", input={"path": "ü", "lines": [1, 2.5, None]})
    billing = ModelReplyMetadata(
        message_id="m",
        model="big",
        stop_reason="tool_use",
        usage=Usage(input_tokens=100, output_tokens=10),
        request=RequestId("req-1"),
    )
    surrogate = user_message("a name \udcff that is not UTF-8")
    return (
        TranscriptMessageEntry(id=first, parent=None, at=_AT, message=surrogate, meta=True, delivered="i1"),
        TranscriptMessageEntry(
            id=second,
            parent=first,
            at=_AT,
            message=Message(role="assistant", content=(call,)),
            billing=billing,
        ),
        TranscriptCompactionMarker(id=third, before=second, at=_AT, trigger="auto", tokens_before=7),
        TranscriptRewindMarker(id=fourth, parent=first, at=_AT, turn=2),
        TranscriptMessageEntry(
            id=fifth, parent=fourth, at=_AT, message=user_message("the summary"), summary=True
        ),
    )


class NoteReplay:
    """Texts of the notes in a journal."""

    snapshot_name: ClassVar[str] = "contract-notes"
    snapshot_modules: ClassVar[tuple[str, ...]] = (__name__, *EVENT_MODULES)

    def __init__(self) -> None:
        self.texts: list[str] = []

    def apply_record(self, record: JournalRecord) -> None:
        if isinstance(record.event, NoteAdded):
            self.texts.append(record.event.text)


def append_text(session: SessionStore, text: str, agent: AgentId = LEAD_ID) -> None:
    transcript = session.open_transcript(agent, cwd=CWD, version="0")
    transcript.append(make_entry(text))
    transcript.close()


def create_used_session(store: Store, session: SessionId, *, cwd: str = CWD) -> SessionStore:
    created = store.create_session(session, cwd=cwd)
    append_text(created, "hello")
    return created


def read_entry_ids(session: SessionStore, agent: AgentId = LEAD_ID) -> list[Any]:
    return [json.loads(line)["uuid"] for line in session.read_transcript(agent).splitlines()]


def open_journal(session: SessionStore) -> Journal:
    return session.open_journal(SystemClock(), secrets=KEY_SHAPE_REDACTOR)


def append_notes(journal: Journal, *texts: str) -> None:
    for text in texts:
        journal.append(NoteAdded(agent=LEAD_ID, text=text))


def read_notes(journal: Journal, offset: int = 0) -> list[str]:
    return [each.event.text for each in journal.read_records(offset) if isinstance(each.event, NoteAdded)]


@RULES.add_rule()
async def transcript_entry_is_stored_when_append_returns(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        session = store.create_session(FIRST, cwd=CWD)
        transcript = session.open_transcript(LEAD_ID, cwd=CWD, version="0")
        for text, after in (("one", None), ("two", "one")):
            transcript.append(make_entry(text, after=after))
            assert read_entry_ids(other.find_session(FIRST))[-1] == f"entry-{text}"
        transcript.close()
        append_text(other.find_session(FIRST), "three")
        assert read_entry_ids(session) == ["entry-one", "entry-two", "entry-three"]


@RULES.add_rule()
async def transcript_returns_all_kinds_of_entries_after_it_is_closed(open_store: StoreOpener[Store]) -> None:
    async with open_store() as store:
        session = store.create_session(FIRST, cwd=CWD)
        transcript = session.open_transcript(WORKER, cwd=CWD, version="0")
        for entry in make_entries_of_all_kinds():
            transcript.append(entry)
        before = session.read_transcript(WORKER)
        transcript.close()
        assert session.read_transcript(WORKER) == before
        lines = [json.loads(line) for line in before.splitlines()]
        assert [line["uuid"] for line in lines] == [f"entry-{number}" for number in range(1, 6)]
        assert lines[0]["message"]["content"][0]["text"] == "a name \udcff that is not UTF-8"
        assert (lines[1]["requestId"], lines[1]["message"]["usage"]["input_tokens"]) == ("req-1", 100)
        assert lines[1]["message"]["content"][0]["input"] == {"path": "ü", "lines": [1, 2.5, None]}
        assert [line.get("subtype") for line in lines[2:4]] == ["compact_boundary", "shoal_rewind"]
        assert {line["cwd"] for line in lines} == {CWD}


@RULES.add_rule()
async def conversation_is_restored_from_its_transcript(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        session = store.create_session(FIRST, cwd=CWD)
        expect_raised(lambda: session.restore_conversation(LEAD_ID), SessionNotFound)
        prompt, call, compaction, _, summary = make_entries_of_all_kinds()
        for agent in (LEAD_ID, WORKER):
            transcript = session.open_transcript(agent, cwd=CWD, version="0")
            transcript.append(prompt)
            transcript.append(call)
            restored = other.find_session(FIRST).restore_conversation(agent)
            assert [each.role for each in restored.messages] == ["user", "assistant"]
            assert (restored.last, restored.model, restored.cwd) == ("entry-2", "big", CWD)
            assert (restored.usage.input_tokens, restored.delivered) == (100, frozenset({"i1"}))
            assert restored.interrupted is not None  # the call has no result
            transcript.append(compaction)
            transcript.append(summary)
            transcript.close()
            restored = other.find_session(FIRST).restore_conversation(agent)
            assert [each.text for each in restored.messages] == ["the summary"]
            assert (restored.last, restored.usage.input_tokens) == ("entry-5", 100)


@RULES.add_rule()
async def title_names_the_session_from_the_next_entry_on(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        session = create_used_session(store, FIRST)
        transcript = session.open_transcript(LEAD_ID, cwd=CWD, version="0", title="Boats")
        transcript.append(make_entry("one"))
        assert other.find_session("Boats").session == FIRST
        transcript.set_title("Ships")
        transcript.append(make_entry("two"))
        transcript.close()
        assert other.find_session("Ships").session == FIRST
        expect_raised(lambda: other.find_session("Boats"), SessionNotFound)


@RULES.add_rule()
async def session_that_is_closed_properly_is_not_damaged(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        session = store.create_session(FIRST, cwd=CWD)
        session.acquire_lock()
        append_text(session, "hello")
        append_text(session, "work", WORKER)
        session.save_agent_metadata(WORKER, SubagentMetadata(agent_type="Explore"))
        journal = open_journal(session)
        append_notes(journal, "1")
        journal.close()
        session.release_lock()
        assert other.find_session(FIRST).report_damaged_files(now=SystemClock().now()) == ()


@RULES.add_rule()
async def handles_of_a_store_have_the_same_address(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        assert store.url == other.url
        assert store.url is None or ":" in store.url


@RULES.add_rule()
async def sessions_are_listed_with_the_most_recently_used_first(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        first = create_used_session(store, FIRST)
        titled = store.create_session(SECOND, cwd="/elsewhere")
        transcript = titled.open_transcript(LEAD_ID, cwd="/elsewhere", version="0", title="Boats")
        transcript.append(make_entry("build a boat"))
        transcript.close()
        store.create_session(SessionId("c0000000-0000-4000-8000-000000000003"), cwd=CWD)
        assert [(each.session, each.prompt) for each in other.list_sessions(None)] == [
            (SECOND, "Boats"),
            (FIRST, "hello"),
        ]
        for number in range(_MAX_ENTRIES):  # the clock of a file system moves in steps of milliseconds
            append_text(first, f"more {number}")
            if [each.session for each in other.list_sessions(None, limit=1)] == [FIRST]:
                break
        else:
            raise AssertionError("the session that was used last is not the first")
        (listed,) = other.list_sessions(CWD)
        assert (listed.session, listed.size) == (FIRST, len(first.read_transcript(LEAD_ID)))
        assert abs(listed.at - SystemClock().now()) < _HOUR
        assert listed.path == first.get_transcript_path(LEAD_ID)
        assert other.list_sessions("/nowhere") == ()


@RULES.add_rule()
async def transcript_begins_with_its_first_entry(open_store: StoreOpener[Store]) -> None:
    async with open_store() as store:
        session = create_used_session(store, FIRST)
        session.open_transcript(WORKER, cwd=CWD, version="0").close()
        assert not session.has_transcript(WORKER)
        expect_raised(lambda: session.read_transcript(WORKER), SessionNotFound)
        append_text(session, "work", WORKER)
        assert session.has_transcript(WORKER)


@RULES.add_rule()
async def transcripts_of_agents_are_separate(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        session = create_used_session(store, FIRST)
        append_text(session, "work", WORKER)
        append_text(create_used_session(store, SECOND), "elsewhere", WORKER)
        assert read_entry_ids(other.find_session(FIRST)) == ["entry-hello"]
        assert read_entry_ids(other.find_session(FIRST), WORKER) == ["entry-work"]


@RULES.add_rule()
async def agent_metadata_is_replaced_as_a_whole(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        session = create_used_session(store, FIRST)
        assert session.read_agent_metadata(WORKER) is None
        for metadata in (
            SubagentMetadata(
                agent_type="Explore",
                tools=("Read",),
                origin=SubagentOrigin(depth=2),
                restrictions=SubagentRestrictions(narrowed=(("Bash", "git *"),)),
            ),
            SubagentMetadata(agent_type="Plan", mode="plan"),
        ):
            session.save_agent_metadata(WORKER, metadata)
            assert other.find_session(FIRST).read_agent_metadata(WORKER) == metadata
        assert session.read_agent_metadata(AgentId("a2")) is None
        assert not session.has_transcript(WORKER)


@RULES.add_rule()
async def permission_mode_replaces_only_that_of_the_metadata(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        session = create_used_session(store, FIRST)
        expect_raised(lambda: session.save_agent_mode(WORKER, "default"), SessionNotFound)
        session.save_agent_metadata(
            WORKER,
            SubagentMetadata(
                agent_type="Explore", mode="plan", restrictions=SubagentRestrictions(denied=("Bash",))
            ),
        )
        session.save_agent_mode(WORKER, "default")
        assert other.find_session(FIRST).read_agent_metadata(WORKER) == SubagentMetadata(
            agent_type="Explore", mode="default", restrictions=SubagentRestrictions(denied=("Bash",))
        )


@RULES.add_rule()
async def journal_keeps_events_in_order(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        journal = open_journal(create_used_session(store, FIRST))
        assert list(journal.read_records()) == []
        append_notes(journal, "1", "2", "3")
        records = list(open_journal(other.find_session(FIRST)).read_records())
        assert [each.event for each in records] == [NoteAdded(agent=LEAD_ID, text=text) for text in "123"]
        assert [each.offset for each in records] == [0, records[0].next, records[1].next]
        assert journal.get_position() == records[2].next
        assert all(each.at > 1_700_000_000_000 for each in records)
        journal.close()


@RULES.add_rule()
async def journal_is_read_from_an_offset(open_store: StoreOpener[Store]) -> None:
    async with open_store() as store:
        journal = open_journal(create_used_session(store, FIRST))
        append_notes(journal, "1", "2")
        position = journal.get_position()
        assert read_notes(journal, position) == []
        append_notes(journal, "3", "4")
        assert read_notes(journal, position) == ["3", "4"]
        journal.close()


@RULES.add_rule()
async def events_that_are_appended_together_keep_their_order(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        journal = open_journal(create_used_session(store, FIRST))
        append_notes(journal, "0")
        journal.append_all([NoteAdded(agent=LEAD_ID, text=text) for text in ("1", "2", f"3 {_SECRET}")])
        append_notes(journal, "4")
        second_journal = open_journal(other.find_session(FIRST))
        texts = read_notes(second_journal)
        assert [text[:1] for text in texts] == ["0", "1", "2", "3", "4"]
        assert _SECRET not in texts[3]
        records = list(second_journal.read_records())
        assert [each.offset for each in records] == [0, *(each.next for each in records[:-1])]
        assert journal.get_position() == records[-1].next
        journal.append_all([])
        assert journal.get_position() == records[-1].next
        journal.close()
        second_journal.close()


@RULES.add_rule()
async def journal_of_several_writers_loses_no_event(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        journal = open_journal(create_used_session(store, FIRST))
        second_journal = open_journal(other.find_session(FIRST))
        for number in range(20):
            append_notes(second_journal if number % 2 else journal, str(number))
        assert read_notes(journal) == read_notes(second_journal) == [str(number) for number in range(20)]
        journal.close()
        second_journal.close()


@RULES.add_rule()
async def replay_applies_all_events_in_their_order(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        journal = open_journal(create_used_session(store, FIRST))
        sizes: list[int] = []
        journal.add_growth_listener(sizes.append)
        problems: list[str] = []
        for numbers in (range(0), range(3), range(3, 300)):
            append_notes(journal, *map(str, numbers))
            for reader in (journal, open_journal(other.find_session(FIRST))):
                replayed = reader.replay(NoteReplay, report_problem=problems.append)
                assert replayed.texts == list(map(str, range(numbers.stop)))
        assert problems == []
        assert sizes == sorted(sizes)
        assert all(size <= journal.get_position() for size in sizes)
        journal.close()


@RULES.add_rule()
async def journal_of_one_session_is_its_own(open_store: StoreOpener[Store]) -> None:
    async with open_store() as store:
        journal = open_journal(create_used_session(store, FIRST))
        append_notes(journal, "mine")
        assert read_notes(open_journal(create_used_session(store, SECOND))) == []
        journal.close()


@RULES.add_rule()
async def secrets_do_not_enter_the_journal(open_store: StoreOpener[Store]) -> None:
    async with open_store() as store:
        journal = open_journal(create_used_session(store, FIRST))
        append_notes(journal, f"the key is {_SECRET}")
        (text,) = read_notes(journal)
        assert text.startswith("the key is ")
        assert _SECRET not in text
        journal.close()


@RULES.add_rule()
async def results_with_one_name_do_not_overwrite_each_other(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        session = create_used_session(store, FIRST)
        paths = [session.open_results().save_result("report.md", b"1")]
        paths.append(other.find_session(FIRST).open_results().save_result("report.md", b"2"))
        assert [path.read_bytes() for path in paths] == [b"1", b"2"]


@RULES.add_rule()
async def results_stay_in_the_directory_of_their_session(open_store: StoreOpener[Store]) -> None:
    async with open_store() as store:
        session = create_used_session(store, FIRST)
        for name in ("../../out", "/etc/passwd", "", "a/b"):
            path = session.open_results().save_result(name, b"kept")
            assert path.read_bytes() == b"kept"
            assert path.parent == session.directory / "results"


@RULES.add_rule("HOM-05")
async def session_has_one_writer_at_a_time(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        session = create_used_session(store, FIRST)
        session.acquire_lock()
        again = other.find_session(FIRST)
        assert FIRST in expect_raised(again.acquire_lock, StateFileError)
        another = create_used_session(store, SECOND)
        another.acquire_lock()
        session.release_lock()
        again.acquire_lock()
        again.release_lock()
        another.release_lock()


@RULES.add_rule()
async def unused_session_can_be_created_again(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        session = store.create_session(FIRST, cwd=CWD)
        session.acquire_lock()
        session.release_lock(unused=True)
        expect_raised(lambda: other.find_session(FIRST), SessionNotFound)
        create_used_session(other, FIRST)


@RULES.add_rule()
async def session_id_is_used_once(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        create_used_session(store, FIRST)
        assert FIRST in expect_raised(lambda: other.create_session(FIRST, cwd="/else"), StateFileError)


@RULES.add_rule()
async def session_is_found_by_the_start_of_its_id(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        for session in (FIRST, SECOND, SessionId(f"{FIRST[:-1]}9")):
            create_used_session(store, session)
        assert other.find_session("a0").session == SECOND
        assert other.find_session(FIRST).session == FIRST
        for name in ("b0", "c", ""):
            expect_raised(lambda name=name: other.find_session(name), SessionNotFound)  # type: ignore[misc]


@RULES.add_rule()
async def last_used_session_of_a_directory_is_continued(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        expect_raised(lambda: other.find_latest_session(CWD), SessionNotFound)
        create_used_session(store, FIRST)
        create_used_session(store, SECOND)
        create_used_session(store, SessionId(f"{SECOND[:-1]}0"), cwd="/else")
        assert other.find_latest_session(CWD).session == SECOND


@RULES.add_rule()
async def fork_leaves_its_source_unchanged(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        source = create_used_session(store, FIRST)
        fork = store.fork_session(source, SECOND, cwd="/else")
        append_text(fork, "more")
        assert read_entry_ids(other.find_session(FIRST)) == ["entry-hello"]
        assert read_entry_ids(other.find_session(SECOND)) == ["entry-hello", "entry-more"]
        assert FIRST.encode() not in other.find_session(SECOND).read_transcript(LEAD_ID)
        expect_raised(lambda: store.fork_session(source, SECOND, cwd="/else"), StateFileError)
