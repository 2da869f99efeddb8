"""Scheduler of a session: queues each due prompt once, at its minute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType

from msgspec import Struct

from shoal.core.arrivals import Item
from shoal.core.clock import Clock
from shoal.core.cron import Cron, parse_cron
from shoal.core.errors import ScheduleRefused, StoreError
from shoal.core.events import Journaled, Queued, ScheduleEnded, ScheduleMade
from shoal.core.ids import AgentId, Ids
from shoal.core.messages import Text
from shoal.core.schedules import MOST, Due, Schedule, ScheduleEnd
from shoal.runs.queue import Queue
from shoal.wire.notices import scheduled_prompt


class LeftSchedule(Struct, frozen=True, kw_only=True):
    """Schedule of an earlier process of the session."""

    schedule: Schedule
    last_item: str = ""
    """Id of the item it last queued."""


class _Standing:
    __slots__ = ("cron", "due", "last_item", "schedule")

    def __init__(self, schedule: Schedule, cron: Cron, due: int) -> None:
        self.schedule = schedule
        self.cron = cron
        self.due = due
        self.last_item = ""


class ClockedTimetable:
    """Context manager for the length of a session; without schedules nothing runs."""

    def __init__(self, *, queue: Queue, clock: Clock, ids: Ids, emit: Callable[[Journaled], None]) -> None:
        self._queue = queue
        self._clock = clock
        self._ids = ids
        self._emit = emit
        self._standing: dict[str, _Standing] = {}
        self._tasks = asyncio.TaskGroup()
        self._keeping: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> ClockedTimetable:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
        # The group sees a cancellation; any other error passes unwrapped, not in an exception group.
        if isinstance(error, asyncio.CancelledError):
            await self._tasks.__aexit__(kind, error, trace)
        else:
            await self._tasks.__aexit__(None, None, None)

    def make(self, agent: AgentId, cron: str, prompt: str, *, recurring: bool) -> Due:
        if len(self._standing) >= MOST:
            raise ScheduleRefused(f"There are {MOST} schedules, and no more are kept. CronDelete ends one.")
        now = self._clock.now()
        schedule = Schedule(
            id=self._ids.short(), agent=agent, cron=cron, prompt=prompt, made=now, recurring=recurring
        )
        parsed = parse_cron(cron)
        due = parsed.next_after(now)
        if due is None or due > schedule.until:
            raise ScheduleRefused(
                f"A schedule runs out after seven days, and `{cron}` does not come before that."
            )
        self._emit(ScheduleMade(agent=agent, schedule=schedule))
        self._keep(_Standing(schedule, parsed, due))
        return Due(schedule=schedule, at=due)

    def all(self) -> tuple[Due, ...]:
        return tuple(Due(schedule=each.schedule, at=each.due) for each in self._standing.values())

    def delete(self, schedule: str) -> Schedule:
        found = self._standing.get(schedule)
        if found is None:
            known = ", ".join(self._standing) or "none"
            raise ScheduleRefused(f"There is no schedule {schedule!r}. There are: {known}.")
        self._end(found, "deleted")
        return found.schedule

    def recover(self, left: Iterable[LeftSchedule]) -> None:
        """Restore schedules of an earlier process. A one-time schedule that came due meanwhile fires."""
        now = self._clock.now()
        for each in left:
            schedule = each.schedule
            parsed = parse_cron(schedule.cron)
            due = parsed.next_after(now if schedule.recurring else schedule.made)
            standing = _Standing(schedule, parsed, due or 0)
            standing.last_item = each.last_item
            if due is None or due > schedule.until:
                self._end(standing, "expired")
            else:
                self._keep(standing)

    def _keep(self, standing: _Standing) -> None:
        self._standing[standing.schedule.id] = standing
        self._changed.set()
        if self._keeping is None or self._keeping.done():
            self._keeping = self._tasks.create_task(self._keep_time())

    async def _keep_time(self) -> None:
        while self._standing:
            now = self._clock.now()
            for each in tuple(self._standing.values()):
                if each.due <= now:
                    self._fire(each, now)
            if not self._standing:
                return
            self._changed.clear()
            next_due = min(each.due for each in self._standing.values())
            try:
                async with self._clock.deadline((next_due - now) / 1000):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _fire(self, standing: _Standing, now: int) -> None:
        schedule, due = standing.schedule, standing.due
        following = standing.cron.next_after(now) if schedule.recurring else None
        over = following is None or following > schedule.until
        # A prompt that still waits makes a second one redundant.
        if not self._queue.holds(schedule.agent, standing.last_item):
            self._put(standing, due, last=over)
        if over or following is None:
            self._end(standing, "expired" if schedule.recurring else "done")
        else:
            standing.due = following

    def _put(self, standing: _Standing, due: int, *, last: bool) -> None:
        schedule = standing.schedule
        # For a reader of the journal, this id means that a one-time schedule is over.
        standing.last_item = identity = f"{schedule.id}@{due}"
        text = scheduled_prompt(schedule, due, last=last and schedule.recurring)
        # If it cannot be journaled the agent still gets it, and that failure is visible.
        with suppress(StoreError):
            self._emit(Queued(agent=schedule.agent, item=identity, by="runtime", text=text))
        self._queue.put(Item(id=identity, to=schedule.agent, content=(Text(text=text),), by="runtime"))

    def _end(self, standing: _Standing, how: ScheduleEnd) -> None:
        schedule = standing.schedule
        self._standing.pop(schedule.id, None)
        with suppress(StoreError):
            self._emit(ScheduleEnded(agent=schedule.agent, schedule=schedule.id, how=how))
        self._changed.set()
