"""Background hooks: concurrency limit, waiting for results, and shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, TypeVar

from shoal.core.task_groups import exit_task_group_without_wrapping

_Job = TypeVar("_Job")
MAX_RUNNING = 16
MAX_QUEUED = 256
"""Number of hooks that may wait for a free slot."""


class BackgroundHookRunner(Generic[_Job]):
    """Runs background hooks for the life of the session; leaving the context stops those still running."""

    def __init__(self) -> None:
        self._change_listeners: list[Callable[[], None]] = []
        self._tasks = asyncio.TaskGroup()
        self._open = False
        self._running: dict[asyncio.Task[None], _Job] = {}
        self._awaited: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_RUNNING)
        self._quiet: asyncio.Event | None = None

    async def __aenter__(self) -> BackgroundHookRunner[_Job]:
        await self._tasks.__aenter__()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop_all()
        finally:
            await exit_task_group_without_wrapping(self._tasks, kind, error, trace)

    def add_change_listener(self, listener: Callable[[], None]) -> None:
        """Call the listener whenever a hook whose result is awaited starts or ends."""
        self._change_listeners.append(listener)

    def _notify_change_listeners(self) -> None:
        for listener in self._change_listeners:
            listener()

    @property
    def is_open(self) -> bool:
        """True until the session ends; after that, hooks run in the foreground."""
        return self._open

    @property
    def is_full(self) -> bool:
        return len(self._running) >= MAX_RUNNING + MAX_QUEUED

    @property
    def has_free_slot(self) -> bool:
        """True if another hook could start immediately."""
        return self._open and len(self._running) < MAX_RUNNING

    @property
    def has_waking_hooks(self) -> bool:
        """True if a running hook may wake an agent."""
        return bool(self._awaited)

    async def wait_until_no_waking_hooks(self) -> None:
        """Wait until no running hook can wake an agent."""
        while self._awaited:
            self._quiet = self._quiet or asyncio.Event()
            await self._quiet.wait()

    def start_hook_job(
        self, job: _Job, work: Callable[[], Coroutine[Any, Any, None]], *, awaited: bool
    ) -> None:
        """Start a job; `stop_all` returns `job` if it is still running then."""
        task = self._tasks.create_task(self._run_in_slot(work))
        self._running[task] = job
        if awaited:
            self._awaited.add(task)
            self._notify_change_listeners()
        task.add_done_callback(self._on_hook_task_done)

    async def stop_all(self) -> tuple[_Job, ...]:
        """Stop all running and queued jobs and return them; no job starts afterward."""
        self._open = False
        # A task that is canceled before its first step never runs and would leak what it was handed.
        await asyncio.sleep(0)
        running = dict(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        return tuple(job for task, job in running.items() if task.cancelled())

    async def _run_in_slot(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._slots:
            await work()

    def _on_hook_task_done(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if task not in self._awaited:
            return
        self._awaited.discard(task)
        if self._quiet is not None:
            self._quiet.set()
            self._quiet = None
        self._notify_change_listeners()
