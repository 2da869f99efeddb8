"""Who of a team is at work, as its roster shows it: changes are gathered, and soon in the file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal.core.clock import Clock
from shoal.core.errors import NoSuchTeam, RecordError, StoreError
from shoal.core.names import AgentName, TeamName
from shoal.core.record import Rosters

GATHERED = 0.5
"""Seconds from a change to the write that shows it, with all that came meanwhile."""


class Activity:
    """The journal has each change at once; what a process that dies did not write here is not lost."""

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
        """It is no member any more."""
        self._due.pop(name, None)
        self.at_work.discard(name)

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            await self._news.wait()
            await self._clock.sleep(GATHERED)
            await self.flush()

    async def flush(self) -> None:
        """Write all that is due. What could not be written stays due."""
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
