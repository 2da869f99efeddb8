"""One picture of each run that somebody looks at, for all who look at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shoal.app.outside.following import Followed
from shoal.app.outside.watching import Run
from shoal.core.clock import Clock
from shoal.core.ids import SessionId

LINGER = 10.0
"""Seconds for which a run is followed on when nobody looks: a page that is loaded anew finds it drawn."""


class Shared:
    """A run that is followed. `broken` is set when it cannot be any longer."""

    def __init__(self, followed: Followed) -> None:
        self.followed = followed
        self.broken = asyncio.Event()
        self.ready = asyncio.Event()
        self.fault: BaseException | None = None
        self.onlookers = 0
        self.alone = asyncio.Event()


class Follows:
    """Their tasks are in the group that is given."""

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
        """Raises what makes the run impossible to follow."""
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
        """In a task of its own, because the first to look may be the first to leave."""
        try:
            async with shared.followed:
                shared.ready.set()
                while shared.onlookers or not shared.alone.is_set():
                    await shared.alone.wait()
                    await self._clock.sleep(LINGER)
                # Before it ends, so that who comes now begins anew.
                del self._shared[session]
        except* Exception as faults:  # noqa: BLE001 - what is wrong with one run ends the view of no other
            shared.fault = faults.exceptions[0]
        finally:
            if self._shared.get(session) is shared:
                del self._shared[session]
            shared.ready.set()
            shared.broken.set()
