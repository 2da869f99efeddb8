"""Locks that name their holder: who holds one, what a failure leaves, and what a release removes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from shoal.core.errors import StateFileError
from shoal.core.flock_queue import acquire_flock
from shoal.core.ids import SessionId
from shoal.core.names import LEAD_NAME
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.locks import pid_locks
from shoal.stores.files.locks.pid_locks import (
    ExternalMemberLock,
    SessionLock,
    find_session_pid,
    is_external_lead_alive,
    is_session_running,
)
from shoal.stores.files.locks.process_leases import (
    ProcessLease,
    is_process_lease_alive,
    remove_dead_process_leases,
)

SESSION = SessionId("5e551011-0000-4000-8000-000000000001")


def run_in_child(check: Callable[[], None]) -> None:
    """Run a check that changes its process; it must not fail."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            check()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def no_writes() -> Iterator[None]:
    """Every write to a file fails; for a process of its own."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, old)


def list_open_files(directory: Path) -> list[Path]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(link.readlink())
    return [path for path in found if path.is_relative_to(directory)]


def test_a_session_lock_says_who_runs_the_session_until_it_is_released(home: Path) -> None:
    assert is_session_running(home, SESSION) is False
    assert find_session_pid(home, SESSION) is None
    lock = SessionLock(home, SESSION)
    assert is_session_running(home, SESSION) is True
    assert find_session_pid(home, SESSION) == os.getpid()
    with pytest.raises(StateFileError, match=f"process {os.getpid()}") as refused:
        SessionLock(home, SESSION)
    assert refused.value.path == lock.path
    lock.path.write_text("")
    with pytest.raises(StateFileError, match="another process"):
        SessionLock(home, SESSION)
    lock.release()
    lock.release()
    assert is_session_running(home, SESSION) is False
    assert list_open_files(home) == []
    lock.path.write_text("1234567890\n")
    second = SessionLock(home, SESSION)
    assert second.path.read_text() == f"{os.getpid()}\n", "nothing of the former holder's number stays"
    second.release()


@pytest.mark.parametrize("content", ["", "x", "0", "-1", "1", str(2**31), f"{os.getppid()}"])
def test_a_number_of_a_process_without_the_lock_names_nobody(home: Path, content: str) -> None:
    lock = SessionLock(home, SESSION)
    lock.path.write_text(content)
    assert find_session_pid(home, SESSION) is None
    lock.release()


def test_an_unused_session_lock_removes_its_directory_only_if_nothing_else_is_there(home: Path) -> None:
    lock = SessionLock(home, SESSION)
    (lock.path.parent / "journal.jsonl").touch()
    lock.release_unused()
    assert sorted(path.name for path in lock.path.parent.iterdir()) == ["journal.jsonl", "lock"]
    (lock.path.parent / "journal.jsonl").unlink()
    lock.release_unused()
    assert lock.path.exists(), "it is released, so another process may hold it"
    SessionLock(home, SESSION).release_unused()
    assert not lock.path.parent.exists()
    assert lock.path.parent.parent.exists()
    assert list_open_files(home) == []


@pytest.mark.parametrize("kind", [SessionLock, ExternalMemberLock])
def test_a_lock_that_cannot_be_written_is_reported_and_not_held(home: Path, kind: type) -> None:
    arguments = (home, SESSION) if kind is SessionLock else (home, "roof", "ann")

    def check() -> None:
        with no_writes(), pytest.raises(StateFileError, match=r"ann@roof|lock"):
            kind(*arguments)
        assert list_open_files(home) == []
        kind(*arguments).release()

    run_in_child(check)


def test_a_lock_in_a_directory_that_is_a_file_is_an_error_with_its_path(home: Path) -> None:
    lock = SessionLock(home, SESSION)
    lock.release()
    lock.path.unlink()
    lock.path.symlink_to(home / "elsewhere")
    with pytest.raises(StateFileError, match="lock"):
        SessionLock(home, SESSION)
    assert is_session_running(home, SESSION) is False
    assert not (home / "elsewhere").exists()


def test_a_lock_file_that_disappears_every_time_is_given_up(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def open_and_remove(path: Path, *arguments: int) -> int:
        opened.append(open_file(path, *arguments))
        path.unlink()
        return opened[-1]

    open_file = os.open
    monkeypatch.setattr(os, "open", open_and_remove)
    with pytest.raises(StateFileError, match="SHOAL_HOME=DIRECTORY"):
        SessionLock(home, SESSION)
    monkeypatch.undo()
    assert len(opened) == pid_locks._MAX_REOPENS
    assert list_open_files(home) == []


def test_a_lock_file_that_its_holder_removed_is_made_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ExternalMemberLock(home, "roof", "ann")

    def release_first(_: float) -> None:
        first.release()

    monkeypatch.setattr(time, "sleep", release_first)  # between the attempts
    second = ExternalMemberLock(home, "roof", "ann")
    assert second.path.exists()
    with pytest.raises(StateFileError, match="ann"):
        ExternalMemberLock(home, "roof", "ann")
    second.release()
    assert list_open_files(home) == []


def test_the_release_of_a_lock_whose_file_was_removed_leaves_the_next_one(home: Path) -> None:
    first = ExternalMemberLock(home, "roof", "ann")
    first.path.unlink()
    second = ExternalMemberLock(home, "roof", "ann")
    first.release()
    assert second.path.exists()
    second.release()


def test_an_external_lead_is_alive_while_it_holds_its_lock(home: Path) -> None:
    assert is_external_lead_alive(home, "roof") is False
    lock = ExternalMemberLock(home, "roof", LEAD_NAME)
    assert is_external_lead_alive(home, "roof") is True
    assert is_external_lead_alive(home, "wall") is False
    lock.release()
    assert is_external_lead_alive(home, "roof") is False
    os.mkfifo(lock.path)
    assert is_external_lead_alive(home, "roof") is False, "a pipe does not block the check"
    lock.path.unlink()
    lock.path.mkdir()
    assert is_external_lead_alive(home, "roof") is False


def test_locks_whose_descriptor_is_the_first_of_all_are_locks_like_others(home: Path) -> None:
    """A program without standard input gets this descriptor from its first open."""

    def check() -> None:
        with DirectoryHandle.open_root(home) as root:
            os.close(0)
            lease = ProcessLease(root)
            assert lease.is_held
            assert is_process_lease_alive(root, lease.id) is True
            lease.release()
            assert root.list_names() == []
            lock = SessionLock(home, SESSION)
            assert is_session_running(home, SESSION)
            lock.release()
            assert not is_session_running(home, SESSION)
            lease = ProcessLease(root)
            child = os.fork()
            if child == 0:
                os._exit(len(list_open_files(home / lease.id)))
            assert os.waitpid(child, 0)[1] == 0, "the descriptor belongs to the parent"

    run_in_child(check)


def test_waiters_whose_descriptor_is_the_first_of_all_are_served_in_order(tmp_path: Path) -> None:
    path = tmp_path / "lock"

    async def wait_twice() -> None:
        holder = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(holder, fcntl.LOCK_EX)
        os.close(0)
        waiting = [asyncio.create_task(acquire_flock(os.open(path, os.O_RDWR))) for _ in range(3)]
        await asyncio.sleep(0)
        os.close(holder)
        async with asyncio.timeout(30):
            for task in waiting:
                os.close(await task)
        assert list_open_files(path) == []

    run_in_child(lambda: asyncio.run(wait_twice()))


def test_a_lease_that_cannot_be_written_is_reported_and_leaves_nothing(home: Path) -> None:
    def check() -> None:
        with DirectoryHandle.open_root(home) as leases:
            with no_writes(), pytest.raises(StateFileError) as failed:
                ProcessLease(leases)
            assert failed.value.path is not None
            assert failed.value.path.parent == home
            assert leases.list_names() == []
            assert list_open_files(home) == [home]

    run_in_child(check)


def test_a_lease_whose_directory_is_gone_is_an_error_that_says_so(home: Path) -> None:
    with DirectoryHandle.open_root(home) as root, root.open_or_create("leases") as leases:
        (home / "leases").rmdir()
        with pytest.raises(StateFileError, match="removed"):
            ProcessLease(leases)
        assert is_process_lease_alive(leases, "0" * 16) is False


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "x" * 16, "0" * 15, "0" * 17, "A" * 16, ".abc"])
def test_a_name_that_is_no_lease_is_dead_and_its_file_stays(home: Path, name: str) -> None:
    with DirectoryHandle.open_root(home) as root, root.open_or_create("leases") as leases:
        (home / "x").touch()
        if name not in {"", ".", "..", "../x"}:
            leases.write_file(name, b"1\n")
        before = leases.list_names()
        assert is_process_lease_alive(leases, name) is False
        assert leases.list_names() == before
        assert (home / "x").exists()


@pytest.mark.parametrize("keeps_dead", [False, True])
def test_a_dead_lease_is_removed_unless_it_is_kept(home: Path, keeps_dead: bool) -> None:
    with DirectoryHandle.open_root(home) as leases:
        leases.write_file("0" * 16, b"1\n")
        assert is_process_lease_alive(leases, "0" * 16, keeps_dead=keeps_dead) is False
        assert leases.list_names() == ["0" * 16] * keeps_dead
        lease = ProcessLease(leases)
        assert is_process_lease_alive(leases, lease.id, keeps_dead=keeps_dead) is True
        assert (home / lease.id).read_text() == f"{os.getpid()}\n"
        lease.release()
        assert not lease.is_held
        assert list_open_files(home) == [home]


def test_a_removal_of_dead_leases_looks_at_a_bounded_number(home: Path) -> None:
    with DirectoryHandle.open_root(home) as leases:
        for number in range(100):
            leases.write_file(f"{number:016x}", b"1\n")
        remove_dead_process_leases(leases)
        assert len(leases.list_names()) == 36
        remove_dead_process_leases(leases)
        assert leases.list_names() == []
