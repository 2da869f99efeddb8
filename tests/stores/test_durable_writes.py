"""Durable stores return only when their content is on the disk, also where Python has no fdatasync."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from mail_helpers import create_mailboxes, get_inbox_path, make_mail, take_all_mail
from store_helpers import FixedClock, TranscriptWriter

from shoal.core.agents.identity import LEAD_ID
from shoal.core.errors import StateFileError
from shoal.core.events import NoteAdded
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.home.credential_file import get_credentials_path, store_provider_credentials
from shoal.stores.files.home.home_paths import (
    create_file_atomically,
    make_private_directory,
    open_private_file,
    write_file_atomically,
)
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.stores.files.sessions.file_transcript import FileTranscript
from shoal.stores.files.teams.team_keys import KEY_SIZE, load_or_create_team_mail_key


class SyncRecorder:
    """Records the size of each file when it is flushed, and flushed directories, in order."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, int]] = []
        self.directories: list[int] = []

    def record_sync(self, fd: int) -> None:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            self.directories.append(found.st_ino)
        else:
            self.sizes.append((found.st_ino, found.st_size))

    def has_flushed(self, path: Path) -> bool:
        """Return True if the file was flushed with all of its present content."""
        found = path.stat()
        return (found.st_ino, found.st_size) in self.sizes


@pytest.fixture(params=["fdatasync", "fsync"])
def sync_recorder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncRecorder]:
    recorder = SyncRecorder()
    monkeypatch.setattr(os, "fsync", recorder.record_sync)
    if request.param == "fsync":
        monkeypatch.delattr(os, "fdatasync", raising=False)
    else:
        monkeypatch.setattr(os, "fdatasync", recorder.record_sync, raising=False)
    yield recorder
    monkeypatch.undo()


