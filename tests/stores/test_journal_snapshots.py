"""Snapshots of journals and conversations: bounded reading, and no trust in what is damaged or foreign."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.large_home import LargeHome, write_large_home
from tests.plugins.old_home import EVERYTHING, unpack_home

from shoal.app.config.journal_recovery import SessionRecoveryState
from shoal.app.run_access.run_facts import JournaledRunSummary
from shoal.app.run_access.run_handle import RunStartState
from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.app.run_view.run_view import RunView
from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import user_message
from shoal.core.conversation.restored_conversation import RestoredConversation
from shoal.core.conversation.transcript_entries import TranscriptMessageEntry, TranscriptRewindMarker
from shoal.core.events import ModelRequestSettled, NoteAdded
from shoal.core.ids import LEAD_ID, EntryId, RequestId
from shoal.core.ports import JournalState
from shoal.stores.files.home.home_paths import get_journal_path
from shoal.stores.files.sessions import journal_snapshots
from shoal.stores.files.sessions.conversation_snapshots import restore_stored_conversation
from shoal.stores.files.sessions.file_journal import read_journal
from shoal.stores.files.sessions.journal_snapshots import (
    SAVE_AFTER,
    get_snapshot_path,
    hash_state_code,
    load_journal_state,
    read_snapshot,
    update_journal_snapshots,
    write_snapshot,
)
from shoal.stores.files.sessions.usage_summary import RunUsageState, summarize_journal_usage
from shoal.stores.journal_records import replay_records
from shoal.stores.restored_conversation import restore_transcript
from shoal.wire.journal_codec import encode_journal_line
from shoal.wire.transcript_codec import TranscriptEncoder

KINDS: tuple[type[JournalState], ...] = (
    RunUsageState,
    RunViewAgentsState,
    RunView,
    SessionRecoveryState,
    RunStartState,
    JournaledRunSummary,
)
SIZE = SAVE_AFTER + (1 << 20)


def count_bytes_read(work: Callable[[], object]) -> int:
    """Return the number of bytes that this process reads from files while it works."""
    before = _read_io_counter()
    work()
    return _read_io_counter() - before


def _read_io_counter() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> LargeHome:
    return write_large_home(tmp_path_factory.mktemp("large"), tasks=200, journal_size=SIZE)


@pytest.fixture
def journal(large: LargeHome, tmp_path: Path) -> Path:
    copy = tmp_path / "journal.jsonl"
    copy.write_bytes(large.journal.read_bytes())
    return copy


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.snapshot_name)
def test_a_second_reader_reads_only_the_snapshot_and_the_new_events(
    journal: Path, kind: type[JournalState]
) -> None:
    load_journal_state(journal, kind)
    with journal.open("ab") as file:
        file.write(encode_journal_line(NoteAdded(agent=LEAD_ID, text="later"), 1))
    found = []
    size = count_bytes_read(lambda: found.append(load_journal_state(journal, kind)))
    assert size < journal.stat().st_size / 4
    assert found[0][1] == journal.stat().st_size


def test_the_cost_is_the_same_with_and_without_a_snapshot(journal: Path) -> None:
    load_journal_state(journal, RunUsageState)
    settled = ModelRequestSettled(
        agent=LEAD_ID,
        request=RequestId("r"),
        model="m",
        usage=Usage(input_tokens=7),
        cost_usd=1.0,
        duration_ms=1,
    )
    with journal.open("ab") as file:
        file.write(encode_journal_line(settled, 1))
    with_snapshot = summarize_journal_usage(journal)
    get_snapshot_path(journal, "usage").unlink()
    assert with_snapshot == summarize_journal_usage(journal)


def test_a_view_continued_from_a_snapshot_is_the_view_of_all_events(journal: Path) -> None:
    complete = replay_records(RunView, read_journal(journal))
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-400]))
    load_journal_state(journal, RunView)
    with journal.open("ab") as file:
        file.writelines(lines[-400:])
    assert get_snapshot_path(journal, "view").exists()
    continued, _ = load_journal_state(journal, RunView)
    assert continued.get_delta_since(0) == complete.get_delta_since(0)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.snapshot_name)
def test_a_snapshot_can_hold_every_event(tmp_path: Path, kind: type[JournalState]) -> None:
    """A class that the reader does not expect would make every snapshot useless without a word."""
    old = unpack_home(tmp_path)
    journal = get_journal_path(old.home, EVERYTHING)  # type: ignore[arg-type]
    state = replay_records(kind, read_journal(journal))
    write_snapshot(tmp_path / "snapshot", journal, state, journal.stat().st_size)
    found = read_snapshot(tmp_path / "snapshot", journal, kind)
    assert found is not None
    if isinstance(state, RunView):
        assert found[0].get_delta_since(0) == state.get_delta_since(0)  # type: ignore[attr-defined]


def _truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _flip_one_bit(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "damage", [_truncate, _flip_one_bit, lambda _: b"", lambda _: b"\0" * 5000, lambda c: c[100:]]
)
def test_a_damaged_snapshot_is_rebuilt(journal: Path, damage: Callable[[bytes], bytes]) -> None:
    expected = summarize_journal_usage(journal)
    path = get_snapshot_path(journal, "usage")
    content = path.read_bytes()
    path.write_bytes(damage(content))
    assert read_snapshot(path, journal, RunUsageState) is None
    assert summarize_journal_usage(journal) == expected
    assert read_snapshot(path, journal, RunUsageState) is not None


def test_a_snapshot_of_another_or_a_shorter_journal_is_ignored(journal: Path) -> None:
    load_journal_state(journal, RunUsageState)
    path, content = get_snapshot_path(journal, "usage"), journal.read_bytes()
    journal.write_bytes(content.replace(b"session_started", b"session_begunnn"))
    assert read_snapshot(path, journal, RunUsageState) is None
    journal.write_bytes(content[: len(content) // 2])
    assert read_snapshot(path, journal, RunUsageState) is None


def test_a_snapshot_of_other_code_is_ignored(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version may compute another state from the same records."""
    load_journal_state(journal, RunUsageState)
    path = get_snapshot_path(journal, "usage")
    assert read_snapshot(path, journal, RunUsageState) is not None
    monkeypatch.setattr(RunUsageState, "apply_record", lambda self, record: None)
    hash_state_code.cache_clear()
    assert read_snapshot(path, journal, RunUsageState) is None
    hash_state_code.cache_clear()


