"""Follower of a run: one view, updated from the journal, for any number of readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from msgspec.structs import replace

from shoal.app.outside.watching import Run
from shoal.app.picture.picture import Picture
from shoal.app.picture.rows import Frame
from shoal.core.clock import Clock
from shoal.stores.files.journal import read_journal
from shoal.stores.files.watch import DirectoryWatch

BREATH = 500
"""Events applied before other tasks get their turn."""
PACE = 0.1
"""Seconds between two deltas for one reader."""


class Followed:
    """Context manager that keeps the view current. A run that is resumed later is followed on."""

    def __init__(self, run: Run, clock: Clock) -> None:
        self.run = run
        self.picture = Picture()
        self.live = run.is_live
        self._clock = clock
        self._changed = asyncio.Event()
        self._news = asyncio.Event()
        self._read = 0
        self._lost = False
        self._keeping: asyncio.Task[None] | None = None
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Followed:
        await self._tasks.__aenter__()
        await self._catch_up()
        self._keeping = self._tasks.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
        await self._tasks.__aexit__(None, None, None)

    @property
    def over(self) -> bool:
        """True if nothing more comes, unless the run is resumed."""
        return not self.live or self.picture.run.ended

    async def frames(self, since: int = 0) -> AsyncIterator[Frame]:
        """Yield the changes since an offset, then every later change; one delta bundles simultaneous changes.

        The first delta comes at once, even without a change, because it tells whether the run is live.
        """
        live: bool | None = None
        while True:
            news = self._news
            if self.picture.offset > since or live != self.live:
                frame = replace(self.picture.since(since), live=self.live)
                since, live = frame.offset, frame.live
                yield frame
                await self._clock.sleep(PACE)
            else:
                await news.wait()

    async def _keep(self) -> None:
        watch = DirectoryWatch(self.run.directory, self._changed.set)
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._catch_up()
        finally:
            watch.close()

    async def _catch_up(self) -> None:
        before = self.picture.offset, self.live
        # Read before the journal: what the last writer wrote before it ended is still read below.
        self.live = self.run.is_live
        for number, recorded in enumerate(read_journal(self.run.journal, self._read)):
            self.picture.record(recorded)
            self._read = recorded.next
            self._lost = False
            if number % BREATH == BREATH - 1:
                self._tell()
                await asyncio.sleep(0)
        if not self.live and not self._lost and not self.picture.run.ended:
            self._lost = True
            self.picture.lost()
        if (self.picture.offset, self.live) != before:
            self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