@pytest.fixture(params=["fdatasync", "fsync"])
def failing_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A disk that takes content and cannot keep it while the list has an error number."""
    errors: list[int] = []

    def sync(_: int) -> None:
        if errors:
            raise OSError(errors[0], os.strerror(errors[0]))

    monkeypatch.setattr(os, "fsync", sync)
    if request.param == "fsync":
        monkeypatch.delattr(os, "fdatasync", raising=False)
    else:
        monkeypatch.setattr(os, "fdatasync", sync, raising=False)
    yield errors
    monkeypatch.undo()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_transcript_entry_that_does_not_reach_the_disk_is_an_error_and_not_stored(
    home: Path, failing_disk: list[int], number: int
) -> None:
    written = TranscriptWriter(home)
    written.transcript = FileTranscript(written.path, written.lines, durable=True)
    written.append_prompt("one")
    before = written.path.read_bytes()
    failing_disk.append(number)
    with pytest.raises(StateFileError, match=os.strerror(number)):
        written.append_prompt("two")
    assert written.path.read_bytes() == before
    failing_disk.clear()
    written.append_prompt("three")
    assert written.path.read_bytes().count(b"\n") == before.count(b"\n") + 1


def test_a_journal_event_that_does_not_reach_the_disk_is_an_error(
    tmp_path: Path, clock: FixedClock, failing_disk: list[int]
) -> None:
    journal = FileJournal(tmp_path / "journal.jsonl", clock, durable=True)
    journal.append(NoteAdded(agent=LEAD_ID, text="one"))
    failing_disk.append(errno.EIO)
    with pytest.raises(StateFileError, match=os.strerror(errno.EIO)):
        journal.append(NoteAdded(agent=LEAD_ID, text="two"))
    journal.close()


async def test_mail_that_does_not_reach_the_disk_is_an_error_and_not_delivered(
    home: Path, failing_disk: list[int]
) -> None:
    async with aclosing(create_mailboxes(home, durable=True)) as mail:
        await mail.open_inbox("ann")
        failing_disk.append(errno.EIO)
        with pytest.raises(StateFileError, match=os.strerror(errno.EIO)):
            await mail.post("ann", make_mail("lost"))
        failing_disk.clear()
        await mail.post("ann", make_mail("kept"))
        assert [each.text for each in await take_all_mail(mail)] == ["kept"]


def test_a_file_that_does_not_reach_the_disk_is_an_error_and_keeps_its_old_content(
    tmp_path: Path, failing_disk: list[int]
) -> None:
    path = tmp_path / "state.json"
    write_file_atomically(path, b"old", durable=True)
    failing_disk.append(errno.EIO)
    with pytest.raises(StateFileError, match=os.strerror(errno.EIO)):
        write_file_atomically(path, b"new", durable=True)
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("durable", [True, False])
def test_a_journal_event_is_flushed_only_where_it_must_be_durable(
    tmp_path: Path, clock: FixedClock, sync_recorder: SyncRecorder, durable: bool
) -> None:
    journal = FileJournal(tmp_path / "journal.jsonl", clock, durable=durable)
    for text in ("one", "two"):
        journal.append(NoteAdded(agent=LEAD_ID, text=text))
        assert sync_recorder.has_flushed(journal.path) is durable
    journal.close()


@pytest.mark.parametrize("durable", [True, False])
def test_a_transcript_entry_is_flushed_only_where_it_must_be_durable(
    home: Path, sync_recorder: SyncRecorder, durable: bool
) -> None:
    written = TranscriptWriter(home)
    written.transcript = FileTranscript(written.path, written.lines, durable=durable)
    for text in ("one", "two"):
        written.append_prompt(text)
        assert sync_recorder.has_flushed(written.path) is durable


@pytest.mark.parametrize("durable", [True, False])
async def test_mail_and_its_directory_are_flushed_only_where_they_must_be_durable(
    home: Path, sync_recorder: SyncRecorder, durable: bool
) -> None:
    async with aclosing(create_mailboxes(home, durable=durable)) as mail:
        await mail.open_inbox("ann")
        inbox = get_inbox_path(home)
        for text in ("one", "two"):
            sync_recorder.directories.clear()
            await mail.post("ann", make_mail(text))
            assert sync_recorder.has_flushed(inbox) is durable
            assert (inbox.parent.stat().st_ino in sync_recorder.directories) is durable


@pytest.mark.parametrize("durable", [True, False])
async def test_mail_that_overflows_or_is_archived_is_flushed_only_where_it_must_be_durable(
    home: Path, sync_recorder: SyncRecorder, durable: bool
) -> None:
    async with aclosing(create_mailboxes(home, durable=durable)) as mail:
        await mail.open_inbox("ann")
        posted = [make_mail(f"{number} " + "x" * 200) for number in range(400)]
        for each in posted:
            await mail.post("ann", each)
        overflow = [path for path in home.rglob("*overflow*/*") if path.is_file() and path.stat().st_size]
        assert overflow
        assert {*map(sync_recorder.has_flushed, overflow)} == {durable}
        sync_recorder.sizes.clear()
        assert len(await take_all_mail(mail)) == len(posted)
        (emptied,) = [path for path in overflow if path.suffix == ".jsonl"]
        assert emptied.stat().st_size == 0
        assert sync_recorder.has_flushed(emptied) is durable
        archive = [path for path in home.rglob("*archive*/*") if path.is_file() and path.stat().st_size]
        assert archive
        assert {*map(sync_recorder.has_flushed, archive)} == {durable}
        assert bool(sync_recorder.sizes or sync_recorder.directories) is durable


@pytest.mark.parametrize("durable", [True, False])
def test_a_new_file_and_its_name_are_flushed_only_where_they_must_be_durable(
    tmp_path: Path, sync_recorder: SyncRecorder, durable: bool
) -> None:
    writes: dict[str, Callable[[Path], object]] = {
        "replaced": lambda path: write_file_atomically(path, b"1", durable=durable),
        "created": lambda path: create_file_atomically(path, b"1", durable=durable),
        "opened": lambda path: os.close(open_private_file(path, os.O_WRONLY | os.O_CREAT, durable=durable)),
        "directory": lambda path: make_private_directory(path, durable=durable),
    }
    for name, write in writes.items():
        for parent in (tmp_path, tmp_path / f"new {name}"):
            sync_recorder.directories.clear()
            write(parent / name)
            flushed = {tmp_path.stat().st_ino, parent.stat().st_ino} if durable else set()
            assert set(sync_recorder.directories) == flushed, (name, parent)
            if name in ("replaced", "created"):
                assert sync_recorder.has_flushed(parent / name) is durable, (name, parent)
    sync_recorder.directories.clear()
    os.close(open_private_file(tmp_path / "opened", os.O_RDONLY, durable=durable))
    assert not sync_recorder.directories


@pytest.mark.parametrize("durable", [True, False])
def test_a_changed_name_is_flushed_only_where_it_must_be_durable(
    tmp_path: Path, sync_recorder: SyncRecorder, durable: bool
) -> None:
    changes: dict[str, Callable[[DirectoryHandle], object]] = {
        "create": lambda top: top.create_file_if_missing("a", b"1"),
        "replace": lambda top: top.replace_file("a", b"2"),
        "move": lambda top: top.move_file("a", top, "b"),
        "link": lambda top: top.add_hard_link("b", "c"),
        "exchange": lambda top: top.swap_or_move_file("b", top, "c"),
        "move without an exchange": lambda top: top.swap_or_move_file("b", top, "d"),
        "empty file": lambda top: top.create_empty_file("e"),
        "first append": lambda top: os.close(top.open_file_for_append("f")),
        "first overwrite": lambda top: top.overwrite_file_in_place("g", b"1"),
        "subdirectory": lambda top: top.open_or_create("h").close(),
    }
    with DirectoryHandle.open_root(tmp_path, durable=durable) as top:
        for name, change in changes.items():
            sync_recorder.directories.clear()
            change(top)
            assert (tmp_path.stat().st_ino in sync_recorder.directories) is durable, name


def test_the_key_of_a_team_is_flushed_before_it_gets_its_name(
    home: Path, sync_recorder: SyncRecorder
) -> None:
    key = load_or_create_team_mail_key(home, "crew")
    (path,) = (path for path in home.rglob("crew") if path.is_file())
    assert path.read_bytes() == key
    assert sync_recorder.has_flushed(path)
    assert [size for _, size in sync_recorder.sizes] == [KEY_SIZE]


def test_credentials_are_flushed_before_they_replace_older_ones(
    home: Path, sync_recorder: SyncRecorder
) -> None:
    for key in ("one", "another"):
        store_provider_credentials(home, "anthropic", {"ANTHROPIC_API_KEY": key})
        path = get_credentials_path(home)
        assert sync_recorder.has_flushed(path)
        assert path.parent.stat().st_ino in sync_recorder.directories
        sync_recorder.directories.clear()
