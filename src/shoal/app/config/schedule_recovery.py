"""Recovers from the journal the schedules of an earlier process."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.core.events import JournaledEvent, QueueItemAdded, ScheduleCreated, ScheduleEnded
from shoal.runs.clock_scheduler import RecoveredSchedule


class ScheduleRecovery:
    def __init__(self) -> None:
        self._schedules: dict[str, RecoveredSchedule] = {}

    def apply_event(self, event: JournaledEvent) -> None:
        match event:
            case ScheduleCreated(schedule=schedule):
                self._schedules[schedule.id] = RecoveredSchedule(schedule=schedule)
            case ScheduleEnded(schedule=schedule_id):
                self._schedules.pop(schedule_id, None)
            case QueueItemAdded(item=item):
                self._record_firing(item)
            case _:
                pass

    def _record_firing(self, item: str) -> None:
        recovered = self._schedules.get(item.partition("@")[0])
        if recovered is not None and recovered.schedule.recurring:
            self._schedules[recovered.schedule.id] = replace(recovered, last_item=item)
        elif recovered is not None:
            del self._schedules[recovered.schedule.id]

    @property
    def schedules(self) -> tuple[RecoveredSchedule, ...]:
        return tuple(self._schedules.values())
