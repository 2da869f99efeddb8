"""Client of the database of a store, for callers in any thread and event loop.

Connections live in a separate thread with its own event loop: a store's ports are called from any event loop
and partly without one, and a busy event loop must not cost the process its lease.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from shoal.core.errors import StateFileError
from shoal.stores.postgres.database_address import check_database_address, hide_password
from shoal.stores.postgres.database_worker import DatabaseWorker, StoreTiming
from shoal.stores.postgres.line_writer import LineCall, NewLine
from shoal.stores.postgres.shared_parts import SharedParts
from shoal.stores.postgres.suspended_tasks import is_suspendable, suspend_until_done

T = TypeVar("T")
WorkerCall = Callable[[DatabaseWorker], Coroutine[Any, Any, T]]


class _CallQueue:
    """Callbacks for the event loop of another thread, which is woken once for all that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weak: the queues of event loops are kept by these.
        self._loop = ref(loop)
        self._callbacks: deque[Callable[[], object]] = deque()
        self._is_woken = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop()

    def put(self, callback: Callable[[], object]) -> None:
        """Raises `RuntimeError` if the event loop was closed."""
        self._callbacks.append(callback)
        # The other thread resets it before it takes callbacks, so none is left behind.
        if not self._is_woken:
            self._wake()

    def _wake(self) -> None:
        loop = self._loop()
        if loop is None:
            return
        self._is_woken = True  # before the other thread may reset it
        try:
            loop.call_soon_threadsafe(self._run_callbacks)
        except RuntimeError:
            self._is_woken = False
            raise

    def _run_callbacks(self) -> None:
        self._is_woken = False
        try:
            while self._callbacks:
                self._callbacks.popleft()()
        finally:
            if self._callbacks:
                self._wake()


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
        self._requests: _CallQueue | None = None
        self._replies: WeakKeyDictionary[asyncio.AbstractEventLoop, _CallQueue] = WeakKeyDictionary()

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

    def append_lines(self, lines: Sequence[NewLine]) -> int:
        """Store lines and wait for it; return the place of the last one."""
        worker, loop = self._ensure_started()
        if is_suspendable():
            received: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            replies = self._get_replies(asyncio.get_running_loop())

            def finish(call: LineCall) -> None:
                with suppress(RuntimeError):  # the event loop of the caller was closed
                    replies.put(lambda: self._finish_lines(call, received))

            self._put_request(loop, lambda: worker.lines.append(LineCall(lines, finish)))
            return suspend_until_done(received)
        stored: Future[int] = Future()
        call = LineCall(lines, lambda call: self._finish_lines(call, stored))
        loop.call_soon_threadsafe(worker.lines.append, call)
        return stored.result()

    def _finish_lines(self, call: LineCall, received: asyncio.Future[int] | Future[int]) -> None:
        if received.done():
            return
        if isinstance(call.error, asyncio.CancelledError):
            received.set_exception(self._build_closed_error())
        elif call.error is not None:
            received.set_exception(call.error)
        else:
            received.set_result(call.place)

    def _start_call(
        self, worker: DatabaseWorker, worker_loop: asyncio.AbstractEventLoop, call: WorkerCall[T]
    ) -> tuple[asyncio.Future[T], list[asyncio.Task[T]]]:
        """Start a call; return a future of the caller's event loop, and a list that will contain the task."""
        loop = asyncio.get_running_loop()
        received: asyncio.Future[T] = loop.create_future()
        started: list[asyncio.Task[T]] = []
        replies = self._get_replies(loop)

        # By hand, because the futures of `run_coroutine_threadsafe` cost more than a statement.
        def start() -> None:
            started.append(worker.start_task(call(worker)))
            started[0].add_done_callback(finish)

        def finish(task: asyncio.Task[T]) -> None:
            with suppress(RuntimeError):  # the event loop of the caller was closed
                replies.put(lambda: self._hand_over(task, received))

        self._put_request(worker_loop, start)
        return received, started

    def _put_request(self, worker_loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        if self._requests is None or self._requests.loop is not worker_loop:
            self._requests = _CallQueue(worker_loop)
        self._requests.put(callback)

    def _get_replies(self, loop: asyncio.AbstractEventLoop) -> _CallQueue:
        replies = self._replies.get(loop)
        if replies is None:
            replies = self._replies[loop] = _CallQueue(loop)
        return replies

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


_SHARED_CLIENTS: dict[str, DatabaseClient] = {}
_SHARED_LOCK = threading.Lock()


def get_shared_client(address: str) -> DatabaseClient:
    """Return the client of this process for an address: all its stores share one lease.

    Raises `SettingsError` if the address is not valid.
    """
    check_database_address(address)
    with _SHARED_LOCK:
        client = _SHARED_CLIENTS.get(address)
        if client is None or not client.is_usable:
            client = _SHARED_CLIENTS[address] = DatabaseClient(address)
        return client
