"""What one server shows: the runs of a home, through what is shared by all its pages."""

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
    """Entered for as long as the server lives. It keeps nothing that is not on disk."""

    def __init__(self, home: Path, *, clock: Clock, ids: Ids) -> None:
        self.clock = clock
        self.stopping = asyncio.Event()
        """Set when the server ends: whoever is being told something is told no more."""
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
