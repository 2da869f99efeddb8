"""Agent slots: active ones count as running, idle ones do not."""

from __future__ import annotations

import asyncio

import pytest

from shoal.core.budgets.budget import Budget
from shoal.core.budgets.limits import AgentCountLimits, AgentSlot, BudgetLimits, BudgetRefusal


def create_budget(places: int | None) -> Budget:
    return Budget(BudgetLimits(), AgentCountLimits(max_concurrent=places))


def open_idle_slot(budget: Budget) -> AgentSlot:
    started = budget.open_agent_slot("x", 1, idle=True)
    assert isinstance(started, AgentSlot)
    return started


@pytest.mark.spec("USR-01")
async def test_any_number_of_slots_may_be_idle_and_only_a_few_active() -> None:
    budget = create_budget(3)
    members = [open_idle_slot(budget) for _ in range(50)]
    assert (budget.running_agent_count, budget.started_agent_count) == (0, 50)
    working = most = 0

    async def live(member: AgentSlot) -> None:
        nonlocal working, most
        for _ in range(4):
            await budget.activate_agent_slot(member)
            working += 1
            most = max(most, working)
            assert budget.running_agent_count == 3 or working < 3
            await asyncio.sleep(0)
            working -= 1
            budget.deactivate_agent_slot(member)

    async with asyncio.timeout(20), asyncio.TaskGroup() as lives:
        for member in members:
            lives.create_task(live(member))
    assert (most, budget.running_agent_count) == (3, 0)


async def test_slots_are_activated_in_the_order_of_their_requests() -> None:
    budget = create_budget(1)
    first = budget.open_agent_slot("x", 1)
    assert isinstance(first, AgentSlot)
    order: list[int] = []

    async def work(number: int) -> None:
        member = open_idle_slot(budget)
        await budget.activate_agent_slot(member)
        order.append(number)
        assert isinstance(budget.open_agent_slot("x", 1), BudgetRefusal)
        await asyncio.sleep(0)
        budget.close_agent_slot(member)

    async with asyncio.timeout(20), asyncio.TaskGroup() as works:
        for number in range(5):
            works.create_task(work(number))
        await asyncio.sleep(0)
        budget.close_agent_slot(first)
        # From this moment the slot belongs to the first waiter, even before its task runs again.
        assert isinstance(budget.open_agent_slot("x", 1), BudgetRefusal)
    assert (order, budget.running_agent_count) == ([0, 1, 2, 3, 4], 0)


@pytest.mark.parametrize("given", [False, True], ids=["while it waits", "just when its turn has come"])
async def test_a_slot_closed_while_it_waits_frees_its_place(given: bool) -> None:
    budget = create_budget(1)
    holder, gone, next_one = open_idle_slot(budget), open_idle_slot(budget), open_idle_slot(budget)
    await budget.activate_agent_slot(holder)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(budget.activate_agent_slot(gone))
        behind = tasks.create_task(budget.activate_agent_slot(next_one))
        await asyncio.sleep(0)
        if given:
            budget.deactivate_agent_slot(holder)
        waiting.cancel()
        await asyncio.wait([waiting])
        budget.close_agent_slot(gone)
        budget.deactivate_agent_slot(holder)
        await behind
    assert budget.running_agent_count == 1
    budget.close_agent_slot(next_one)
    budget.close_agent_slot(holder)
    assert budget.running_agent_count == 0


def test_an_idle_slot_counts_for_the_other_caps() -> None:
    budget = Budget(BudgetLimits(), AgentCountLimits(max_concurrent=1, max_total=2, max_depth=1))
    assert isinstance(budget.open_agent_slot("x", 1, idle=True), AgentSlot)
    assert isinstance(deep := budget.open_agent_slot("x", 2, idle=True), BudgetRefusal)
    assert isinstance(budget.open_agent_slot("x", 1, idle=True), AgentSlot)
    assert isinstance(many := budget.open_agent_slot("x", 1, idle=True), BudgetRefusal)
    assert (deep.limit, many.limit) == ("depth", "total")
