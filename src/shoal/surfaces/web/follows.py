"""Cache of run views: one for each run that is open in a page, shared by all pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shoal.app.outside.following import Followed
from shoal.app.outside.watching import Run
from shoal.core.clock import Clock
from shoal.core.ids import SessionId

LINGER = 10.0
"""Seconds a run is still followed without viewers, so that a reloaded page finds its view."""


class Shared:
    """A followed run. `broken` is set when following failed."""

    def __init__(self, followed: Followed) -> None:
        self.followed = followed
        self.broken = asyncio.Event()
        self.ready = asyncio.Event()
        self.fault: BaseException | None = None
        self.onlookers = 0
        self.alone = asyncio.Event()


class Follows:
    """Starts its tasks in the given group."""

    def __init__(self, tasks: asyncio.TaskGroup, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock
        self._shared: dict[SessionId, Shared] = {}
        self._holding: set[asyncio.Task[None]] = set()

    @property
    def sessions(self) -> tuple[SessionId, ...]:
        return tuple(self._shared)

    def end(self) -> None:
        for task in self._holding:
            task.cancel()

    @asynccontextmanager
    async def of(self, run: Run) -> AsyncIterator[Shared]:
        """Follow the run. Raises the error that prevents it."""
        shared = self._shared.get(run.session)
        if shared is None:
            shared = self._shared[run.session] = Shared(Followed(run, self._clock))
            task = self._tasks.create_task(self._hold(run.session, shared))
            self._holding.add(task)
            task.add_done_callback(self._holding.discard)
        shared.onlookers += 1
        shared.alone.clear()
        try:
            await shared.ready.wait()
            if shared.fault is not None:
                raise shared.fault
            yield shared
        finally:
            shared.onlookers -= 1
            if not shared.onlookers:
                shared.alone.set()

    async def _hold(self, session: SessionId, shared: Shared) -> None:
        """Follow the run in its own task, because the first viewer may be the first to leave."""
        try:
            async with shared.followed:
                shared.ready.set()
                while shared.onlookers or not shared.alone.is_set():
                    await shared.alone.wait()
                    await self._clock.sleep(LINGER)
                # Before it ends, so that a new viewer starts a new one.
                del self._shared[session]
        except* Exception as faults:  # noqa: BLE001 - a failure of one run must not end the views of others
            shared.fault = faults.exceptions[0]
        finally:
            if self._shared.get(session) is shared:
                del self._shared[session]
            shared.ready.set()
            shared.broken.set()
