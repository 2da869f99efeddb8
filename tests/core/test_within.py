"""A deadline that is set only where the work waits for something."""

from __future__ import annotations

import asyncio

import pytest

from shoal.core.clock import within
from shoal.testing.clock import FakeClock


async def test_work_that_is_done_at_once_sets_no_deadline():
    clock = FakeClock()
    seen: list[int] = []

    async def work() -> str:
        seen.append(clock.sleepers)
        return "done"

    assert await within(clock, 5, work()) == "done"
    assert seen == [clock.sleepers] == [0]


async def test_work_that_waits_goes_on_from_where_it_stood_and_gives_its_result():
    clock = FakeClock()
    steps: list[str] = []

    async def work() -> str:
        steps.append("begun")
        await asyncio.sleep(0)
        await clock.sleep(2)
        steps.append("woken")
        await clock.sleep(2)
        return "done"

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(within(clock, 5, work()))
        await clock.asleep(2)
        await clock.advance(4)
    assert running.result() == "done"
    assert steps == ["begun", "woken"]
    assert clock.sleepers == 0


async def test_work_that_takes_too_long_is_ended_and_may_clean_up():
    clock = FakeClock()
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await clock.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append("yes")

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_timed_out(clock, work()))
        await clock.asleep(2)
        await clock.advance(5)
    assert running.result()
    assert cleaned == ["yes"]


async def _timed_out(clock: FakeClock, work) -> bool:
    try:
        await within(clock, 5, work)
    except TimeoutError:
        return True
    return False


async def test_what_the_work_raises_comes_out_before_and_after_it_has_waited():
    async def raising(waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise LookupError("nothing there")

    for waits in (False, True):
        with pytest.raises(LookupError, match="nothing there"):
            await within(FakeClock(), 5, raising(waits))


async def test_a_deadline_of_its_own_that_the_work_began_with_is_still_its_own():
    clock = FakeClock()

    async def work() -> str:
        try:
            async with clock.deadline(1):
                await clock.sleep(60)
        except TimeoutError:
            await clock.sleep(1)
            return "went on"
        return "never"

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(within(clock, 5, work()))
        await clock.asleep(3)
        await clock.advance(2)
    assert running.result() == "went on"


async def test_who_is_cancelled_while_the_work_waits_cancels_the_work():
    clock = FakeClock()
    heard: list[str] = []

    async def work() -> None:
        try:
            await clock.sleep(60)
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    running = asyncio.create_task(within(clock, 120, work()))
    await clock.asleep(2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert heard == ["cancelled"]
    assert clock.sleepers == 0
