"""Schedules: prompts sent to the lead at the times of a cron expression."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.ids import AgentId

MAX_SCHEDULES = 50
"""Maximum number of schedules of a session."""
SCHEDULE_LIFETIME_MS = 7 * 24 * 60 * 60 * 1000
"""Milliseconds after which a schedule expires."""
ScheduleEndReason: TypeAlias = Literal["deleted", "done", "expired"]
"""Why a schedule ended."""


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt that an agent gets at certain times."""

    id: str
    """Id of the schedule."""
    agent: AgentId
    """Agent that created it and gets the prompt."""
    cron: str
    """Times as a cron expression."""
    prompt: str
    """Prompt that the agent gets."""
    made: int
    """Creation time in Unix milliseconds, like all times here."""
    recurring: bool = True
    """False if it is due only once."""

    @property
    def expires_at(self) -> int:
        """Unix time in milliseconds at which it expires."""
        return self.made + SCHEDULE_LIFETIME_MS


class ScheduleOccurrence(Struct, frozen=True, kw_only=True):
    """Schedule and the time at which it is next due."""

    schedule: Schedule
    at: int


class Scheduler(Protocol):
    """Schedules of a session. All raise `ScheduleRefused` or `InvalidCronExpression`."""

    def create_schedule(
        self, agent: AgentId, cron: str, prompt: str, *, recurring: bool
    ) -> ScheduleOccurrence: ...

    def list_schedules(self) -> tuple[ScheduleOccurrence, ...]:
        """Return all schedules in order of creation."""
        ...

    def delete_schedule(self, schedule: str) -> Schedule: ...
