"""Locks of shared files: between processes, with foreign programs, and after kill -9."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.core.errors import LockUnavailable, StateFileError
from shoal.core.flock_queue import MAX_THREADS
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.locks import foreign_lock
from shoal.stores.files.locks.shared_file_lock import SharedFileLock

PROCESS = Path(__file__).with_name("lock_process.py")


@pytest.fixture
def root(home: Path) -> Iterator[DirectoryHandle]:
    directory = DirectoryHandle.open_root(home)
    yield directory
    directory.close()


@pytest.fixture
def create_lock(root: DirectoryHandle) -> Iterator[Callable[..., SharedFileLock]]:
    """Creates locks of the same file, each as another process would."""
    handles: list[DirectoryHandle] = []

    def create(name: str = "box", **options: Any) -> SharedFileLock:
        locks, boxes = root.open_or_create("shoal", "locks"), root.open_or_create("boxes")
        handles.extend((locks, boxes))
        return SharedFileLock(locks, name, directory=boxes, file=f"{name}.json", **options)

    yield create
    for directory in handles:
        directory.close()


def start_lock_process(home: Path, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, PROCESS, home, what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def get_foreign_lock(home: Path) -> Path:
    return home / "boxes" / "box.json.lock"


async def test_a_held_lock_shows_other_programs_an_empty_lock_directory(
    create_lock: Callable[..., SharedFileLock], home: Path
):
    async with create_lock():
        assert get_foreign_lock(home).is_dir()
        assert not list(get_foreign_lock(home).iterdir())
    assert not get_foreign_lock(home).exists()


async def test_tasks_of_one_process_get_the_lock_in_order_of_request(
    create_lock: Callable[..., SharedFileLock],
):
    lock, order = create_lock(), []

    async def hold_lock(number: int):
        async with lock:
            order.append(number)

    async with asyncio.TaskGroup() as group, lock:
        for number in range(20):
            group.create_task(hold_lock(number))
        await asyncio.sleep(0)
        assert order == []
    assert order == list(range(20))


@pytest.mark.spec("USR-15")
async def test_no_update_of_several_processes_is_lost(home: Path):
    home.mkdir()
    processes = [start_lock_process(home, "count200") for _ in range(5)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert (home / "boxes" / "box.json").read_bytes() == b"1000"
    assert not get_foreign_lock(home).exists()


async def test_a_cancelled_waiter_never_keeps_the_lock(create_lock: Callable[..., SharedFileLock]):
    first, second, third = create_lock(), create_lock(), create_lock()
    async with first:
        waiting = asyncio.ensure_future(second.__aenter__())
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(30), third:
        pass
    async with asyncio.timeout(30), second:
        pass


async def test_many_waiters_cancelled_at_random_leave_the_lock_free(
    create_lock: Callable[..., SharedFileLock],
):
    locks = [create_lock() for _ in range(30)]

    async def hold_lock(lock: SharedFileLock):
        async with lock:
            await asyncio.sleep(0)

    async with create_lock():
        tasks = [asyncio.ensure_future(hold_lock(lock)) for lock in locks]
        await asyncio.sleep(0.02)
        for task in tasks[::2]:
            task.cancel()
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
    assert [r for r in results if not isinstance(r, asyncio.CancelledError)] == [None] * 15
    async with asyncio.timeout(30), create_lock():
        pass


@pytest.mark.parametrize("at_once", [1, 2 * MAX_THREADS])
async def test_timed_out_waiters_of_one_lock_do_not_block_another_lock(
    create_lock: Callable[..., SharedFileLock], at_once: int
):
    """Each waiter uses a thread, and there are only a few threads."""

    async def wait_until_timeout():
        with pytest.raises(LockUnavailable):
            await create_lock(timeout=0.05).__aenter__()

    async with create_lock():
        for _ in range(2 * MAX_THREADS // at_once):
            await asyncio.gather(*[wait_until_timeout() for _ in range(at_once)])
        async with create_lock("other"):
            waiting = asyncio.ensure_future(create_lock("other", timeout=60).__aenter__())
            done, _ = await asyncio.wait([waiting], timeout=0.05)
            assert not done
        await waiting
    async with asyncio.timeout(60), create_lock():
        pass


async def test_a_timed_out_waiter_does_not_hold_the_lock_later(
    create_lock: Callable[..., SharedFileLock],
):
    async with create_lock():
        with pytest.raises(LockUnavailable):
            await create_lock(timeout=0.01).__aenter__()
        again = asyncio.ensure_future(create_lock(timeout=60).__aenter__())
        done, _ = await asyncio.wait([again], timeout=0.05)
        assert not done
    held = await again
    held.confirm_held()
    with pytest.raises(LockUnavailable):
        await create_lock(timeout=0.01).__aenter__()


async def test_try_acquire_never_waits(create_lock: Callable[..., SharedFileLock]):
    lock = create_lock().own
    async with lock:
        next_one = asyncio.ensure_future(lock.__aenter__())
        await asyncio.sleep(0)
    # It is free but already assigned to the waiter.
    attempt = lock.try_acquire()
    with pytest.raises(StopIteration) as answer:
        attempt.send(None)
    assert answer.value.value is False
    await next_one
    await lock.__aexit__(None, None, None)
    assert await lock.try_acquire()
    await lock.__aexit__(None, None, None)


async def test_a_stale_lock_removed_by_another_program_during_takeover_is_created_again(
    root: DirectoryHandle, home: Path
):
    """The other program also finds it stale and removes it between our check and our takeover."""

    class Shared(DirectoryHandle):
        def get_entry_stat(self, name: str):
            seen = super().get_entry_stat(name)
            if seen is not None and not removed:
                removed.append(name)
                os.rmdir(name, dir_fd=self.fd)
            return seen

    removed: list[str] = []
    locks, boxes = root.open_or_create("shoal", "locks"), root.open_or_create("boxes")
    get_foreign_lock(home).mkdir(mode=0o1700)
    shared = Shared(boxes.path, os.dup(boxes.fd))
    with locks, boxes, shared:
        async with SharedFileLock(locks, "box", directory=shared, file="box.json"):
            assert removed
            assert get_foreign_lock(home).is_dir()


async def test_waiting_does_not_stop_the_event_loop(create_lock: Callable[..., SharedFileLock]):
    ticks = 0
    async with create_lock():
        waiting = asyncio.ensure_future(create_lock().__aenter__())
        for _ in range(50):
            await asyncio.sleep(0)
            ticks += 1
        assert not waiting.done()
        waiting.cancel()
    assert ticks == 50
    await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.spec("USR-15")
@pytest.mark.parametrize("timeout", [0.2])
async def test_a_lock_that_stays_held_raises_after_the_timeout(
    create_lock: Callable[..., SharedFileLock], home: Path, timeout: float
):
    async with create_lock():
        with pytest.raises(LockUnavailable):
            await create_lock(timeout=timeout).__aenter__()
    get_foreign_lock(home).mkdir()
    with pytest.raises(LockUnavailable, match=r"box\.json\.lock"):
        await create_lock(timeout=timeout).__aenter__()
    assert get_foreign_lock(home).is_dir()
    get_foreign_lock(home).rmdir()
    async with create_lock(timeout=timeout):
        pass


async def test_a_foreign_lock_is_waited_for(create_lock: Callable[..., SharedFileLock], home: Path):
    lock = create_lock()
    get_foreign_lock(home).mkdir()
    threading.Timer(0.1, get_foreign_lock(home).rmdir).start()
    async with lock:
        assert get_foreign_lock(home).is_dir()


async def test_a_stale_foreign_lock_is_taken_over_and_a_fresh_one_is_not(
    create_lock: Callable[..., SharedFileLock], home: Path
):
    lock = create_lock(timeout=0.3)
    get_foreign_lock(home).mkdir()
    os.utime(get_foreign_lock(home), (time.time() - 9, time.time() - 9))
    with pytest.raises(LockUnavailable):
        await lock.__aenter__()
    os.utime(get_foreign_lock(home), (time.time() - 11, time.time() - 11))
    async with lock:
        assert time.time() - get_foreign_lock(home).stat().st_mtime < 5


async def test_a_lock_dated_in_the_future_is_stale_if_it_stays_unchanged(
    create_lock: Callable[..., SharedFileLock], home: Path, monkeypatch: pytest.MonkeyPatch
):
    """A clock that was set back must not keep the lock of a dead program forever."""
    monkeypatch.setattr(foreign_lock, "STALE_AFTER", 0.3)
    path, loop, lock = get_foreign_lock(home), asyncio.get_running_loop(), create_lock(timeout=1.0)
    path.mkdir()
    touches = 0

    def touch() -> None:
        nonlocal touches, timer
        touches += 1
        os.utime(path, (time.time() + 1_000 + touches,) * 2)
        timer = loop.call_later(0.02, touch)

    timer = loop.call_soon(touch)
    with pytest.raises(LockUnavailable):
        await lock.__aenter__()
    timer.cancel()
    async with create_lock(timeout=20):
        assert path.stat().st_mtime < time.time() + 500


@pytest.mark.spec("USR-15")
async def test_the_lock_of_a_killed_process_is_taken_over_at_once(
    create_lock: Callable[..., SharedFileLock], home: Path
):
    home.mkdir(exist_ok=True)
    lock = create_lock()
    process = start_lock_process(home, "die")
    assert process.stdout.readline() == "held\n"
    process.communicate("now\n", timeout=10)
    assert process.returncode == -9
    assert get_foreign_lock(home).is_dir()
    since = time.monotonic()
    async with lock:
        assert time.monotonic() - since < 5, "a lock of another program is stale only after 10 s"


async def test_a_fresh_lock_of_another_program_is_not_taken_for_one_a_dead_process_left(
    create_lock: Callable[..., SharedFileLock], home: Path
):
    process = start_lock_process(home, "die")
    assert process.stdout.readline() == "held\n"
    process.communicate("now\n", timeout=10)
    get_foreign_lock(home).rmdir()
    get_foreign_lock(home).mkdir()
    with pytest.raises(LockUnavailable):
        await create_lock(timeout=0.3).__aenter__()


async def test_the_lock_is_fresh_when_it_is_taken_again(
    create_lock: Callable[..., SharedFileLock], home: Path
):
    """A spare directory is moved in: its old modification time must not make it look stale."""
    lock = create_lock()
    async with lock:
        pass
    for spare in (home / "shoal" / "locks").glob("spare-*"):
        os.utime(spare, (1, 1))
    async with lock:
        assert time.time() - get_foreign_lock(home).stat().st_mtime < 5


async def test_a_holder_that_was_suspended_detects_that_its_lock_was_taken_over(
    create_lock: Callable[..., SharedFileLock], home: Path, monkeypatch: pytest.MonkeyPatch
):
    async with create_lock() as held:
        held.confirm_held()
        get_foreign_lock(home).rmdir()
        get_foreign_lock(home).mkdir()
        before = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: before() + 60)
        with pytest.raises(LockUnavailable):
            held.confirm_held()
    monkeypatch.undo()
    assert get_foreign_lock(home).is_dir(), "the lock of the other program is not touched"


async def test_a_held_lock_is_kept_fresh(
    create_lock: Callable[..., SharedFileLock], home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shoal.stores.files.locks.foreign_lock.REFRESH_INTERVAL", 0.05)
    async with create_lock():
        old = time.time() - 8
        made = get_foreign_lock(home).stat().st_mtime_ns
        async with asyncio.timeout(30):
            while get_foreign_lock(home).stat().st_mtime_ns == made:
                await asyncio.sleep(0.01)
        assert get_foreign_lock(home).stat().st_mtime > old


async def test_a_removed_lock_file_no_longer_locks(create_lock: Callable[..., SharedFileLock], home: Path):
    first, second = create_lock(), create_lock()
    async with first.own:
        (home / "shoal" / "locks" / "box").unlink()
        async with second.own:
            third = asyncio.ensure_future(create_lock().own.__aenter__())
            done, _ = await asyncio.wait([third], timeout=0.05)
            assert not done
        await third


async def test_a_waiter_for_a_removed_lock_file_takes_the_lock_of_the_new_one(
    create_lock: Callable[..., SharedFileLock], home: Path
):
    waiter = create_lock().own
    async with create_lock().own:
        waiting = asyncio.create_task(waiter.__aenter__())
        for _ in range(100):
            await asyncio.sleep(0)
        (home / "shoal" / "locks" / "box").unlink()
    await asyncio.wait_for(waiting, 20)
    with pytest.raises(LockUnavailable):
        await create_lock(timeout=0.3).own.__aenter__()
    waiter.release()
    async with create_lock().own:
        pass


def test_a_link_in_the_home_is_not_followed(root: DirectoryHandle, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    (root.path / "teams").symlink_to(outside)
    with pytest.raises(StateFileError, match="link"):
        root.open_or_create("teams", "t")
    inside = root.open_or_create("here")
    (root.path / "here" / "file").symlink_to(outside / "secret")
    with pytest.raises(StateFileError, match="link"):
        inside.read_file("file")
    inside.replace_file("file", b"mine")
    assert (outside / "secret").read_text() == "s"
    os.mkfifo(root.path / "here" / "pipe")
    with pytest.raises(StateFileError, match="plain"):
        inside.read_file("pipe")
    for name in ("..", ".", "", "a/b", "a\0b"):
        with pytest.raises(StateFileError, match="is not a file name"):
            inside.replace_file(name, b"")
    inside.close()
