"""Scheduler of a session: queues each due prompt once, at its minute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType

from msgspec import Struct

from shoal.core.agents.cron import CronExpression, parse_cron
from shoal.core.agents.schedules import MAX_SCHEDULES, Schedule, ScheduleEndReason, ScheduleOccurrence
from shoal.core.clock import Clock
from shoal.core.compact_event import CompactEvent
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock
from shoal.core.errors import ScheduleRefused, StateFileError
from shoal.core.events import JournaledEvent, QueueItemAdded, ScheduleCreated, ScheduleEnded
from shoal.core.ids import AgentId, IdGenerator
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.runs.run_texts import format_run_notice
from shoal.wire.notification_text import format_scheduled_prompt


class RecoveredSchedule(Struct, frozen=True, kw_only=True):
    """Schedule of an earlier process of the session."""

    schedule: Schedule
    last_item: str = ""
    """Id of the item it last queued."""


class _ActiveSchedule:
    __slots__ = ("cron", "due", "last_item", "schedule")

    def __init__(self, schedule: Schedule, cron: CronExpression, due: int) -> None:
        self.schedule = schedule
        self.cron = cron
        self.due = due
        self.last_item = ""


class CronPromptScheduler:
    """Context manager for the length of a session; without schedules nothing runs."""

    def __init__(
        self,
        *,
        queue: SharedInboxQueue,
        clock: Clock,
        ids: IdGenerator,
        emit: Callable[[JournaledEvent], None],
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._ids = ids
        self._emit = emit
        self._active: dict[str, _ActiveSchedule] = {}
        self._tasks = asyncio.TaskGroup()
        self._clock_task: asyncio.Task[None] | None = None
        self._changed = CompactEvent()

    async def __aenter__(self) -> CronPromptScheduler:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._clock_task is not None:
            self._clock_task.cancel()
        # The group sees a cancellation; any other error passes unwrapped, not in an exception group.
        if isinstance(error, asyncio.CancelledError):
            await self._tasks.__aexit__(kind, error, trace)
        else:
            await self._tasks.__aexit__(None, None, None)

    def create_schedule(
        self, agent: AgentId, cron: str, prompt: str, *, recurring: bool
    ) -> ScheduleOccurrence:
        if len(self._active) >= MAX_SCHEDULES:
            raise ScheduleRefused(format_run_notice("too_many_schedules", count=MAX_SCHEDULES))
        now = self._clock.now()
        schedule = Schedule(
            id=self._ids.new_short_id(), agent=agent, cron=cron, prompt=prompt, made=now, recurring=recurring
        )
        expression = parse_cron(cron)
        due = expression.next_time_after(now)
        if due is None or due > schedule.expires_at:
            raise ScheduleRefused(format_run_notice("schedule_too_late", cron=cron))
        self._emit(ScheduleCreated(agent=agent, schedule=schedule))
        self._activate_schedule(_ActiveSchedule(schedule, expression, due))
        return ScheduleOccurrence(schedule=schedule, at=due)

    def list_schedules(self) -> tuple[ScheduleOccurrence, ...]:
        return tuple(
            ScheduleOccurrence(schedule=each.schedule, at=each.due) for each in self._active.values()
        )

    def delete_schedule(self, schedule: str) -> Schedule:
        found = self._active.get(schedule)
        if found is None:
            listing = ", ".join(self._active) or "none"
            raise ScheduleRefused(
                format_run_notice("unknown_schedule", schedule=repr(schedule), listing=listing)
            )
        self._end_schedule(found, "deleted")
        return found.schedule

    def restore_schedules(self, left: Iterable[RecoveredSchedule]) -> None:
        """Restore schedules of an earlier process. A one-time schedule that came due meanwhile fires."""
        now = self._clock.now()
        for recovered in left:
            schedule = recovered.schedule
            expression = parse_cron(schedule.cron)
            due = expression.next_time_after(now if schedule.recurring else schedule.made)
            active = _ActiveSchedule(schedule, expression, due or 0)
            active.last_item = recovered.last_item
            if due is None or due > schedule.expires_at:
                self._end_schedule(active, "expired")
            else:
                self._activate_schedule(active)

    def _activate_schedule(self, active: _ActiveSchedule) -> None:
        self._active[active.schedule.id] = active
        self._changed.set()
        if self._clock_task is None or self._clock_task.done():
            self._clock_task = self._tasks.create_task(self._fire_due_schedules())

    async def _fire_due_schedules(self) -> None:
        while self._active:
            now = self._clock.now()
            for active in tuple(self._active.values()):
                if active.due <= now:
                    self._fire_schedule(active, now)
            if not self._active:
                return
            self._changed.clear()
            next_due = min(each.due for each in self._active.values())
            try:
                async with self._clock.deadline((next_due - now) / 1000):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _fire_schedule(self, active: _ActiveSchedule, now: int) -> None:
        schedule, due = active.schedule, active.due
        next_due = active.cron.next_time_after(now) if schedule.recurring else None
        is_last = next_due is None or next_due > schedule.expires_at
        # A prompt that still waits makes a second one redundant.
        if not self._queue.has_item(schedule.agent, active.last_item):
            self._enqueue_scheduled_prompt(active, due, last=is_last)
        if is_last or next_due is None:
            self._end_schedule(active, "expired" if schedule.recurring else "done")
        else:
            active.due = next_due

    def _enqueue_scheduled_prompt(self, active: _ActiveSchedule, due: int, *, last: bool) -> None:
        schedule = active.schedule
        # For a reader of the journal, this id means that a one-time schedule is over.
        active.last_item = item_id = f"{schedule.id}@{due}"
        text = format_scheduled_prompt(schedule, due, last=last and schedule.recurring)
        # If it cannot be journaled the agent still gets it, and that failure is visible.
        with suppress(StateFileError):
            self._emit(QueueItemAdded(agent=schedule.agent, item=item_id, by="runtime", text=text))
        self._queue.put(
            InboxItem(id=item_id, to=schedule.agent, content=(TextBlock(text=text),), by="runtime")
        )

    def _end_schedule(self, active: _ActiveSchedule, how: ScheduleEndReason) -> None:
        schedule = active.schedule
        self._active.pop(schedule.id, None)
        with suppress(StateFileError):
            self._emit(ScheduleEnded(agent=schedule.agent, schedule=schedule.id, how=how))
        self._changed.set()
