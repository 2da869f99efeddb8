"""Recovers from the journal the schedules of an earlier process."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.core.events import Journaled, Queued, ScheduleEnded, ScheduleMade
from shoal.runs.timetable import LeftSchedule


class LeftSchedules:
    def __init__(self) -> None:
        self._kept: dict[str, LeftSchedule] = {}

    def take(self, event: Journaled) -> None:
        match event:
            case ScheduleMade(schedule=schedule):
                self._kept[schedule.id] = LeftSchedule(schedule=schedule)
            case ScheduleEnded(schedule=identity):
                self._kept.pop(identity, None)
            case Queued(item=item):
                self._fired(item)
            case _:
                pass

    def _fired(self, item: str) -> None:
        kept = self._kept.get(item.partition("@")[0])
        if kept is not None and kept.schedule.recurring:
            self._kept[kept.schedule.id] = replace(kept, last_item=item)
        elif kept is not None:
            del self._kept[kept.schedule.id]

    @property
    def kept(self) -> tuple[LeftSchedule, ...]:
        return tuple(self._kept.values())
