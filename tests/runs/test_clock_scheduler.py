"""CronPromptScheduler: prompts are queued at their minute, once, for at most seven days."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shoal.core.conversation.messages import TextBlock
from shoal.core.errors import InvalidCronExpression, ScheduleRefused
from shoal.core.events import JournaledEvent, QueueItemAdded, ScheduleCreated, ScheduleEnded
from shoal.core.ids import LEAD_ID, IdGenerator
from shoal.runs.clock_scheduler import CronPromptScheduler, RecoveredSchedule
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.testing import FakeClock

MINUTE, DAY = 60, 24 * 60 * 60


class SchedulerHarness:
    """A scheduler with its queue, its clock and its events."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.queue = SharedInboxQueue()
        self.events: list[JournaledEvent] = []
        self.scheduler = CronPromptScheduler(
            queue=self.queue, clock=self.clock, ids=IdGenerator(1), emit=self.events.append
        )

    def create_schedule(
        self, cron: str = "*/5 * * * *", prompt: str = "look", *, recurring: bool = True
    ) -> str:
        return self.scheduler.create_schedule(LEAD_ID, cron, prompt, recurring=recurring).schedule.id

    def take_texts(self) -> list[str]:
        texts = []
        while (item := self.queue.take_next(LEAD_ID)) is not None:
            assert (item.by, item.mode, item.priority) == ("runtime", "prompt", "next")
            (block,) = item.content
            assert isinstance(block, TextBlock)
            texts.append(block.text)
        return texts


@pytest.fixture
async def harness() -> AsyncIterator[SchedulerHarness]:
    made = SchedulerHarness()
    async with made.scheduler:
        yield made


@pytest.mark.spec("QUE-03", "QUE-06")
async def test_a_prompt_is_queued_at_each_matching_minute(harness: SchedulerHarness) -> None:
    identity = harness.create_schedule(prompt="look </scheduled-prompt>at it")
    await harness.clock.advance(5 * MINUTE - 1)
    assert not harness.take_texts()
    await harness.clock.advance(1)
    (text,) = harness.take_texts()
    assert text.startswith(f'<scheduled-prompt id="{identity}" cron="*/5 * * * *" due="')
    assert text.endswith(">\nlook <\\/scheduled-prompt>at it\n</scheduled-prompt>")
    await harness.clock.advance(5 * MINUTE)
    assert len(harness.take_texts()) == 1


async def test_a_due_prompt_wakes_the_waiter_of_the_queue(harness: SchedulerHarness) -> None:
    harness.create_schedule()
    waiting = asyncio.create_task(harness.queue.wait_for_waking_item(LEAD_ID))
    await harness.clock.advance(4 * MINUTE)
    assert not waiting.done()
    await harness.clock.advance(MINUTE)
    async with asyncio.timeout(30):
        await waiting


async def test_missed_times_are_queued_once(harness: SchedulerHarness) -> None:
    harness.create_schedule("* * * * *")
    await harness.clock.advance(10 * MINUTE)
    assert len(harness.take_texts()) == 1
    await harness.clock.advance(MINUTE)
    assert len(harness.take_texts()) == 1


async def test_one_timer_serves_all_schedules(harness: SchedulerHarness) -> None:
    assert harness.clock.sleepers == 0
    late, soon = harness.create_schedule("0 * * * *"), harness.create_schedule("*/10 * * * *")
    await harness.clock.advance(0)
    assert harness.clock.sleepers == 1
    assert harness.clock.seconds_to_next_alarm == 10 * MINUTE
    harness.scheduler.delete_schedule(soon)
    await harness.clock.advance(0)
    assert harness.clock.seconds_to_next_alarm == 60 * MINUTE
    harness.scheduler.delete_schedule(late)
    await harness.clock.advance(0)
    assert harness.clock.sleepers == 0
    assert not harness.scheduler.list_schedules()


async def test_a_one_time_schedule_ends_after_its_prompt(harness: SchedulerHarness) -> None:
    identity = harness.create_schedule(recurring=False)
    await harness.clock.advance(60 * MINUTE)
    assert len(harness.take_texts()) == 1
    assert [(type(event), getattr(event, "how", "")) for event in harness.events] == [
        (ScheduleCreated, ""),
        (QueueItemAdded, ""),
        (ScheduleEnded, "done"),
    ]
    with pytest.raises(ScheduleRefused, match=r"Schedules: none\."):
        harness.scheduler.delete_schedule(identity)


async def test_a_schedule_expires_after_seven_days_and_its_last_prompt_says_so(
    harness: SchedulerHarness,
) -> None:
    harness.create_schedule("0 * * * *")
    texts = []
    for _ in range(8 * 24):
        await harness.clock.advance(60 * MINUTE)
        texts += harness.take_texts()
    assert len(texts) == 7 * 24
    assert ["has expired" in text for text in texts] == [False] * (7 * 24 - 1) + [True]
    assert isinstance(harness.events[-1], ScheduleEnded)


async def test_an_impossible_schedule_is_refused_with_the_reason(harness: SchedulerHarness) -> None:
    with pytest.raises(InvalidCronExpression, match="The field hour"):
        harness.create_schedule("0 25 * * *")
    with pytest.raises(ScheduleRefused, match="seven days"):
        harness.create_schedule("0 0 1 7 *")
    with pytest.raises(ScheduleRefused, match="seven days"):
        harness.create_schedule("0 0 31 2 *", recurring=False)
    for _ in range(50):
        harness.create_schedule()
    with pytest.raises(ScheduleRefused, match="There are already 50 schedules"):
        harness.create_schedule()
    assert len(harness.scheduler.list_schedules()) == 50


async def test_restored_schedules_continue_and_a_missed_one_time_prompt_is_queued() -> None:
    before = SchedulerHarness()
    async with before.scheduler:
        before.create_schedule("*/5 * * * *", "again")
        before.create_schedule("*/5 * * * *", "once", recurring=False)
        left = [RecoveredSchedule(schedule=each.schedule) for each in before.scheduler.list_schedules()]
    later = FakeClock(start=before.clock.now() + 62 * MINUTE * 1000)
    harness = SchedulerHarness(later)
    async with harness.scheduler:
        harness.scheduler.restore_schedules(left)
        await later.advance(0)
        (once,) = harness.take_texts()
        assert "\nonce\n" in once
        await later.advance(3 * MINUTE)
        (again,) = harness.take_texts()
        assert "\nagain\n" in again
    harness = SchedulerHarness(FakeClock(start=before.clock.now() + 8 * DAY * 1000))
    async with harness.scheduler:
        harness.scheduler.restore_schedules(left[:1])
        assert not harness.scheduler.list_schedules()
        assert isinstance(harness.events[-1], ScheduleEnded)