class _Attack:
    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self._command,)


def test_a_snapshot_cannot_run_code(journal: Path, tmp_path: Path) -> None:
    state = load_journal_state(journal, RunUsageState)[0]
    proof, path = tmp_path / "proof", get_snapshot_path(journal, "usage")
    state._workers["x"] = _Attack(f"touch {proof}")  # type: ignore[index, assignment]
    write_snapshot(path, journal, state, journal.stat().st_size)
    assert read_snapshot(path, journal, RunUsageState) is None
    assert not proof.exists()


def test_a_writer_that_is_killed_leaves_the_old_snapshot(journal: Path) -> None:
    load_journal_state(journal, RunUsageState)
    path = get_snapshot_path(journal, "usage")
    before = path.read_bytes()
    if not (pid := os.fork()):
        # The rename is the last step; the process dies before it.
        os.replace = os.rename = lambda *_: os._exit(9)  # type: ignore[assignment]
        write_snapshot(path, journal, RunUsageState(), journal.stat().st_size)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert path.read_bytes() == before
    (abandoned,) = path.parent.glob(".snapshot-usage.tmp.*")
    write_snapshot(path, journal, RunUsageState(), journal.stat().st_size)
    assert abandoned.exists(), "its writer may still be at work"
    os.utime(abandoned, (0, 0))
    write_snapshot(path, journal, RunUsageState(), journal.stat().st_size)
    assert not abandoned.exists()


@pytest.mark.slow
def test_one_pass_renews_all_snapshots(journal: Path) -> None:
    load_journal_state(journal, RunViewAgentsState)
    update_journal_snapshots(journal, KINDS)
    for kind in KINDS:
        found = read_snapshot(get_snapshot_path(journal, kind.snapshot_name), journal, kind)
        assert found is not None
        assert found[1] == journal.stat().st_size
    view = read_snapshot(get_snapshot_path(journal, "view"), journal, RunView)
    assert view is not None
    assert view[0].get_delta_since(0) == replay_records(RunView, read_journal(journal)).get_delta_since(0)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_garbage_collection_is_as_before_after_a_snapshot(tmp_path: Path, is_enabled: bool) -> None:
    journal, path = tmp_path / "journal.jsonl", tmp_path / "snapshot"
    journal.write_bytes(encode_journal_line(NoteAdded(agent=LEAD_ID, text="one"), 1))
    if not is_enabled:
        gc.disable()
    try:
        write_snapshot(path, journal, RunUsageState(), journal.stat().st_size)
        assert gc.isenabled() is is_enabled
        assert read_snapshot(path, journal, RunUsageState) is not None
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()


