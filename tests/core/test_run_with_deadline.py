"""run_with_deadline: the deadline is set only if the work waits."""

from __future__ import annotations

import asyncio

import pytest

from shoal.core.clock import run_with_deadline
from shoal.testing.fake_clock import FakeClock


async def test_work_that_finishes_at_once_sets_no_deadline():
    clock = FakeClock()
    seen: list[int] = []

    async def work() -> str:
        seen.append(clock.sleepers)
        return "done"

    assert await run_with_deadline(clock, 5, work()) == "done"
    assert seen == [clock.sleepers] == [0]


async def test_work_that_waits_continues_and_returns_its_result():
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
        running = tasks.create_task(run_with_deadline(clock, 5, work()))
        await clock.wait_for_sleepers(2)
        await clock.advance(4)
    assert running.result() == "done"
    assert steps == ["begun", "woken"]
    assert clock.sleepers == 0


async def test_work_that_takes_too_long_is_cancelled_and_may_clean_up():
    clock = FakeClock()
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await clock.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append("yes")

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_has_timed_out(clock, work()))
        await clock.wait_for_sleepers(2)
        await clock.advance(5)
    assert running.result()
    assert cleaned == ["yes"]


async def _has_timed_out(clock: FakeClock, work) -> bool:
    try:
        await run_with_deadline(clock, 5, work)
    except TimeoutError:
        return True
    return False


async def test_exceptions_of_the_work_are_raised_before_and_after_it_waits():
    async def raise_lookup_error(waits: bool) -> None:
        if waits:
            await asyncio.sleep(0)
        raise LookupError("nothing there")

    for waits in (False, True):
        with pytest.raises(LookupError, match="nothing there"):
            await run_with_deadline(FakeClock(), 5, raise_lookup_error(waits))


async def test_an_inner_deadline_of_the_work_still_applies():
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
        running = tasks.create_task(run_with_deadline(clock, 5, work()))
        await clock.wait_for_sleepers(3)
        await clock.advance(2)
    assert running.result() == "went on"


async def test_cancelling_the_caller_cancels_the_work():
    clock = FakeClock()
    heard: list[str] = []

    async def work() -> None:
        try:
            await clock.sleep(60)
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    running = asyncio.create_task(run_with_deadline(clock, 120, work()))
    await clock.wait_for_sleepers(2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert heard == ["cancelled"]
    assert clock.sleepers == 0
