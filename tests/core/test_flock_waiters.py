"""Waiters for a flock: failures and cancellations leave no lock and no descriptor behind."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.core import flock_queue
from shoal.core.flock_queue import acquire_flock


def open_lock_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)


async def test_a_flock_that_fails_raises_the_error_and_closes_the_descriptor(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    fd = os.open(tmp_path / "lock", os.O_PATH | os.O_CLOEXEC)  # it cannot be locked
    async with asyncio.timeout(30):
        with pytest.raises(OSError, match="Bad file descriptor"):
            await acquire_flock(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


async def test_a_waiter_that_is_canceled_when_it_has_the_lock_frees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered = asyncio.Event()
    deliver = flock_queue._FlockQueue._deliver_lock_to_waiter

    def deliver_and_cancel(queue: flock_queue._FlockQueue, *given: object) -> None:
        deliver(queue, *given)  # type: ignore[arg-type]
        waiting.cancel()  # before the waiter runs again
        delivered.set()

    monkeypatch.setattr(flock_queue._FlockQueue, "_deliver_lock_to_waiter", deliver_and_cancel)
    waiting = asyncio.ensure_future(acquire_flock(open_lock_file(tmp_path / "lock")))
    async with asyncio.timeout(30):
        await delivered.wait()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    other = open_lock_file(tmp_path / "lock")
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


@pytest.fixture
def new_pool(monkeypatch: pytest.MonkeyPatch) -> flock_queue._FlockThreadPool:
    pool = flock_queue._FlockThreadPool()
    monkeypatch.setattr(flock_queue, "_pool", pool)
    return pool


def hold_lock(path: Path) -> int:
    fd = open_lock_file(path)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def count_open_files(path: Path) -> int:
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            count += link.readlink() == path
    return count


async def wait_until(is_reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_reached():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("seed", range(8))
async def test_waiters_that_stay_get_the_lock_in_order_and_nothing_is_left(
    tmp_path: Path, new_pool: flock_queue._FlockThreadPool, seed: int
) -> None:
    """Waiters give up before they are served, while a thread waits for them, and when they have the lock."""
    chance, path = random.Random(seed), tmp_path / "lock"
    served: list[int] = []

    async def wait_for_turn(number: int) -> None:
        fd = await acquire_flock(open_lock_file(path))
        assert not try_flock_once(path), "a waiter has the lock"
        served.append(number)
        os.close(fd)

    holder = hold_lock(path)
    waiters = [asyncio.create_task(wait_for_turn(number)) for number in range(12)]
    quitters = [*chance.sample(range(12), 5), 0]
    quits_early = chance.sample(quitters, 3)
    await asyncio.sleep(0)
    for number in quits_early:
        waiters[number].cancel()
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
    os.close(holder)
    for number in quitters:
        waiters[number].cancel()
        await asyncio.sleep(chance.choice([0, 0, 0.001]))
    async with asyncio.timeout(30):
        await asyncio.gather(*waiters, return_exceptions=True)
    assert served == sorted(served)
    assert set(range(12)) - set(quitters) <= set(served)
    await wait_until(lambda: not count_open_files(path))
    assert not new_pool._queues
    assert try_flock_once(path)


async def test_a_lock_is_not_delivered_to_a_waiter_that_has_just_given_up(
    tmp_path: Path, new_pool: flock_queue._FlockThreadPool
) -> None:
    path = tmp_path / "lock"
    holder = hold_lock(path)
    first, second = (asyncio.create_task(acquire_flock(open_lock_file(path))) for _ in range(2))
    await asyncio.sleep(0)
    os.close(holder)
    while new_pool._busy:  # afterward, the event loop is about to deliver the lock
        os.sched_yield()
    first.cancel()
    async with asyncio.timeout(30):
        fd = await second
    assert first.cancelled()
    assert count_open_files(path) == 1
    os.close(fd)
    assert try_flock_once(path)


def try_flock_once(path: Path) -> bool:
    fd = open_lock_file(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


async def test_a_waiter_after_one_whose_flock_fails_gets_the_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    cannot_be_locked = os.open(tmp_path / "lock", os.O_PATH | os.O_CLOEXEC)
    async with asyncio.timeout(30):
        failed, fd = await asyncio.gather(
            acquire_flock(cannot_be_locked),
            acquire_flock(open_lock_file(tmp_path / "lock")),
            return_exceptions=True,
        )
    assert isinstance(failed, OSError)
    assert isinstance(fd, int)
    assert not try_flock_once(tmp_path / "lock")
    os.close(fd)
    assert count_open_files(tmp_path / "lock") == 0


async def test_few_threads_wait_for_many_locks_and_are_used_again(
    tmp_path: Path, new_pool: flock_queue._FlockThreadPool
) -> None:
    others = set(threading.enumerate())

    def count_threads() -> int:
        return len([each for each in set(threading.enumerate()) - others if each.name == "shoal-flock"])

    async with asyncio.timeout(60):
        for _ in range(60):
            os.close(await acquire_flock(open_lock_file(tmp_path / "one")))
        assert count_threads() < flock_queue.MAX_THREADS
        paths = [tmp_path / str(number) for number in range(flock_queue.MAX_THREADS + 4)]
        holders = [hold_lock(path) for path in paths]
        waiting = [asyncio.create_task(acquire_flock(open_lock_file(path))) for path in paths]
        await asyncio.sleep(0)
        assert count_threads() == flock_queue.MAX_THREADS
        for fd in holders:
            os.close(fd)
        for fd in await asyncio.gather(*waiting):
            os.close(fd)
        # Each of these needs a thread of its own.
        holders = [hold_lock(path) for path in paths[:4]]
        waiting = [asyncio.create_task(acquire_flock(open_lock_file(path))) for path in paths[:4]]
        await asyncio.sleep(0)
        os.close(holders[-1])
        os.close(await waiting[-1])
        for fd in holders[:-1]:
            os.close(fd)
        for fd in await asyncio.gather(*waiting[:-1]):
            os.close(fd)


def test_a_lock_that_is_free_after_its_loop_was_closed_is_not_kept(
    tmp_path: Path, new_pool: flock_queue._FlockThreadPool
) -> None:
    path, loop = tmp_path / "lock", asyncio.new_event_loop()
    holder = hold_lock(path)
    waiting = loop.create_task(acquire_flock(open_lock_file(path)))
    loop.run_until_complete(asyncio.sleep(0))
    loop.set_exception_handler(lambda *_: None)  # the waiter is lost with its loop
    loop.close()
    os.close(holder)
    asyncio.run(wait_until(lambda: not new_pool._queues and not count_open_files(path)))
    assert try_flock_once(path)
    del waiting


def test_a_forked_child_waits_for_locks_with_threads_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "lock"

    async def wait_once() -> None:
        holder = hold_lock(path)
        asyncio.get_running_loop().call_later(0.01, os.close, holder)
        async with asyncio.timeout(20):
            os.close(await acquire_flock(open_lock_file(path)))

    asyncio.run(wait_once())  # the threads of this process do not exist in the child
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(wait_once())
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
