"""Waiting for flocks without blocking the event loop: a few threads wait, one lock each.

The files of stores and workspaces are opened there; this module only waits for locks on them.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeAlias

MAX_THREADS = 16
_FileKey: TypeAlias = tuple[asyncio.AbstractEventLoop, int, int]


class _FlockQueue:
    """Waiters of one loop for the flock of one file, in order; a thread waits on behalf of the first.

    A thread cannot be canceled: if its caller gives up, it keeps waiting for the next one. So callers that
    give up repeatedly on one lock leave threads for other locks.
    """

    __slots__ = ("_file", "_threads", "_tried", "_waiting")

    def __init__(self, file: _FileKey, threads: _FlockThreadPool) -> None:
        self._file = file
        self._threads = threads
        self._waiting: dict[asyncio.Future[int], int] = {}
        """Descriptor that each waiter brought."""
        self._tried: int | None = None
        """Descriptor that a thread is locking."""

    def enqueue(self, fd: int) -> asyncio.Future[int]:
        """Add a waiter; the future resolves to a descriptor that has the lock."""
        future = self._file[0].create_future()
        self._waiting[future] = fd
        if self._tried is None:
            self._start_flock_attempt()
        return future

    def cancel(self, future: asyncio.Future[int]) -> None:
        fd = self._waiting.pop(future, None)
        if fd is not None and fd != self._tried:
            os.close(fd)

    def acquire_in_thread(self) -> None:
        """Wait for the lock; runs in a thread."""
        fd = self._tried
        assert fd is not None
        acquired, failure = False, None
        try:
            if self._waiting:
                fcntl.flock(fd, fcntl.LOCK_EX)
                acquired = True
        except OSError as error:
            failure = error
        try:
            self._file[0].call_soon_threadsafe(self._deliver_lock_to_waiter, fd, acquired, failure)
        except RuntimeError:  # the loop was closed meanwhile
            self._threads.remove_queue(self._file)
            os.close(fd)

    def _start_flock_attempt(self) -> None:
        self._tried = next(iter(self._waiting.values()))
        self._threads.submit(self)

    def _deliver_lock_to_waiter(self, fd: int, acquired: bool, failure: OSError | None) -> None:  # noqa: FBT001 - the loop passes it positionally
        for canceled in [future for future in self._waiting if future.done()]:
            self.cancel(canceled)  # its task has not run since
        self._tried = None
        waiter = next(iter(self._waiting), None)
        if waiter is None or not (acquired or failure):
            # Nobody waits any more, or somebody joined after the thread saw nobody. Closing frees the lock.
            if fd not in self._waiting.values():
                os.close(fd)
        else:
            waiter_fd = self._waiting.pop(waiter)
            if waiter_fd != fd:
                os.close(waiter_fd)
            if failure is None:
                waiter.set_result(fd)
            else:
                os.close(fd)
                waiter.set_exception(failure)
        if self._waiting:
            self._start_flock_attempt()
        else:
            self._threads.remove_queue(self._file)


class _FlockThreadPool:
    """Daemon threads: a process may exit while a hung process holds a lock it waits for."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_FlockQueue] = SimpleQueue()
        self._count = 0
        self._busy = 0
        self._guard = threading.Lock()
        self._queues: dict[_FileKey, _FlockQueue] = {}

    def get_queue(self, fd: int) -> _FlockQueue:
        status = os.fstat(fd)
        file = (asyncio.get_running_loop(), status.st_dev, status.st_ino)
        if file not in self._queues:
            self._queues[file] = _FlockQueue(file, self)
        return self._queues[file]

    def remove_queue(self, file: _FileKey) -> None:
        self._queues.pop(file, None)

    def submit(self, queue: _FlockQueue) -> None:
        with self._guard:
            self._busy += 1
            if self._busy > self._count and self._count < MAX_THREADS:
                self._count += 1
                threading.Thread(target=self._run_worker, name="shoal-flock", daemon=True).start()
        self._jobs.put(queue)

    def _run_worker(self) -> None:
        while True:
            self._jobs.get().acquire_in_thread()
            with self._guard:
                self._busy -= 1


_pool = _FlockThreadPool()


def _reset_flock_pool_after_fork() -> None:
    global _pool  # noqa: PLW0603 - a forked child has none of its parent's threads
    _pool = _FlockThreadPool()


os.register_at_fork(after_in_child=_reset_flock_pool_after_fork)


async def acquire_flock(fd: int) -> int:
    """Wait for the lock and return the descriptor that has it, which may be another one of the same file.

    If the caller is canceled, the descriptor is closed now or as soon as possible.
    """
    queue = _pool.get_queue(fd)
    future = queue.enqueue(fd)
    try:
        return await future
    except BaseException:
        if future.done() and not future.cancelled() and future.exception() is None:
            with suppress(OSError):
                os.close(future.result())  # canceled after delivery: ours to close
        queue.cancel(future)
        raise
