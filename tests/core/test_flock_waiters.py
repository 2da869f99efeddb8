"""Waiters for a flock: failures and cancellations leave no lock and no descriptor behind."""

from __future__ import annotations

import asyncio
import fcntl
import os
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
