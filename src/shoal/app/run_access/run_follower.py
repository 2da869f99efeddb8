"""Follower of a run: one view, updated from the journal, for any number of readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from msgspec.structs import replace

from shoal.app.run_access.run_handle import RunHandle, load_run_view
from shoal.app.run_view.run_view import RunView
from shoal.app.run_view.view_rows import ViewDelta
from shoal.core.clock import Clock
from shoal.stores.files.access.file_watch import DirectoryWatch

EVENTS_PER_SLICE = 500
"""Number of events applied before other tasks get their turn."""
DELTA_INTERVAL = 0.1
"""Seconds between two deltas for one reader."""


class RunFollower:
    """Context manager that keeps the view current. A run that is resumed later is followed again."""

    def __init__(self, run: RunHandle, clock: Clock) -> None:
        self.run = run
        self.view = RunView()
        self.is_live: bool
        self._clock = clock
        self._journal_changed = asyncio.Event()
        self._change_event = asyncio.Event()
        self._journal_offset = 0
        self._is_marked_lost = False
        self._follow_task: asyncio.Task[None] | None = None
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> RunFollower:
        await self._tasks.__aenter__()
        self.is_live = self.run.is_live
        # In a thread: without a snapshot the whole journal is read.
        self.view, self._journal_offset = await asyncio.to_thread(load_run_view, self.run)
        await self._apply_new_journal_events()
        self._follow_task = self._tasks.create_task(self._follow_journal())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._follow_task is not None:
            self._follow_task.cancel()
        await self._tasks.__aexit__(None, None, None)

    @property
    def is_over(self) -> bool:
        """True if nothing more will come, unless the run is resumed."""
        return not self.is_live or self.view.run.ended

    async def iter_view_deltas(self, since: int = 0) -> AsyncIterator[ViewDelta]:
        """Yield the changes since an offset, then every later change; one delta bundles simultaneous changes.

        The first delta comes at once, even without a change, because it shows whether the run is live.
        """
        was_live: bool | None = None
        while True:
            change_event = self._change_event
            if self.view.offset > since or was_live != self.is_live:
                delta = replace(self.view.get_delta_since(since), live=self.is_live)
                since, was_live = delta.offset, delta.live
                yield delta
                await self._clock.sleep(DELTA_INTERVAL)
            else:
                await change_event.wait()

    async def _follow_journal(self) -> None:
        watch = DirectoryWatch(self.run.journal_path.parent, self._journal_changed.set)
        try:
            while True:
                await self._journal_changed.wait()
                self._journal_changed.clear()
                await self._apply_new_journal_events()
        finally:
            watch.close()

    async def _apply_new_journal_events(self) -> None:
        before = self.view.offset, self.is_live
        # Read before the journal: what the last writer wrote before it ended is still read below.
        self.is_live = self.run.is_live
        for number, recorded in enumerate(self.run.read_journal(self._journal_offset)):
            self.view.apply_record(recorded)
            self._journal_offset = recorded.next
            self._is_marked_lost = False
            if number % EVENTS_PER_SLICE == EVENTS_PER_SLICE - 1:
                self._notify_waiters()
                await asyncio.sleep(0)
        if not self.is_live and not self._is_marked_lost and not self.view.run.ended:
            self._is_marked_lost = True
            self.view.mark_run_lost()
        if (self.view.offset, self.is_live) != before:
            self._notify_waiters()

    def _notify_waiters(self) -> None:
        change_event, self._change_event = self._change_event, asyncio.Event()
        change_event.set()
