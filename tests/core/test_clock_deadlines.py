"""Deadlines of the machine's clock: extended, shortened and passed."""

from __future__ import annotations

import asyncio

import pytest

from shoal.core.clock import SystemClock

_LONG = 600.0
_SHORT = 0.01


async def wait_forever() -> None:
    await asyncio.get_running_loop().create_future()


async def wait_and_move_deadline(first: float, *later: float) -> None:
    async with SystemClock().deadline(first) as deadline:
        for seconds in later:
            deadline.extend(seconds)
        await wait_forever()


@pytest.mark.parametrize("seconds", [0.0, -1.0, _SHORT])
async def test_work_past_its_deadline_raises_a_timeout(seconds):
    with pytest.raises(TimeoutError):
        await wait_and_move_deadline(seconds)


@pytest.mark.parametrize("seconds", [0.0, _SHORT])
async def test_a_deadline_that_is_moved_forward_applies_at_once(seconds):
    with pytest.raises(TimeoutError):
        await wait_and_move_deadline(_LONG, seconds)


async def test_a_deadline_that_is_moved_back_does_not_end_the_work_before():
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(TimeoutError):
        await wait_and_move_deadline(_SHORT, 5 * _SHORT)
    assert loop.time() - started >= 5 * _SHORT


async def test_a_deadline_without_an_end_never_fires():
    async with SystemClock().deadline(_SHORT) as deadline:
        deadline.extend(float("inf"))
        with pytest.raises(TimeoutError):
            await wait_and_move_deadline(5 * _SHORT)
