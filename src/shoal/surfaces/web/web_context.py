"""State shared by all routes of one server: the runs of a store and their caches."""

from __future__ import annotations

import asyncio
from typing import Self

from shoal.app.run_access.stored_runs import StoredRuns
from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import Clock
from shoal.core.ids import IdGenerator
from shoal.surfaces.web.open_questions import WebOpenQuestionWatcher
from shoal.surfaces.web.run_follower_pool import RunFollowerPool
from shoal.surfaces.web.run_index import WebRunIndex
from shoal.surfaces.web.transcript_index import WebTranscriptReader


class WebContext:
    """Entered for the lifetime of the server. It holds nothing that is not stored."""

    def __init__(self, runs: StoredRuns, *, clock: Clock, ids: IdGenerator) -> None:
        self.clock = clock
        self.stopping = asyncio.Event()
        """Set when the server stops: ends all event streams."""
        self.runs = WebRunIndex(runs)
        self.transcripts = WebTranscriptReader(self.runs)
        self.questions = WebOpenQuestionWatcher(self.runs)
        self.team_store = TeamStore(runs.get_store(), clock=clock, ids=ids)
        self._tasks = asyncio.TaskGroup()
        self.run_views = RunFollowerPool(self._tasks, clock)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopping.set()
        self.run_views.cancel_all_followers()
        await self._tasks.__aexit__(None, None, None)
        await self.team_store.aclose()
