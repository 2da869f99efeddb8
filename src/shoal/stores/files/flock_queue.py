"""Waiting for a flock without stopping the event loop: a few threads wait, one lock each."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from contextlib import suppress
from queue import SimpleQueue

MOST_THREADS = 16


class _Wait:
    """A descriptor whose flock is wanted. The descriptor belongs to the wait until it is given away."""

    __slots__ = ("fd", "given", "loop")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.loop = asyncio.get_running_loop()
        self.given: asyncio.Future[None] = self.loop.create_future()

    def run(self) -> None:
        """In a thread."""
        failure: OSError | None = None
        try:
            if not self.given.cancelled():
                fcntl.flock(self.fd, fcntl.LOCK_EX)
        except OSError as error:
            failure = error
        try:
            self.loop.call_soon_threadsafe(self._give, failure)
        except RuntimeError:  # the loop was closed meanwhile
            os.close(self.fd)

    def _give(self, failure: OSError | None) -> None:
        if self.given.done():
            os.close(self.fd)  # nobody waits any more; closing frees the lock
        elif failure is not None:
            self.given.set_exception(failure)
        else:
            self.given.set_result(None)


class _Threads:
    """Daemons: a process may end while a lock it wants is held by another that stands still."""

    def __init__(self) -> None:
        self._waits: SimpleQueue[_Wait] = SimpleQueue()
        self._count = 0
        self._busy = 0
        self._guard = threading.Lock()

    def add(self, wait: _Wait) -> None:
        with self._guard:
            self._busy += 1
            if self._busy > self._count and self._count < MOST_THREADS:
                self._count += 1
                threading.Thread(target=self._serve, name="shoal-flock", daemon=True).start()
        self._waits.put(wait)

    def _serve(self) -> None:
        while True:
            self._waits.get().run()
            with self._guard:
                self._busy -= 1


_threads = _Threads()


def _anew() -> None:
    global _threads  # noqa: PLW0603 - a forked child has none of its parent's threads
    _threads = _Threads()


os.register_at_fork(after_in_child=_anew)


async def flock(fd: int) -> None:
    """Wait for the lock. If the caller is cancelled the descriptor is closed, now or as soon as possible."""
    wait = _Wait(fd)
    _threads.add(wait)
    try:
        await wait.given
    except BaseException:
        # Cancelled after it was given: ours to close. Cancelled before: `_give` closes it.
        if not wait.given.cancelled():
            with suppress(OSError):
                os.close(fd)
        raise
