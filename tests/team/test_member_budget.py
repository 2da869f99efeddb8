"""The budget of a process member: what it used and reserved is settled when its process is gone."""

from __future__ import annotations

import asyncio

import pytest

from shoal.core.budgets.budget import Budget
from shoal.core.budgets.limits import AgentCountLimits, AgentSlot, BudgetLimits, BudgetRefusal
from shoal.core.budgets.usage import ModelCard, TokenPrice, Usage
from shoal.core.ids import AgentId
from shoal.team.channel.member_channel_server import MemberBudgetServer
from shoal.wire.member_channel_codec import (
    AgentBudgetOpenedMessage,
    AgentSlotRequestedMessage,
    BudgetGrantDecidedMessage,
    BudgetReservationRequestedMessage,
    BudgetReservationSettledMessage,
)

ANN = AgentId("ann@crew")
CARD = ModelCard(id="m", provider="x", price=TokenPrice(input=10.0, output=50.0))


def open_member_budget(budget: Budget) -> tuple[MemberBudgetServer, list[BudgetGrantDecidedMessage]]:
    slot = budget.open_agent_slot("general-purpose", 1)
    assert isinstance(slot, AgentSlot)
    replies: list[BudgetGrantDecidedMessage] = []
    return MemberBudgetServer(budget, slot, replies.append), replies


@pytest.mark.spec("USR-01")
async def test_the_open_reservations_of_a_gone_process_count_as_spent() -> None:
    budget = Budget(BudgetLimits(max_requests=4, max_usd=1.0))
    meters = {meter.limit: meter for meter in budget.meters}
    server, replies = open_member_budget(budget)
    async with asyncio.TaskGroup() as tasks:
        opened = AgentBudgetOpenedMessage(agent=ANN, kind="general-purpose", limits=BudgetLimits())
        server.handle_budget_message(opened, tasks)
        for number in range(3):
            asked = BudgetReservationRequestedMessage(
                number=number, agent=ANN, card=CARD, prompt_tokens=1_000, max_tokens=100
            )
            server.handle_budget_message(asked, tasks)
        while len(replies) < 3:
            await asyncio.sleep(0)
        usage = Usage(input_tokens=10, output_tokens=10)
        server.handle_budget_message(BudgetReservationSettledMessage(number=0, usage=usage), tasks)
    settled = meters["usd"].spent
    for _ in range(2):
        server.settle_budget_of_gone_process()
        assert meters["requests"].spent == 3
        assert meters["usd"].spent >= settled + 2 * 1_000 * 10 / 1_000_000
        assert meters["usd"].held == pytest.approx(0)


async def test_the_places_of_agents_of_a_gone_process_are_free_again() -> None:
    budget = Budget(BudgetLimits(), AgentCountLimits(max_concurrent=3))
    server, replies = open_member_budget(budget)
    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            request = AgentSlotRequestedMessage(number=number, kind="Explore", depth=2, again=False)
            server.handle_budget_message(request, tasks)
    assert [reply.refusal is None for reply in replies] == [True, True, False]
    assert isinstance(budget.open_agent_slot("Explore", 1), BudgetRefusal)
    server.settle_budget_of_gone_process()
    slots = [budget.open_agent_slot("Explore", 1) for _ in range(4)]
    assert [isinstance(slot, AgentSlot) for slot in slots] == [True, True, True, False]
