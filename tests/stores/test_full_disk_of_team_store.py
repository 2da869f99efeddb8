"""A full disk raises an error with the path and leaves no partial file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_helpers import FixedClock, limit_file_size, make_member

from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.locks.pid_locks import SessionLock, is_session_running
from shoal.stores.files.locks.process_leases import ProcessLease
from shoal.stores.files.teams.file_roster_store import FileRosterStore


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DirectoryHandle]:
    with DirectoryHandle.open_root(tmp_path / "d") as handle:
        yield handle


@pytest.mark.parametrize("method", ["replace_file", "create_file_if_missing"])
def test_a_file_that_does_not_fit_leaves_no_partial_file(directory: DirectoryHandle, method: str):
    with limit_file_size(10), pytest.raises(StateFileError, match="Cannot write"):
        getattr(directory, method)("file", b"x" * 100)
    assert directory.list_names() == []


def test_a_lease_that_cannot_be_written_is_not_created(directory: DirectoryHandle):
    with limit_file_size(), pytest.raises(StateFileError, match="Cannot write"):
        ProcessLease(directory)
    assert directory.list_names() == []


def test_a_session_whose_lock_cannot_be_written_is_not_locked(home: Path):
    session = SessionId("s-1")
    with limit_file_size(), pytest.raises(StateFileError, match=r"Cannot write .*lock"):
        SessionLock(home, session)
    assert not is_session_running(home, session)
    SessionLock(home, session).release()


async def test_a_member_that_cannot_be_written_does_not_join(home: Path, clock: FixedClock):
    rosters = FileRosterStore(home, clock=clock)
    alice = make_member()
    await rosters.create_team("roof", lead=alice, session="s-1", description=None)
    with limit_file_size(), pytest.raises(StateFileError, match="Cannot write"):
        await rosters.add_member("roof", alice)
    team = await rosters.read_team_roster("roof")
    assert [member.name for member in team.members] == ["team-lead"]
    assert (await rosters.add_member("roof", alice)).color == "blue"


async def test_a_change_of_a_roster_without_room_for_its_copy_is_stored(
    home: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
):
    rosters = FileRosterStore(home, clock=clock)
    alice = make_member()
    await rosters.create_team("roof", lead=alice, session="s-1", description=None)
    copy = home / "shoal" / "teams" / "roof" / "roster.copy"
    write = os.write

    def write_unless_copy(fd: int, content: bytes) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink() == copy:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, content)

    with monkeypatch.context() as full:
        full.setattr(os, "write", write_unless_copy)
        await rosters.add_member("roof", alice)
    team = await rosters.read_team_roster("roof")
    assert [member.name for member in team.members] == ["team-lead", "alice"]
    await rosters.set_active_members("roof", {"alice": False})
    assert b'"alice"' in copy.read_bytes()
