"""A disk that takes no more: an error that says where, and nothing half made left behind."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from store_kit import StandingClock

from shoal.core.errors import StoreError
from shoal.core.ids import SessionId
from shoal.core.roster import Newcomer
from shoal.stores.files.handles import Directory
from shoal.stores.files.leases import Lease
from shoal.stores.files.locks import SessionLock, is_held
from shoal.stores.files.rosters import FileRosters


@contextmanager
def full_disk(room: int = 0) -> Iterator[None]:
    """No file can grow beyond so many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    with Directory.root(tmp_path / "d") as opened:
        yield opened


@pytest.mark.parametrize("how", ["replace", "create"])
def test_a_file_that_does_not_fit_leaves_no_part_of_it(directory: Directory, how: str):
    with full_disk(room=10), pytest.raises(StoreError, match="cannot be written"):
        getattr(directory, how)("file", b"x" * 100)
    assert directory.names() == []


def test_a_lease_that_cannot_be_written_is_none(directory: Directory):
    with full_disk(), pytest.raises(StoreError, match="cannot be written"):
        Lease(directory)
    assert directory.names() == []


def test_a_session_whose_lock_cannot_be_written_is_not_held(home: Path):
    session = SessionId("s-1")
    with full_disk(), pytest.raises(StoreError, match="lock cannot be written"):
        SessionLock(home, session)
    assert not is_held(home, session)
    SessionLock(home, session).release()


async def test_a_member_that_cannot_be_counted_does_not_join(home: Path, clock: StandingClock):
    rosters = FileRosters(home, clock=clock)
    alice = Newcomer(name="alice", agent_type="general", model="m", cwd="/w", prompt="Do it.")
    await rosters.create("roof", lead=alice, session="s-1", description=None)
    with full_disk(), pytest.raises(StoreError, match="cannot be written"):
        await rosters.join("roof", alice)
    team = await rosters.read("roof")
    assert [member.name for member in team.members] == ["team-lead"]
    assert (await rosters.join("roof", alice)).color == "blue"
