"""Schedules: prompts sent to the lead at the times of a cron expression."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.ids import AgentId

MOST = 50
"""Maximum number of schedules of a session."""
LIFETIME = 7 * 24 * 60 * 60 * 1000
"""Milliseconds after which a schedule expires."""
ScheduleEnd: TypeAlias = Literal["deleted", "done", "expired"]


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    agent: AgentId
    cron: str
    prompt: str
    made: int
    """Creation time in Unix milliseconds, like all times here."""
    recurring: bool = True

    @property
    def until(self) -> int:
        return self.made + LIFETIME


class Due(Struct, frozen=True, kw_only=True):
    """Schedule and the time at which it is next due."""

    schedule: Schedule
    at: int


class Timetable(Protocol):
    """Schedules of a session. All raise `ScheduleRefused` or `InvalidCronExpression`."""

    def make(self, agent: AgentId, cron: str, prompt: str, *, recurring: bool) -> Due: ...

    def all(self) -> tuple[Due, ...]:
        """Return all schedules in order of creation."""
        ...

    def delete(self, schedule: str) -> Schedule: ...
