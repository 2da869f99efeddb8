from __future__ import annotations

import asyncio

import pytest

from shoal.core.compact_event import CompactEvent


async def test_setting_wakes_all_that_wait_and_lets_nobody_wait_until_cleared() -> None:
    event = CompactEvent()
    waiting = [asyncio.create_task(event.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    event.set()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert event.is_set()
    assert await event.wait()
    event.clear()
    assert not event.is_set()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(event.wait(), 0.01)


async def test_a_canceled_waiter_does_not_affect_the_others() -> None:
    event = CompactEvent()
    first, second = asyncio.create_task(event.wait()), asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    first.cancel()
    event.set()
    assert await second
    assert first.cancelled() or await first
    event.clear()
    third = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    assert not third.done()
    event.set()
    assert await third


async def test_an_event_that_is_set_and_cleared_at_once_wakes_those_that_waited() -> None:
    event = CompactEvent()
    waiting = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    event.set()
    event.clear()
    assert await waiting
    assert not event.is_set()
