"""Client of the database of a store, for callers in any thread and event loop.

Connections live in a separate thread with its own event loop: a store's ports are called from any event loop
and partly without one, and a busy event loop must not cost the process its lease.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from shoal.core.errors import StateFileError
from shoal.stores.postgres.database_worker import DatabaseWorker, StoreTiming
from shoal.stores.postgres.shared_parts import SharedParts
from shoal.stores.postgres.suspended_tasks import is_suspendable, suspend_until_done

T = TypeVar("T")
WorkerCall = Callable[[DatabaseWorker], Coroutine[Any, Any, T]]


class DatabaseClient:
    def __init__(self, address: str, *, timing: StoreTiming | None = None) -> None:
        self.address = address
        self.shown_address = hide_password(address)
        self._timing = timing or StoreTiming()
        self.shared_parts = SharedParts()
        self._start_lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._worker: DatabaseWorker | None = None
        self._pid = 0
        self._is_closed = False

    @property
    def is_usable(self) -> bool:
        """False if this client was closed or lost its lease: another one has to be opened."""
        lost = self._worker is not None and self._worker.has_lost_lease
        return not self._is_closed and not lost and self._pid in (0, os.getpid())

    @property
    def epoch(self) -> int:
        """Fencing epoch of this process."""
        return self._ensure_started()[0].epoch

    def run(self, call: WorkerCall[T]) -> T:
        """Run a call in the client's thread and wait for it."""
        worker, loop = self._ensure_started()
        if is_suspendable():
            return suspend_until_done(self._start_call(worker, loop, call)[0])
        try:
            return asyncio.run_coroutine_threadsafe(call(worker), loop).result()
        except CancelledError:
            raise self._build_closed_error() from None

    async def call(self, call: WorkerCall[T], *, undo: Callable[[T], None] | None = None) -> T:
        """Run a call in the client's thread. It is completed even if the caller is canceled.

        `undo` then gets the result that nobody received, in any thread.
        """
        if self._worker is None:
            await asyncio.to_thread(self._ensure_started)
        worker, worker_loop = self._ensure_started()
        received, started = self._start_call(worker, worker_loop, call)

        def abandon() -> None:
            if undo is not None:
                started[0].add_done_callback(lambda task: _undo_result(task, undo))

        try:
            return await received
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # the client was closed
                worker_loop.call_soon_threadsafe(abandon)
            raise

    def _start_call(
        self, worker: DatabaseWorker, worker_loop: asyncio.AbstractEventLoop, call: WorkerCall[T]
    ) -> tuple[asyncio.Future[T], list[asyncio.Task[T]]]:
        """Start a call; return a future of the caller's event loop, and a list that will contain the task."""
        loop = asyncio.get_running_loop()
        received: asyncio.Future[T] = loop.create_future()
        started: list[asyncio.Task[T]] = []

        # By hand, because the futures of `run_coroutine_threadsafe` cost more than a statement.
        def start() -> None:
            started.append(worker.start_task(call(worker)))
            started[0].add_done_callback(finish)

        def finish(task: asyncio.Task[T]) -> None:
            with suppress(RuntimeError):  # the event loop of the caller was closed
                loop.call_soon_threadsafe(self._hand_over, task, received)

        worker_loop.call_soon_threadsafe(start)
        return received, started

    def _hand_over(self, task: asyncio.Task[T], received: asyncio.Future[T]) -> None:
        error = self._build_closed_error() if task.cancelled() else task.exception()
        if received.cancelled():
            return
        if error is not None:
            received.set_exception(error)
        else:
            received.set_result(task.result())

    def send(self, callback: Callable[[DatabaseWorker], object]) -> None:
        """Run a callback in the client's thread without waiting for it."""
        worker, loop = self._ensure_started()
        loop.call_soon_threadsafe(callback, worker)

    def close(self) -> None:
        """End the lease of this process, and its connections."""
        atexit.unregister(self.close)
        with self._start_lock:
            self._is_closed = True
            worker, loop, thread = self._worker, self._loop, self._thread
            self._worker = self._loop = self._thread = None
        if worker is None or loop is None or thread is None or self._pid != os.getpid():
            return
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(worker.aclose(), loop).result(timeout=5)
        _stop_loop(loop, thread)

    def _ensure_started(self) -> tuple[DatabaseWorker, asyncio.AbstractEventLoop]:
        with self._start_lock:
            if self._is_closed or self._pid not in (0, os.getpid()):
                raise self._build_closed_error()
            if self._worker is None or self._loop is None:
                self._start_thread()
            assert self._worker is not None
            assert self._loop is not None
            return self._worker, self._loop

    def _build_closed_error(self) -> StateFileError:
        return StateFileError(f"The store {self.shown_address} was closed.", path=Path())

    def _start_thread(self) -> None:
        loop = _create_event_loop()
        thread = threading.Thread(target=_run_loop, args=(loop,), name="shoal-store", daemon=True)
        thread.start()

        async def open_worker() -> DatabaseWorker:
            worker = DatabaseWorker(self.address, self.shown_address, self._timing)
            await worker.open()
            return worker

        try:
            self._worker = asyncio.run_coroutine_threadsafe(open_worker(), loop).result()
        except BaseException:
            _stop_loop(loop, thread)
            raise
        self._loop, self._thread, self._pid = loop, thread, os.getpid()
        atexit.register(self.close)


def _undo_result(task: asyncio.Task[T], undo: Callable[[T], None]) -> None:
    if not task.cancelled() and task.exception() is None:
        undo(task.result())


def _create_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of uvloop if it is installed: a statement then costs a third less time."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=5)


def hide_password(address: str) -> str:
    """Return the address for messages, without its password and options."""
    parts = urlsplit(address)
    user, separator, place = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, f"{user.partition(':')[0]}{separator}{place}", parts.path, "", ""))


_SHARED_CLIENTS: dict[str, DatabaseClient] = {}
_SHARED_LOCK = threading.Lock()


def get_shared_client(address: str) -> DatabaseClient:
    """Return the client of this process for an address: all its stores share one lease."""
    with _SHARED_LOCK:
        client = _SHARED_CLIENTS.get(address)
        if client is None or not client.is_usable:
            client = _SHARED_CLIENTS[address] = DatabaseClient(address)
        return client
