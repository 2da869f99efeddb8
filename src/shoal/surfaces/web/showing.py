"""State shared by all routes of one server: the runs of a home and their caches."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

from shoal.app.teams.record import AgentsRecord
from shoal.core.clock import Clock
from shoal.core.ids import Ids
from shoal.surfaces.web.follows import Follows
from shoal.surfaces.web.questions import OpenQuestions
from shoal.surfaces.web.runs import Runs
from shoal.surfaces.web.transcripts import Transcripts


class Showing:
    """Entered for the lifetime of the server. It holds nothing that is not on disk."""

    def __init__(self, home: Path, *, clock: Clock, ids: Ids) -> None:
        self.clock = clock
        self.stopping = asyncio.Event()
        """Set when the server stops: ends all event streams."""
        self.runs = Runs(home)
        self.transcripts = Transcripts(self.runs)
        self.questions = OpenQuestions(self.runs)
        self.record = AgentsRecord(home, clock=clock, ids=ids)
        self._tasks = asyncio.TaskGroup()
        self.follows = Follows(self._tasks, clock)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopping.set()
        self.follows.end()
        await self._tasks.__aexit__(None, None, None)
        await self.record.aclose()
