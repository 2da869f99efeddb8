"""The lock of a record: among our processes, beside programs that know only the directory, after kill -9."""

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

from shoal.core.errors import LockUnavailable, StoreError
from shoal.stores.files.flock_queue import MOST_THREADS
from shoal.stores.files.handles import Directory
from shoal.stores.files.record_locks import RecordLock

PROCESS = Path(__file__).with_name("lock_process.py")


@pytest.fixture
def root(home: Path) -> Iterator[Directory]:
    directory = Directory.root(home)
    yield directory
    directory.close()


@pytest.fixture
def record(root: Directory) -> Iterator[Callable[..., RecordLock]]:
    """Makes locks of the same record, each as another process would have it."""
    opened: list[Directory] = []

    def make(name: str = "box", **how: Any) -> RecordLock:
        locks, boxes = root.within("shoal", "locks"), root.within("boxes")
        opened.extend((locks, boxes))
        return RecordLock(locks, name, beside=boxes, file=f"{name}.json", **how)

    yield make
    for directory in opened:
        directory.close()


def start(home: Path, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, PROCESS, home, what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def foreign_lock(home: Path) -> Path:
    return home / "boxes" / "box.json.lock"


async def test_while_it_is_held_the_directory_other_programs_know_is_there_and_empty(
    record: Callable[..., RecordLock], home: Path
):
    async with record():
        assert foreign_lock(home).is_dir()
        assert not list(foreign_lock(home).iterdir())
    assert not foreign_lock(home).exists()


async def test_tasks_of_one_process_get_it_in_the_order_in_which_they_asked(
    record: Callable[..., RecordLock],
):
    lock, order = record(), []

    async def hold(number: int):
        async with lock:
            order.append(number)

    async with asyncio.TaskGroup() as group, lock:
        for number in range(20):
            group.create_task(hold(number))
        await asyncio.sleep(0)
        assert order == []
    assert order == list(range(20))


@pytest.mark.spec("USR-15")
async def test_updates_of_several_processes_are_all_there(home: Path):
    home.mkdir()
    processes = [start(home, "count200") for _ in range(5)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert (home / "boxes" / "box.json").read_bytes() == b"1000"
    assert not foreign_lock(home).exists()


async def test_a_cancelled_waiter_never_keeps_the_lock(record: Callable[..., RecordLock]):
    first, second, third = record(), record(), record()
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


async def test_many_waiters_cancelled_at_random_leave_the_lock_free(record: Callable[..., RecordLock]):
    locks = [record() for _ in range(30)]

    async def hold(lock: RecordLock):
        async with lock:
            await asyncio.sleep(0)

    async with record():
        tasks = [asyncio.ensure_future(hold(lock)) for lock in locks]
        await asyncio.sleep(0.02)
        for task in tasks[::2]:
            task.cancel()
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
    assert [r for r in results if not isinstance(r, asyncio.CancelledError)] == [None] * 15
    async with asyncio.timeout(30), record():
        pass


@pytest.mark.parametrize("at_once", [1, 2 * MOST_THREADS])
async def test_those_who_give_up_on_one_lock_do_not_keep_others_from_another(
    record: Callable[..., RecordLock], at_once: int
):
    """Each wait is a thread's, and there are not many of those."""

    async def give_up():
        with pytest.raises(LockUnavailable):
            await record(patience=0.05).__aenter__()

    async with record():
        for _ in range(2 * MOST_THREADS // at_once):
            await asyncio.gather(*[give_up() for _ in range(at_once)])
        async with record("other"):
            waiting = asyncio.ensure_future(record("other", patience=5).__aenter__())
            done, _ = await asyncio.wait([waiting], timeout=0.05)
            assert not done
        await waiting
    async with asyncio.timeout(5), record():
        pass


async def test_one_who_was_given_up_on_does_not_have_the_lock_when_it_is_wanted_again(
    record: Callable[..., RecordLock],
):
    async with record():
        with pytest.raises(LockUnavailable):
            await record(patience=0.01).__aenter__()
        again = asyncio.ensure_future(record(patience=5).__aenter__())
        done, _ = await asyncio.wait([again], timeout=0.05)
        assert not done
    held = await again
    held.confirm()
    with pytest.raises(LockUnavailable):
        await record(patience=0.01).__aenter__()


async def test_who_wants_a_lock_now_or_not_at_all_never_waits(record: Callable[..., RecordLock]):
    lock = record().own
    async with lock:
        next_one = asyncio.ensure_future(lock.__aenter__())
        await asyncio.sleep(0)
    # It is free, and yet promised to the one who waits.
    asked = lock.take_now()
    with pytest.raises(StopIteration) as answer:
        asked.send(None)
    assert answer.value.value is False
    await next_one
    await lock.__aexit__(None, None, None)
    assert await lock.take_now()
    await lock.__aexit__(None, None, None)


async def test_a_lock_of_the_dead_that_another_program_removes_meanwhile_is_made_anew(
    root: Directory, home: Path
):
    """It is stale to that program, too, which removes it between our look and our hand."""

    class Shared(Directory):
        def status(self, name: str):
            seen = super().status(name)
            if seen is not None and not removed:
                removed.append(name)
                os.rmdir(name, dir_fd=self.fd)
            return seen

    removed: list[str] = []
    locks, boxes = root.within("shoal", "locks"), root.within("boxes")
    foreign_lock(home).mkdir(mode=0o1700)
    shared = Shared(boxes.path, os.dup(boxes.fd))
    with locks, boxes, shared:
        async with RecordLock(locks, "box", beside=shared, file="box.json"):
            assert removed
            assert foreign_lock(home).is_dir()


async def test_waiting_does_not_stop_the_event_loop(record: Callable[..., RecordLock]):
    ticks = 0
    async with record():
        waiting = asyncio.ensure_future(record().__aenter__())
        for _ in range(50):
            await asyncio.sleep(0)
            ticks += 1
        assert not waiting.done()
        waiting.cancel()
    assert ticks == 50
    await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.spec("USR-15")
@pytest.mark.parametrize("patience", [0.2])
async def test_a_lock_that_is_not_to_be_had_in_time_is_refused(
    record: Callable[..., RecordLock], home: Path, patience: float
):
    async with record():
        with pytest.raises(LockUnavailable):
            await record(patience=patience).__aenter__()
    foreign_lock(home).mkdir()
    with pytest.raises(LockUnavailable, match=r"box\.json\.lock"):
        await record(patience=patience).__aenter__()
    assert foreign_lock(home).is_dir()
    foreign_lock(home).rmdir()
    async with record(patience=patience):
        pass


async def test_a_foreign_lock_is_waited_for(record: Callable[..., RecordLock], home: Path):
    lock = record()
    foreign_lock(home).mkdir()
    threading.Timer(0.1, foreign_lock(home).rmdir).start()
    async with lock:
        assert foreign_lock(home).is_dir()


async def test_a_stale_foreign_lock_is_taken_over_and_a_fresh_one_is_not(
    record: Callable[..., RecordLock], home: Path
):
    lock = record(patience=0.3)
    foreign_lock(home).mkdir()
    os.utime(foreign_lock(home), (time.time() - 9, time.time() - 9))
    with pytest.raises(LockUnavailable):
        await lock.__aenter__()
    os.utime(foreign_lock(home), (time.time() - 11, time.time() - 11))
    async with lock:
        assert time.time() - foreign_lock(home).stat().st_mtime < 5


@pytest.mark.spec("USR-15")
async def test_the_lock_of_a_killed_process_is_taken_over_at_once(
    record: Callable[..., RecordLock], home: Path
):
    home.mkdir(exist_ok=True)
    lock = record()
    process = start(home, "die")
    assert process.stdout.readline() == "held\n"
    process.communicate("now\n", timeout=10)
    assert process.returncode == -9
    assert foreign_lock(home).is_dir()
    since = time.monotonic()
    async with lock:
        assert time.monotonic() - since < 5, "others wait for 10 s until a lock is stale"


async def test_a_fresh_lock_of_another_program_is_not_taken_for_one_a_dead_process_left(
    record: Callable[..., RecordLock], home: Path
):
    process = start(home, "die")
    assert process.stdout.readline() == "held\n"
    process.communicate("now\n", timeout=10)
    foreign_lock(home).rmdir()
    foreign_lock(home).mkdir()
    with pytest.raises(LockUnavailable):
        await record(patience=0.3).__aenter__()


async def test_the_lock_is_fresh_when_it_is_taken_again(record: Callable[..., RecordLock], home: Path):
    """A spare directory is moved in: its old time must not make others think it stale."""
    lock = record()
    async with lock:
        pass
    for spare in (home / "shoal" / "locks").glob("spare-*"):
        os.utime(spare, (1, 1))
    async with lock:
        assert time.time() - foreign_lock(home).stat().st_mtime < 5


async def test_one_who_was_stopped_for_long_learns_that_the_lock_was_taken_over(
    record: Callable[..., RecordLock], home: Path, monkeypatch: pytest.MonkeyPatch
):
    async with record() as held:
        held.confirm()
        foreign_lock(home).rmdir()
        foreign_lock(home).mkdir()
        before = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: before() + 60)
        with pytest.raises(LockUnavailable):
            held.confirm()
    monkeypatch.undo()
    assert foreign_lock(home).is_dir(), "the lock of the other program is left alone"


async def test_a_held_lock_is_kept_fresh(
    record: Callable[..., RecordLock], home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shoal.stores.files.foreign_lock.REFRESH", 0.05)
    async with record():
        old = time.time() - 8
        made = foreign_lock(home).stat().st_mtime_ns
        async with asyncio.timeout(30):
            while foreign_lock(home).stat().st_mtime_ns == made:
                await asyncio.sleep(0.01)
        assert foreign_lock(home).stat().st_mtime > old


async def test_a_lock_file_that_was_removed_meanwhile_guards_nothing(
    record: Callable[..., RecordLock], home: Path
):
    first, second = record(), record()
    async with first.own:
        (home / "shoal" / "locks" / "box").unlink()
        async with second.own:
            third = asyncio.ensure_future(record().own.__aenter__())
            done, _ = await asyncio.wait([third], timeout=0.05)
            assert not done
        await third


def test_a_link_in_the_home_is_not_followed(root: Directory, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    (root.path / "teams").symlink_to(outside)
    with pytest.raises(StoreError, match="link"):
        root.within("teams", "t")
    inside = root.within("here")
    (root.path / "here" / "file").symlink_to(outside / "secret")
    with pytest.raises(StoreError, match="link"):
        inside.read("file")
    inside.replace("file", b"mine")
    assert (outside / "secret").read_text() == "s"
    os.mkfifo(root.path / "here" / "pipe")
    with pytest.raises(StoreError, match="plain"):
        inside.read("pipe")
    for name in ("..", ".", "", "a/b", "a\0b"):
        with pytest.raises(StoreError, match="not the name"):
            inside.replace(name, b"")
    inside.close()