class OffsetsState:
    """The offsets of the records that it got."""

    snapshot_name = "offsets"
    snapshot_modules = (__name__,)

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def apply_record(self, record: Any) -> None:
        self.offsets.append(record.offset)


class LaterOffsetsState(OffsetsState):
    snapshot_name = "later"


class LastOffsetsState(OffsetsState):
    snapshot_name = "last"


@pytest.mark.parametrize("missing", range(3))
def test_snapshots_of_different_ages_are_renewed_from_the_records_that_each_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    monkeypatch.setattr(journal_snapshots, "SAVE_AFTER", 1)
    kinds = (OffsetsState, LaterOffsetsState, LastOffsetsState)
    journal = tmp_path / "journal.jsonl"
    lines = [encode_journal_line(NoteAdded(agent=LEAD_ID, text=str(number)), 1) for number in range(8)]
    for number, kind in enumerate(kinds):
        if number != missing:
            journal.write_bytes(b"".join(lines[: 2 * (number + 1)]))
            load_journal_state(journal, kind)
    journal.write_bytes(b"".join(lines))
    update_journal_snapshots(journal, kinds)
    offsets = [record.offset for record in read_journal(journal)]
    assert len(offsets) == len(lines)
    for kind in kinds:
        found = read_snapshot(get_snapshot_path(journal, kind.snapshot_name), journal, kind)
        assert found is not None
        assert (found[0].offsets, found[1]) == (offsets, journal.stat().st_size)


def assert_same_conversation(found: RestoredConversation, expected: RestoredConversation) -> None:
    for field in RestoredConversation.__struct_fields__:
        if field != "answered":
            assert getattr(found, field) == getattr(expected, field), field
    assert all(call in found.answered for call in expected.answered)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def long_conversation(tmp_path_factory: pytest.TempPathFactory) -> LargeHome:
    return write_large_home(tmp_path_factory.mktemp("long"), tasks=1, transcript_size=3 * SIZE)


def test_a_long_conversation_is_read_from_its_last_compaction(
    long_conversation: LargeHome, tmp_path: Path
) -> None:
    transcript, snapshot = long_conversation.transcript, tmp_path / "snapshot"
    expected = restore_transcript(transcript.read_bytes())
    assert_same_conversation(restore_stored_conversation(transcript, snapshot, ""), expected)
    found: list[RestoredConversation] = []
    size = count_bytes_read(lambda: found.append(restore_stored_conversation(transcript, snapshot, "")))
    assert size < transcript.stat().st_size / 4
    assert_same_conversation(found[0], expected)
    assert "toolu_0_0" in found[0].answered
    assert "toolu_0_x" not in found[0].answered


def test_a_conversation_rewound_to_before_a_compaction_is_restored(
    long_conversation: LargeHome, tmp_path: Path
) -> None:
    transcript, snapshot = tmp_path / "transcript.jsonl", tmp_path / "snapshot"
    transcript.write_bytes(long_conversation.transcript.read_bytes())
    restore_stored_conversation(transcript, snapshot, "")
    encoder = TranscriptEncoder(session=long_conversation.session, cwd="/project", version="1")
    rewind = TranscriptRewindMarker(id=EntryId("rewind"), parent=EntryId("entry-1-last"), at=1, turn=3)
    prompt = TranscriptMessageEntry(
        id=EntryId("prompt"), parent=rewind.id, at=1, message=user_message("Something else.")
    )
    with transcript.open("ab") as file:
        file.write(encoder.encode_entry(rewind) + encoder.encode_entry(prompt))
    found = restore_stored_conversation(transcript, snapshot, "")
    assert_same_conversation(found, restore_transcript(transcript.read_bytes()))
    assert found.messages[-1].text == "Something else."


def test_a_torn_last_line_of_a_long_conversation_is_noted(
    long_conversation: LargeHome, tmp_path: Path
) -> None:
    transcript, snapshot = tmp_path / "transcript.jsonl", tmp_path / "snapshot"
    content = long_conversation.transcript.read_bytes()
    transcript.write_bytes(content + b'not json\n{"half')
    expected = restore_transcript(transcript.read_bytes())
    assert len(expected.notes) == 2
    for _ in range(2):
        assert_same_conversation(restore_stored_conversation(transcript, snapshot, ""), expected)


def test_every_table_of_the_view_may_be_in_its_snapshot() -> None:
    """A new table whose module is missing would make the snapshots of runs that use it unreadable."""
    package = Path(str(sys.modules[RunView.__module__].__file__)).parent
    modules = {f"shoal.app.run_view.{path.stem}" for path in package.glob("*_table.py")}
    assert modules <= set(RunView.snapshot_modules)
