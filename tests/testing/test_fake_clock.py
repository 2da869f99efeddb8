"""The clock that a test controls."""

from __future__ import annotations

import asyncio

import pytest

import shoal.testing
from shoal.core.clock import format_iso_time
from shoal.testing import FakeClock, IdGenerator


async def test_sleepers_wake_in_order_at_their_time():
    clock = FakeClock()
    woken = []

    async def sleep_in_steps(name, *seconds):
        for pause in seconds:
            await clock.sleep(pause)
            woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleep_in_steps("slow", 3))
        tasks.create_task(sleep_in_steps("twice", 1, 1.5))
        tasks.create_task(sleep_in_steps("late", 10))
        await clock.advance(5)
        assert woken == [("twice", 1), ("twice", 2.5), ("slow", 3)]
        assert clock.seconds_to_next_alarm == 5
        await clock.advance(5)
    assert woken[-1] == ("late", 10)


async def test_the_wall_clock_advances_with_the_fake_clock():
    clock = FakeClock()
    assert format_iso_time(clock.now()) == "2026-01-01T00:00:00.000Z"
    await clock.advance(1.25)
    assert format_iso_time(clock.now()) == "2026-01-01T00:00:01.250Z"


async def test_a_deadline_raises_when_its_time_passes_and_can_be_moved():
    clock = FakeClock()
    steps = []

    async def work():
        async with clock.deadline(5) as deadline:
            await clock.sleep(4)
            deadline.extend(5)
            steps.append(clock.monotonic())
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(_catch_timeout(work()))
        await clock.advance(8.9)
        assert not task.done()
        await clock.advance(0.1)
    assert steps == [4]
    assert isinstance(task.result(), TimeoutError)
    assert clock.sleepers == 0


async def test_work_that_ends_in_time_leaves_no_timer():
    clock = FakeClock()
    async with clock.deadline(5):
        await clock.sleep(0)
    assert clock.sleepers == 0
    await clock.advance(10)


async def test_the_inner_of_two_deadlines_is_the_one_that_raises():
    clock = FakeClock()

    async def work():
        async with clock.deadline(10):
            with pytest.raises(TimeoutError):
                async with clock.deadline(1):
                    await asyncio.Event().wait()
            return "went on"

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work())
        await clock.advance(2)
    assert task.result() == "went on"


async def test_a_cancelled_sleeper_is_cancelled_and_not_timed_out():
    clock = FakeClock()

    async def work():
        async with clock.deadline(10):
            await clock.sleep(5)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work())
        await clock.wait_for_sleepers(2)
        task.cancel()
    assert task.cancelled()
    assert clock.sleepers == 0


async def test_a_task_that_never_waits_is_reported():
    async def run_without_waiting():
        while True:
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run_without_waiting())
        with pytest.raises(RuntimeError, match="keeps running without waiting for the clock"):
            await FakeClock().advance(1)
        task.cancel()


def test_seeded_ids_repeat_themselves():
    assert IdGenerator(7).new_uuid() == IdGenerator(7).new_uuid() != IdGenerator(8).new_uuid()


def test_the_testing_package_lists_exactly_its_public_names():
    assert "FakeClock" in dir(shoal.testing)
    assert all(getattr(shoal.testing, name) is not None for name in dir(shoal.testing))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        shoal.testing.nothing  # noqa: B018


async def _catch_timeout(work):
    try:
        return await work
    except TimeoutError as error:
        return error
