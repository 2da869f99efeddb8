"""Who counts as running: one at work does, one that waits for something to do does not."""

from __future__ import annotations

import asyncio

import pytest

from shoal.core.budget import Purse
from shoal.core.caps import Caps, Limits, Refusal, Started


def purse_of(places: int | None) -> Purse:
    return Purse(Limits(), Caps(max_concurrent=places))


def idle(purse: Purse) -> Started:
    started = purse.start("x", 1, idle=True)
    assert isinstance(started, Started)
    return started


@pytest.mark.spec("USR-01")
async def test_any_number_may_be_idle_and_only_so_many_work() -> None:
    purse = purse_of(3)
    members = [idle(purse) for _ in range(50)]
    assert (purse.running, purse.started) == (0, 50)
    working = most = 0

    async def live(member: Started) -> None:
        nonlocal working, most
        for _ in range(4):
            await purse.working(member)
            working += 1
            most = max(most, working)
            assert purse.running == 3 or working < 3
            await asyncio.sleep(0)
            working -= 1
            purse.resting(member)

    async with asyncio.timeout(20), asyncio.TaskGroup() as lives:
        for member in members:
            lives.create_task(live(member))
    assert (most, purse.running) == (3, 0)


async def test_they_are_let_in_in_the_order_in_which_they_asked_and_no_newcomer_passes_them() -> None:
    purse = purse_of(1)
    first = purse.start("x", 1)
    assert isinstance(first, Started)
    order: list[int] = []

    async def work(number: int) -> None:
        member = idle(purse)
        await purse.working(member)
        order.append(number)
        assert isinstance(purse.start("x", 1), Refusal)
        await asyncio.sleep(0)
        purse.ended(member)

    async with asyncio.timeout(20), asyncio.TaskGroup() as works:
        for number in range(5):
            works.create_task(work(number))
        await asyncio.sleep(0)
        purse.ended(first)
        # The place is the first waiter's from this moment, before it has run again.
        assert isinstance(purse.start("x", 1), Refusal)
    assert (order, purse.running) == ([0, 1, 2, 3, 4], 0)


@pytest.mark.parametrize("given", [False, True], ids=["while it waits", "just when its turn has come"])
async def test_who_is_ended_while_it_waits_takes_no_place_with_it(given: bool) -> None:
    purse = purse_of(1)
    holder, gone, next_one = idle(purse), idle(purse), idle(purse)
    await purse.working(holder)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(purse.working(gone))
        behind = tasks.create_task(purse.working(next_one))
        await asyncio.sleep(0)
        if given:
            purse.resting(holder)
        waiting.cancel()
        await asyncio.wait([waiting])
        purse.ended(gone)
        purse.resting(holder)
        await behind
    assert purse.running == 1
    purse.ended(next_one)
    purse.ended(holder)
    assert purse.running == 0


def test_one_that_comes_idle_is_still_held_to_the_other_caps() -> None:
    purse = Purse(Limits(), Caps(max_concurrent=1, max_total=2, max_depth=1))
    assert isinstance(purse.start("x", 1, idle=True), Started)
    assert isinstance(deep := purse.start("x", 2, idle=True), Refusal)
    assert isinstance(purse.start("x", 1, idle=True), Started)
    assert isinstance(many := purse.start("x", 1, idle=True), Refusal)
    assert (deep.limit, many.limit) == ("depth", "total")
