"""Waiting for flocks without blocking the event loop: a few threads wait, one lock each."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeAlias

MOST_THREADS = 16
_File: TypeAlias = tuple[asyncio.AbstractEventLoop, int, int]


class _Queue:
    """Waiters of one loop for the flock of one file, in order; a thread waits on behalf of the first.

    A thread cannot be cancelled: if its caller gives up, it waits on for the next. So callers that give up
    repeatedly on one lock leave threads for other locks.
    """

    __slots__ = ("_file", "_threads", "_tried", "_waiting")

    def __init__(self, file: _File, threads: _Threads) -> None:
        self._file = file
        self._threads = threads
        self._waiting: dict[asyncio.Future[int], int] = {}
        """Descriptor that each waiter brought."""
        self._tried = -1
        """Descriptor that a thread is locking."""

    def join(self, fd: int) -> asyncio.Future[int]:
        """Add a waiter; the future resolves to a descriptor that has the lock."""
        given = self._file[0].create_future()
        self._waiting[given] = fd
        if self._tried < 0:
            self._try()
        return given

    def leave(self, given: asyncio.Future[int]) -> None:
        fd = self._waiting.pop(given, -1)
        if fd not in (-1, self._tried):
            os.close(fd)

    def run(self) -> None:
        """Wait for the lock; runs in a thread."""
        taken, failure = False, None
        try:
            if self._waiting:
                fcntl.flock(self._tried, fcntl.LOCK_EX)
                taken = True
        except OSError as error:
            failure = error
        try:
            self._file[0].call_soon_threadsafe(self._give, taken, failure)
        except RuntimeError:  # the loop was closed meanwhile
            self._threads.forget(self._file)
            os.close(self._tried)

    def _try(self) -> None:
        self._tried = next(iter(self._waiting.values()))
        self._threads.add(self)

    def _give(self, taken: bool, failure: OSError | None) -> None:  # noqa: FBT001 - the loop calls it so
        fd, self._tried = self._tried, -1
        first = next(iter(self._waiting), None)
        if first is None or not (taken or failure):
            # Nobody waits any more, or somebody joined after the thread saw nobody. Closing frees the lock.
            if fd not in self._waiting.values():
                os.close(fd)
        else:
            brought = self._waiting.pop(first)
            if brought != fd:
                os.close(brought)
            if failure is None:
                first.set_result(fd)
            else:
                os.close(fd)
                first.set_exception(failure)
        if self._waiting:
            self._try()
        else:
            self._threads.forget(self._file)


class _Threads:
    """Daemon threads: a process may exit while a hung process holds a lock it waits for."""

    def __init__(self) -> None:
        self._wanted: SimpleQueue[_Queue] = SimpleQueue()
        self._count = 0
        self._busy = 0
        self._guard = threading.Lock()
        self._queues: dict[_File, _Queue] = {}

    def queue_for(self, fd: int) -> _Queue:
        status = os.fstat(fd)
        file = (asyncio.get_running_loop(), status.st_dev, status.st_ino)
        if file not in self._queues:
            self._queues[file] = _Queue(file, self)
        return self._queues[file]

    def forget(self, file: _File) -> None:
        self._queues.pop(file, None)

    def add(self, queue: _Queue) -> None:
        with self._guard:
            self._busy += 1
            if self._busy > self._count and self._count < MOST_THREADS:
                self._count += 1
                threading.Thread(target=self._serve, name="shoal-flock", daemon=True).start()
        self._wanted.put(queue)

    def _serve(self) -> None:
        while True:
            self._wanted.get().run()
            with self._guard:
                self._busy -= 1


_threads = _Threads()


def _anew() -> None:
    global _threads  # noqa: PLW0603 - a forked child has none of its parent's threads
    _threads = _Threads()


os.register_at_fork(after_in_child=_anew)


async def flock(fd: int) -> int:
    """Wait for the lock and return the descriptor that has it, which may be another one of the same file.

    If the caller is cancelled, the descriptor is closed now or as soon as possible.
    """
    queue = _threads.queue_for(fd)
    given = queue.join(fd)
    try:
        return await given
    except BaseException:
        if given.done() and not given.cancelled() and given.exception() is None:
            with suppress(OSError):
                os.close(given.result())  # cancelled after delivery: ours to close
        queue.leave(given)
        raise
