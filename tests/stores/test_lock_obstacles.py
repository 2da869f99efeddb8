"""Whatever stands in the way of a lock: it is waited for, reported, and afterward nothing is held."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from shoal.core.errors import LockUnavailable, StateFileError
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.locks import flocks, foreign_lock
from shoal.stores.files.locks.board_locks import LOCK_SLOTS, TaskBoardLocks
from shoal.stores.files.locks.directory_flock import SharedDirectoryFlock
from shoal.stores.files.locks.flocks import is_flocked, lock_file_for_update, retry_flock
from shoal.stores.files.locks.foreign_lock import ForeignProgramLock, hold_foreign_lock
from shoal.stores.files.locks.shared_file_lock import AsyncFlock, SharedFileLock

TASKS = ("1", "2", str(LOCK_SLOTS + 1))
"""The first and the last share a flock."""


@pytest.fixture
def tasks(home: Path) -> Iterator[DirectoryHandle]:
    with DirectoryHandle.open_root(home) as root, root.open_or_create("tasks", "roof") as directory:
        yield directory


@pytest.fixture
def lock_files(home: Path, tasks: DirectoryHandle) -> Iterator[DirectoryHandle]:
    with DirectoryHandle.open_root(home) as root, root.open_or_create("shoal", "tasks", "roof") as directory:
        yield directory


class Flock:
    """A flock of a file that another process holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = -1

    def put(self) -> None:
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def remove(self) -> None:
        os.close(self.fd)


class LockDirectory:
    """A lock of a program that locks with directories."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self) -> None:
        self.path.mkdir()

    def remove(self) -> None:
        self.path.rmdir()


def build_obstacle(home: Path, kind: str) -> Flock | LockDirectory:
    tasks, locks = home / "tasks" / "roof", home / "shoal" / "tasks" / "roof"
    return {
        "directory": lambda: Flock(tasks / ".lock"),
        "slot": lambda: Flock(locks / "slot-1"),
        "second slot": lambda: Flock(locks / "slot-2"),
        "task": lambda: LockDirectory(tasks / "1.json.lock"),
        "last task": lambda: LockDirectory(tasks / f"{LOCK_SLOTS + 1}.json.lock"),
        "list": lambda: Flock(locks / "list"),
        "list of another program": lambda: LockDirectory(tasks / ".lock.lock"),
    }[kind]()


def list_held_locks(home: Path) -> list[Path]:
    held = [path for path in (home / "tasks" / "roof").glob("*.lock") if path.is_dir()]
    for path in [home / "tasks" / "roof" / ".lock", *(home / "shoal" / "tasks" / "roof").iterdir()]:
        if path.is_file():
            with open_for_check(path) as fd:
                held += [path] * is_flocked(fd)
    return held


async def check_that_nothing_is_held(home: Path, *, open_files: int) -> None:
    """A thread frees the lock of a waiter that gave up as soon as it gets it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(10):
            while list_held_locks(home) or len(list_open_files(home)) > open_files:
                await asyncio.sleep(0.005)
    assert list_held_locks(home) == []
    assert len(list_open_files(home)) == open_files


