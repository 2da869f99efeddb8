"""Writes to the roster which members are working, in batches."""

from __future__ import annotations

from collections.abc import Callable

from shoal.core.clock import Clock
from shoal.core.compact_event import CompactEvent
from shoal.core.errors import StateFileError, TeamNotFound, TeamStoreError
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.team_storage import RosterStore

FLUSH_DELAY = 0.5
"""Seconds between a change and the write that contains it and all changes since."""


class RosterActivityWriter:
    """Batches activity changes. The journal has each change at once, so a crash loses nothing."""

    def __init__(
        self, rosters: RosterStore, team: TeamName, clock: Clock, report: Callable[[str], None]
    ) -> None:
        self._rosters = rosters
        self._team = team
        self._clock = clock
        self._report = report
        self.active_members: set[AgentName] = set()
        self._pending: dict[AgentName, bool] = {}
        self._wake = CompactEvent()

    def set_member_active(self, name: AgentName, *, active: bool) -> None:
        self._pending[name] = active
        self._wake.set()
        if active:
            self.active_members.add(name)
        else:
            self.active_members.discard(name)

    def forget_member(self, name: AgentName) -> None:
        """Drop a member that left the team."""
        self._pending.pop(name, None)
        self.active_members.discard(name)

    async def flush_continuously(self) -> None:
        """Flush after each change until canceled."""
        while True:
            await self._wake.wait()
            await self._clock.sleep(FLUSH_DELAY)
            await self.flush()

    async def flush(self) -> None:
        """Write all pending changes; those that cannot be written stay pending."""
        self._wake.clear()
        changes = dict(self._pending)
        if not changes:
            return
        try:
            await self._rosters.set_active_members(self._team, changes)
        except TeamNotFound:
            pass
        except (TeamStoreError, StateFileError) as error:
            names = ", ".join(changes)
            self._report(f"Could not record the activity of {names} in the roster of {self._team}: {error}")
            return
        for name, active in changes.items():
            if self._pending.get(name) == active:
                del self._pending[name]
