"""Schedules: prompts that come back to the lead at times a cron expression says."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.ids import AgentId

MOST = 50
"""Schedules that a session may have at once."""
LIFETIME = 7 * 24 * 60 * 60 * 1000
"""Milliseconds after which a schedule has run out."""
ScheduleEnd: TypeAlias = Literal["deleted", "done", "expired"]


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    agent: AgentId
    cron: str
    prompt: str
    made: int
    """Unix time in milliseconds, as all times here."""
    recurring: bool = True

    @property
    def until(self) -> int:
        return self.made + LIFETIME


class Due(Struct, frozen=True, kw_only=True):
    """A schedule and the time at which it is next due."""

    schedule: Schedule
    at: int


class Timetable(Protocol):
    """The schedules of a session. All raise `ScheduleRefused` or `BadCron`."""

    def make(self, agent: AgentId, cron: str, prompt: str, *, recurring: bool) -> Due: ...

    def all(self) -> tuple[Due, ...]:
        """In the order in which they were made."""
        ...

    def delete(self, schedule: str) -> Schedule: ...
