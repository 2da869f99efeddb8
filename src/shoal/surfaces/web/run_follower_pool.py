"""Cache of run views: one for each run that is open in a page, shared by all pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shoal.app.run_access.run_follower import RunFollower
from shoal.app.run_access.run_handle import RunHandle
from shoal.core.clock import Clock
from shoal.core.ids import SessionId

LINGER = 10.0
"""Seconds to keep following a run without viewers, so that a reloaded page finds its view."""


class SharedRunFollower:
    """A followed run. `broken` is set when following failed."""

    def __init__(self, follower: RunFollower) -> None:
        self.follower = follower
        self.broken = asyncio.Event()
        self.ready = asyncio.Event()
        self.fault: BaseException | None = None
        self.viewers = 0
        self.unwatched = asyncio.Event()


class RunFollowerPool:
    """Starts its tasks in the given group."""

    def __init__(self, tasks: asyncio.TaskGroup, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock
        self._views: dict[SessionId, SharedRunFollower] = {}
        self._follow_tasks: set[asyncio.Task[None]] = set()

    @property
    def followed_sessions(self) -> tuple[SessionId, ...]:
        return tuple(self._views)

    def cancel_all_followers(self) -> None:
        for task in self._follow_tasks:
            task.cancel()

    @asynccontextmanager
    async def acquire_follower(self, run: RunHandle) -> AsyncIterator[SharedRunFollower]:
        """Follow the run. Raises the error that prevents it."""
        shared_view = self._views.get(run.session)
        if shared_view is None:
            shared_view = self._views[run.session] = SharedRunFollower(RunFollower(run, self._clock))
            task = self._tasks.create_task(self._follow_run(run.session, shared_view))
            self._follow_tasks.add(task)
            task.add_done_callback(self._follow_tasks.discard)
        shared_view.viewers += 1
        shared_view.unwatched.clear()
        try:
            await shared_view.ready.wait()
            if shared_view.fault is not None:
                raise shared_view.fault
            yield shared_view
        finally:
            shared_view.viewers -= 1
            if not shared_view.viewers:
                shared_view.unwatched.set()

    async def _follow_run(self, session: SessionId, view: SharedRunFollower) -> None:
        """Follow the run in its own task, because the first viewer may be the first to leave."""
        try:
            async with view.follower:
                view.ready.set()
                while view.viewers or not view.unwatched.is_set():
                    await view.unwatched.wait()
                    await self._clock.sleep(LINGER)
                # Before it ends, so that a new viewer starts a new one.
                del self._views[session]
        except* Exception as errors:  # noqa: BLE001 - a failure of one run must not end the views of others
            view.fault = errors.exceptions[0]
        finally:
            if self._views.get(session) is view:
                del self._views[session]
            view.ready.set()
            view.broken.set()
