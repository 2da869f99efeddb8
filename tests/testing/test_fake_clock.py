"""The clock a test holds."""

from __future__ import annotations

import asyncio

import pytest

import shoal.testing
from shoal.core.clock import iso
from shoal.testing import FakeClock, Ids


async def test_sleepers_wake_in_order_each_at_its_own_moment():
    clock = FakeClock()
    woken = []

    async def sleeper(name, *seconds):
        for pause in seconds:
            await clock.sleep(pause)
            woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleeper("slow", 3))
        tasks.create_task(sleeper("twice", 1, 1.5))
        tasks.create_task(sleeper("late", 10))
        await clock.advance(5)
        assert woken == [("twice", 1), ("twice", 2.5), ("slow", 3)]
        assert clock.next_in == 5
        await clock.advance(5)
    assert woken[-1] == ("late", 10)


async def test_the_wall_clock_moves_with_it():
    clock = FakeClock()
    assert iso(clock.now()) == "2026-01-01T00:00:00.000Z"
    await clock.advance(1.25)
    assert iso(clock.now()) == "2026-01-01T00:00:01.250Z"


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
        task = tasks.create_task(_outcome(work()))
        await clock.advance(8.9)
        assert not task.done()
        await clock.advance(0.1)
    assert steps == [4]
    assert isinstance(task.result(), TimeoutError)
    assert clock.sleepers == 0


async def test_work_that_ends_in_time_leaves_no_alarm():
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
        await clock.asleep(2)
        task.cancel()
    assert task.cancelled()
    assert clock.sleepers == 0


async def test_a_task_that_never_waits_is_reported():
    async def spin():
        while True:
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(spin())
        with pytest.raises(RuntimeError, match="does not wait for the clock"):
            await FakeClock().advance(1)
        task.cancel()


def test_seeded_ids_repeat_themselves():
    assert Ids(7).uuid() == Ids(7).uuid() != Ids(8).uuid()


def test_the_kit_names_what_it_has_and_nothing_else():
    assert "FakeClock" in dir(shoal.testing)
    assert all(getattr(shoal.testing, name) is not None for name in dir(shoal.testing))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        shoal.testing.nothing  # noqa: B018


async def _outcome(work):
    try:
        return await work
    except TimeoutError as error:
        return error