@contextmanager
def open_for_check(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def list_open_files(directory: Path) -> list[Path]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(link.readlink())
    return [path for path in found if path.is_relative_to(directory)]


async def take_tasks(locks: TaskBoardLocks, tasks: DirectoryHandle) -> None:
    async with locks.lock_tasks(tasks, [*TASKS, *TASKS]):
        assert sorted(path.name for path in tasks.path.glob("*.json.lock")) == sorted(
            f"{task}.json.lock" for task in TASKS
        )
        raise ZeroDivisionError


async def take_directory(locks: TaskBoardLocks, tasks: DirectoryHandle) -> None:
    flock = locks.get_directory_flock(tasks)
    await flock.acquire(locks.compute_deadline())
    try:
        with open_for_check(tasks.path / ".lock") as fd:
            assert is_flocked(fd)
        raise ZeroDivisionError
    finally:
        flock.release()


async def take_list(locks: TaskBoardLocks, tasks: DirectoryHandle) -> None:
    async with locks.lock_board(tasks):
        assert (tasks.path / ".lock.lock").is_dir()
        raise ZeroDivisionError


WAITING = [
    *((take_tasks, kind) for kind in ("directory", "slot", "second slot", "task", "last task")),
    (take_directory, "directory"),
    *((take_list, kind) for kind in ("list", "list of another program", "directory")),
]
Take = Callable[[TaskBoardLocks, DirectoryHandle], Awaitable[None]]


@pytest.mark.parametrize(("take", "kind"), WAITING)
async def test_a_lock_that_is_not_free_in_time_is_reported_and_nothing_is_held(
    home: Path, tasks: DirectoryHandle, lock_files: DirectoryHandle, take: Take, kind: str
) -> None:
    locks, obstacle = TaskBoardLocks(home, "roof", timeout=0.05), build_obstacle(home, kind)
    obstacle.put()
    async with asyncio.timeout(30):
        with pytest.raises(LockUnavailable, match="lock"):
            await take(locks, tasks)
    obstacle.remove()
    locks.close()
    await check_that_nothing_is_held(home, open_files=4)


@pytest.mark.parametrize("before", [(), ("list", "slot")])
@pytest.mark.parametrize(("take", "kind"), WAITING)
async def test_a_lock_that_becomes_free_in_time_is_taken_and_then_released(
    home: Path,
    tasks: DirectoryHandle,
    lock_files: DirectoryHandle,
    take: Take,
    kind: str,
    before: tuple[str, ...],
) -> None:
    """Also after a wait for another lock: all of them have one deadline, in the future."""
    locks, loop = TaskBoardLocks(home, "roof", timeout=30), asyncio.get_running_loop()
    for number, name in enumerate(dict.fromkeys([*before, kind]), 1):
        obstacle = build_obstacle(home, name)
        obstacle.put()
        loop.call_later(0.02 * number, obstacle.remove)
    async with asyncio.timeout(60):
        with pytest.raises(ZeroDivisionError):
            await take(locks, tasks)
        await asyncio.sleep(0.05)  # the obstacles that the lock did not need are gone
    locks.close()
    await check_that_nothing_is_held(home, open_files=4)


@pytest.mark.parametrize("kind", ["directory", "slot", "task", "list of another program"])
async def test_a_task_is_locked_without_waiting_or_not_at_all(
    home: Path, tasks: DirectoryHandle, lock_files: DirectoryHandle, kind: str
) -> None:
    locks, obstacle = TaskBoardLocks(home, "roof", timeout=30), build_obstacle(home, kind)
    obstacle.put()
    for _ in range(2):
        async with asyncio.timeout(20):
            assert await locks.try_lock_task(tasks, "1") is None
            if not kind.startswith("list"):
                assert await locks.lock_tasks(tasks, ["1"]).try_acquire() is False
    obstacle.remove()
    await check_that_nothing_is_held(home, open_files=4 if kind.startswith("list") else 5)
    held = await locks.try_lock_task(tasks, "1")
    assert held is not None
    assert (tasks.path / "1.json.lock").is_dir()
    assert await locks.try_lock_task(tasks, "1") is None
    other = await locks.try_lock_task(tasks, "2")
    assert other is not None
    for _ in range(2):
        held.release()
        with open_for_check(tasks.path / ".lock") as fd:
            assert is_flocked(fd), "the other task is still locked"
    other.release()
    locks.close()
    await check_that_nothing_is_held(home, open_files=4)


@pytest.mark.parametrize("path", ["tasks/roof/.lock", "shoal/tasks/roof/slot-1", "shoal/tasks/roof/list"])
async def test_a_link_in_place_of_a_lock_is_an_error_and_nothing_is_held(
    home: Path, tasks: DirectoryHandle, lock_files: DirectoryHandle, path: str
) -> None:
    locks = TaskBoardLocks(home, "roof", timeout=30)
    (home / path).symlink_to(home / "elsewhere")
    async with asyncio.timeout(30):
        for take in [take_list] if path.endswith("list") else [take_tasks]:
            with pytest.raises(StateFileError, match="link"):
                await take(locks, tasks)
        if not path.endswith("list"):
            with pytest.raises(StateFileError, match="link"):
                await locks.try_lock_task(tasks, "1")
        (home / path).unlink()
        assert not (home / "elsewhere").exists()
        for take in (take_list, take_tasks):
            with pytest.raises(ZeroDivisionError):
                await take(locks, tasks)
    locks.close()
    await check_that_nothing_is_held(home, open_files=4)


async def test_locks_of_a_directory_that_was_replaced_guard_the_new_one(home: Path) -> None:
    locks = TaskBoardLocks(home, "roof", timeout=0.05)
    with DirectoryHandle.open_root(home) as root, root.open_or_create("tasks", "roof") as first:
        with pytest.raises(ZeroDivisionError):
            await take_list(locks, first)
        (home / "shoal" / "tasks" / "roof").rename(home / "old")
        for path in (home / "old").iterdir():
            path.rmdir() if path.is_dir() else path.unlink()
        (home / "old").rmdir()
        for take in (take_list, take_tasks):
            with pytest.raises(ZeroDivisionError):
                await take(locks, first)
        assert (home / "shoal" / "tasks" / "roof" / "slot-1").exists()
        with root.open_or_create("tasks", "wall") as second:
            for take in (take_list, take_tasks):
                with pytest.raises(ZeroDivisionError):
                    await take(locks, second)
            assert (home / "tasks" / "wall" / ".lock").exists()
    locks.close()
    locks.close()
    assert list_open_files(home) == []


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("again", [False, True])
async def test_a_flock_whose_file_becomes_a_link_is_an_error_and_can_be_used_later(
    home: Path, lock_files: DirectoryHandle, waits: bool, again: bool
) -> None:
    lock = AsyncFlock(lock_files, "box", timeout=30)
    path = lock_files.path / "box"
    holder = Flock(path)
    holder.put()
    waiting = asyncio.create_task(lock.__aenter__() if waits else lock.try_acquire())
    for _ in range(20):
        await asyncio.sleep(0)
    assert waiting.done() is not waits
    path.unlink()
    path.symlink_to(home / "elsewhere")
    holder.remove()
    async with asyncio.timeout(30):
        for task in [waiting] if waits else [lock.try_acquire(), lock.__aenter__()]:
            with pytest.raises(StateFileError, match="link"):
                await task
        path.unlink()
        if again:
            assert await lock.try_acquire() is True
            assert await lock.try_acquire() is False
            lock.release()
        else:
            async with lock:
                pass
    assert len(list_open_files(lock_files.path)) == 1


@pytest.mark.parametrize("is_own_held", [False, True])
@pytest.mark.parametrize("separately", [False, True])
async def test_the_wait_for_another_program_has_the_rest_of_the_time(
    home: Path, tasks: DirectoryHandle, lock_files: DirectoryHandle, is_own_held: bool, separately: bool
) -> None:
    lock = SharedFileLock(
        lock_files,
        "list",
        directory=tasks,
        file=".lock",
        timeout=30,
        directory_flock=SharedDirectoryFlock(tasks),
    )
    foreign, own = (build_obstacle(home, kind) for kind in ("list of another program", "list"))
    foreign.put()
    loop = asyncio.get_running_loop()
    if is_own_held:
        own.put()
        loop.call_later(0.02, own.remove)
    loop.call_later(0.05, foreign.remove)
    async with asyncio.timeout(60):
        if separately:
            async with lock.own, lock.build_foreign_lock_context() as held:
                held.confirm_held()
                assert foreign.path.is_dir()
        else:
            async with lock as held:
                held.confirm_held()
                assert foreign.path.is_dir()
    await check_that_nothing_is_held(home, open_files=4)


@pytest.mark.parametrize("kind", ["directory", "list of another program"])
@pytest.mark.parametrize("separately", [False, True])
async def test_a_shared_file_lock_that_is_not_free_in_time_holds_nothing(
    home: Path, tasks: DirectoryHandle, lock_files: DirectoryHandle, kind: str, separately: bool
) -> None:
    lock = SharedFileLock(
        *(lock_files, "list"),
        directory=tasks,
        file=".lock",
        timeout=0.05,
        directory_flock=SharedDirectoryFlock(tasks),
    )
    obstacle = build_obstacle(home, kind)
    obstacle.put()
    async with asyncio.timeout(30):
        with pytest.raises(LockUnavailable, match=r"\.lock"):
            await (take_separately(lock) if separately else lock.__aenter__())
        obstacle.remove()
        async with lock:
            pass
    await check_that_nothing_is_held(home, open_files=4)


@pytest.mark.parametrize("has_spare", [False, True])
async def test_a_lock_in_a_directory_that_was_removed_is_an_error_and_holds_nothing(
    tasks: DirectoryHandle, lock_files: DirectoryHandle, has_spare: bool
) -> None:
    """The spare of an earlier lock cannot be moved in either."""
    lock = SharedFileLock(lock_files, "list", directory=tasks, file="1.json", timeout=30)
    if has_spare:
        await take_separately(lock)
    tasks.path.rmdir()
    async with asyncio.timeout(30):
        for attempt in (lock.__aenter__(), take_separately(lock)):
            with pytest.raises(StateFileError, match=r"1\.json\.lock"):
                await attempt
    with open_for_check(lock_files.path / "list") as fd:
        assert not is_flocked(fd)


async def take_separately(lock: SharedFileLock) -> None:
    async with lock.own, lock.build_foreign_lock_context() as held:
        held.confirm_held()


async def test_the_removed_lock_file_of_a_directory_locks_nothing(
    home: Path, tasks: DirectoryHandle, lock_files: DirectoryHandle
) -> None:
    first, second, third = (SharedDirectoryFlock(tasks) for _ in range(3))
    path, deadline = tasks.path / ".lock", time.monotonic() + 30
    async with asyncio.timeout(60):
        await first.acquire(deadline)
        waiting = asyncio.create_task(second.acquire(deadline))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not second.try_acquire(), "its object is waiting"
        path.unlink()
        first.release()
        await waiting
        assert path.exists()
        assert not third.try_acquire()
        assert second.try_acquire()
        second.release()
        assert not third.try_acquire()
        second.release()
        assert third.try_acquire()
        third.release()
        await first.acquire(deadline)
        with pytest.raises(LockUnavailable, match=r"\.lock"):
            await second.acquire(time.monotonic() - 1)
        first.release()
    await check_that_nothing_is_held(home, open_files=4)


async def test_attempts_to_take_the_lock_of_another_program_become_rarer(
    tasks: DirectoryHandle, lock_files: DirectoryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    foreign = tasks.path / "1.json.lock"
    foreign.mkdir()

    async def count_pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 30:
            foreign.rmdir()

    monkeypatch.setattr(asyncio, "sleep", count_pause)
    lock = ForeignProgramLock(tasks, "1.json", lock_files)
    await lock.acquire(time.monotonic() + 1000)
    check_pauses(pauses)
    lock.release()
    assert not foreign.exists()
    pauses.clear()

    def count_blocking_pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 30:
            foreign.rmdir()

    foreign.mkdir()
    monkeypatch.setattr(time, "sleep", count_blocking_pause)
    with hold_foreign_lock(tasks.path / "1.json", timeout=1000):
        check_pauses(pauses)


def check_pauses(pauses: list[float]) -> None:
    assert len(pauses) == 30
    assert pauses[0] <= 0.0005
    assert 0.0 < max(pauses[:4]) < 0.008, "a lock that is held for a moment is soon taken"
    assert all(0.02 < pause <= 0.05 for pause in pauses[-10:])


async def test_a_lock_that_another_program_took_over_is_left_alone(
    tasks: DirectoryHandle, lock_files: DirectoryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_lock, "REFRESH_INTERVAL", 0.02)
    lock = ForeignProgramLock(tasks, "1.json", lock_files)
    await lock.acquire(time.monotonic() + 30)
    foreign = tasks.path / "1.json.lock"
    foreign.rmdir()
    foreign.mkdir(0o700)
    os.utime(foreign, (1000, 1000))
    await asyncio.sleep(0.05)
    with pytest.raises(LockUnavailable, match="took over"):
        lock.confirm_held()
    lock.release()
    assert foreign.stat().st_mtime == 1000


@pytest.mark.skipif(sys.platform != "linux", reason="without renameat2, no lock directory is used again")
async def test_a_released_lock_is_not_refreshed_for_its_next_holder(
    tasks: DirectoryHandle, lock_files: DirectoryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_lock, "REFRESH_INTERVAL", 0.02)
    lock = ForeignProgramLock(tasks, "1.json", lock_files)
    foreign = tasks.path / "1.json.lock"
    for _ in range(2):
        await lock.acquire(time.monotonic() + 30)
        refreshed = foreign.stat().st_mtime_ns
        async with asyncio.timeout(30):
            for _ in range(2):
                while foreign.stat().st_mtime_ns == refreshed:
                    await asyncio.sleep(0.005)
                refreshed = foreign.stat().st_mtime_ns
        lock.confirm_held()
        lock.release()
        assert not foreign.exists()
    spare = next(path for path in lock_files.path.iterdir() if path.name.startswith("spare-"))
    before = spare.stat()
    spare.rename(foreign)
    await asyncio.sleep(0.06)
    assert foreign.stat().st_mtime_ns == before.st_mtime_ns


def test_the_lock_of_another_program_is_held_once_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.json"
    lock = tmp_path / "new" / "file.json.lock"
    with hold_foreign_lock(path) as confirm_held:
        confirm_held()
        assert lock.stat().st_mode & 0o1777 == 0o1700
        for age, taken in ((5.0, False), (11.0, True)):
            os.utime(lock, (time.time() - age,) * 2)
            if taken:
                with hold_foreign_lock(path, timeout=0.0) as confirm_second:
                    with pytest.raises(LockUnavailable, match="took over"):
                        confirm_held()
                    confirm_second()
                lock.mkdir()
            else:
                with (
                    pytest.raises(LockUnavailable, match="holds the lock"),
                    hold_foreign_lock(path, timeout=0.01),
                ):
                    raise AssertionError
    assert lock.exists(), "the lock of another holder stays"
    lock.rmdir()
    with pytest.raises(ZeroDivisionError), hold_foreign_lock(path):
        raise ZeroDivisionError
    assert list(path.parent.iterdir()) == []
    path.parent.rmdir()
    path.parent.symlink_to(tmp_path / "missing")
    with pytest.raises(StateFileError), hold_foreign_lock(path):
        raise AssertionError


def test_a_file_that_is_updated_is_locked_for_others_until_the_update_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flocks, "_PAUSE", 0.0)
    path = tmp_path / "deep" / "keys.json"
    with lock_file_for_update(path):
        with (
            pytest.raises(StateFileError, match=r"keys\.lock\. Try again"),
            lock_file_for_update(path),
        ):
            raise AssertionError
        assert len(list_open_files(tmp_path)) == 1
    with pytest.raises(ZeroDivisionError), lock_file_for_update(path):
        raise ZeroDivisionError
    with lock_file_for_update(path):
        pass
    assert list_open_files(tmp_path) == []
    path.with_suffix(".lock").unlink()
    path.with_suffix(".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateFileError, match=r"keys\.lock"), lock_file_for_update(path):
        raise AssertionError


def test_a_lock_is_tried_as_often_as_asked_with_pauses_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    holder = Flock(tmp_path / "lock")
    holder.put()
    with open_for_check(tmp_path / "lock") as fd, open_for_check(tmp_path / "lock") as other:
        assert is_flocked(fd) is True
        assert retry_flock(fd, tries=3, pause=0.5) is False
        assert pauses == [0.5, 0.5]
        holder.remove()
        assert is_flocked(fd) is False
        assert is_flocked(other) is False, "checks do not see each other"
    with open_for_check(tmp_path / "lock") as fd:
        assert retry_flock(fd, tries=3, pause=0.5) is True
    assert pauses == [0.5, 0.5]
