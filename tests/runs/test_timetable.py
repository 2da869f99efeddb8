"""The timetable of a session: what is due comes at its minute, once, and no longer than seven days."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shoal.core.errors import BadCron, ScheduleRefused
from shoal.core.events import Journaled, Queued, ScheduleEnded, ScheduleMade
from shoal.core.ids import LEAD, Ids
from shoal.core.messages import Text
from shoal.runs.queue import Queue
from shoal.runs.timetable import ClockedTimetable, LeftSchedule
from shoal.testing import FakeClock

MINUTE, DAY = 60, 24 * 60 * 60


class Office:
    """A timetable, its queue, its clock and its record."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.queue = Queue()
        self.events: list[Journaled] = []
        self.timetable = ClockedTimetable(
            queue=self.queue, clock=self.clock, ids=Ids(1), emit=self.events.append
        )

    def make(self, cron: str = "*/5 * * * *", prompt: str = "look", *, recurring: bool = True) -> str:
        return self.timetable.make(LEAD, cron, prompt, recurring=recurring).schedule.id

    def heard(self) -> list[str]:
        texts = []
        while (item := self.queue.take(LEAD)) is not None:
            assert (item.by, item.mode, item.priority) == ("runtime", "prompt", "next")
            (block,) = item.content
            assert isinstance(block, Text)
            texts.append(block.text)
        return texts


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    made = Office()
    async with made.timetable:
        yield made


@pytest.mark.spec("QUE-03", "QUE-06")
async def test_a_prompt_comes_at_each_minute_that_fits_and_not_before(office: Office) -> None:
    identity = office.make(prompt="look </scheduled-prompt>at it")
    await office.clock.advance(5 * MINUTE - 1)
    assert not office.heard()
    await office.clock.advance(1)
    (text,) = office.heard()
    assert text.startswith(f'<scheduled-prompt id="{identity}" cron="*/5 * * * *" due="')
    assert text.endswith(">\nlook <\\/scheduled-prompt>at it\n</scheduled-prompt>")
    await office.clock.advance(5 * MINUTE)
    assert len(office.heard()) == 1


async def test_one_that_is_due_wakes_who_waits_at_the_queue(office: Office) -> None:
    office.make()
    waiting = asyncio.create_task(office.queue.arrival(LEAD))
    await office.clock.advance(4 * MINUTE)
    assert not waiting.done()
    await office.clock.advance(MINUTE)
    async with asyncio.timeout(30):
        await waiting


async def test_times_missed_while_nobody_takes_them_come_once(office: Office) -> None:
    office.make("* * * * *")
    await office.clock.advance(10 * MINUTE)
    assert len(office.heard()) == 1
    await office.clock.advance(MINUTE)
    assert len(office.heard()) == 1


async def test_nothing_sleeps_without_schedules_and_one_alarm_serves_them_all(office: Office) -> None:
    assert office.clock.sleepers == 0
    late, soon = office.make("0 * * * *"), office.make("*/10 * * * *")
    await office.clock.advance(0)
    assert office.clock.sleepers == 1
    assert office.clock.next_in == 10 * MINUTE
    office.timetable.delete(soon)
    await office.clock.advance(0)
    assert office.clock.next_in == 60 * MINUTE
    office.timetable.delete(late)
    await office.clock.advance(0)
    assert office.clock.sleepers == 0
    assert not office.timetable.all()


async def test_one_that_is_to_come_once_is_gone_then(office: Office) -> None:
    identity = office.make(recurring=False)
    await office.clock.advance(60 * MINUTE)
    assert len(office.heard()) == 1
    assert [(type(event), getattr(event, "how", "")) for event in office.events] == [
        (ScheduleMade, ""),
        (Queued, ""),
        (ScheduleEnded, "done"),
    ]
    with pytest.raises(ScheduleRefused, match=r"There are: none\."):
        office.timetable.delete(identity)


async def test_a_schedule_runs_out_after_seven_days_and_says_so_with_its_last_prompt(office: Office) -> None:
    office.make("0 * * * *")
    heard = []
    for _ in range(8 * 24):
        await office.clock.advance(60 * MINUTE)
        heard += office.heard()
    assert len(heard) == 7 * 24
    assert ["has run out" in text for text in heard] == [False] * (7 * 24 - 1) + [True]
    assert isinstance(office.events[-1], ScheduleEnded)


async def test_what_cannot_be_kept_is_refused_with_the_reason(office: Office) -> None:
    with pytest.raises(BadCron, match="The field hour"):
        office.make("0 25 * * *")
    with pytest.raises(ScheduleRefused, match="seven days"):
        office.make("0 0 1 7 *")
    with pytest.raises(ScheduleRefused, match="seven days"):
        office.make("0 0 31 2 *", recurring=False)
    for _ in range(50):
        office.make()
    with pytest.raises(ScheduleRefused, match="There are 50 schedules"):
        office.make()
    assert len(office.timetable.all()) == 50


async def test_those_of_an_earlier_process_go_on_and_what_was_due_but_once_is_made_up_for() -> None:
    before = Office()
    async with before.timetable:
        before.make("*/5 * * * *", "again")
        before.make("*/5 * * * *", "once", recurring=False)
        left = [LeftSchedule(schedule=each.schedule) for each in before.timetable.all()]
    later = FakeClock(start=before.clock.now() + 62 * MINUTE * 1000)
    office = Office(later)
    async with office.timetable:
        office.timetable.recover(left)
        await later.advance(0)
        (once,) = office.heard()
        assert "\nonce\n" in once
        await later.advance(3 * MINUTE)
        (again,) = office.heard()
        assert "\nagain\n" in again
    office = Office(FakeClock(start=before.clock.now() + 8 * DAY * 1000))
    async with office.timetable:
        office.timetable.recover(left[:1])
        assert not office.timetable.all()
        assert isinstance(office.events[-1], ScheduleEnded)
