"""Writes to the roster which members are working, in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal.core.clock import Clock
from shoal.core.errors import NoSuchTeam, RecordError, StoreError
from shoal.core.names import AgentName, TeamName
from shoal.core.record import Rosters

GATHERED = 0.5
"""Seconds from a change to the write that contains it and all changes in between."""


class Activity:
    """Batches activity changes. The journal has each change at once, so a crash loses nothing."""

    def __init__(self, rosters: Rosters, team: TeamName, clock: Clock, report: Callable[[str], None]) -> None:
        self._rosters = rosters
        self._team = team
        self._clock = clock
        self._report = report
        self.at_work: set[AgentName] = set()
        self._due: dict[AgentName, bool] = {}
        self._news = asyncio.Event()

    def show(self, name: AgentName, *, active: bool) -> None:
        self._due[name] = active
        self._news.set()
        if active:
            self.at_work.add(name)
        else:
            self.at_work.discard(name)

    def forget(self, name: AgentName) -> None:
        """Drop a member that left the team."""
        self._due.pop(name, None)
        self.at_work.discard(name)

    async def keep(self) -> None:
        """Flush after each change until cancelled."""
        while True:
            await self._news.wait()
            await self._clock.sleep(GATHERED)
            await self.flush()

    async def flush(self) -> None:
        """Write all pending changes; those that cannot be written stay pending."""
        self._news.clear()
        due = dict(self._due)
        if not due:
            return
        try:
            await self._rosters.show_active(self._team, due)
        except NoSuchTeam:
            pass
        except (RecordError, StoreError) as error:
            names = ", ".join(due)
            self._report(f"The roster of {self._team} does not show who is at work ({names}): {error}")
            return
        for name, active in due.items():
            if self._due.get(name) == active:
                del self._due[name]
