"""The budget in a member's process: grants of its lead."""

from __future__ import annotations

import asyncio

from shoal.core.budgets.agent_budgets import BudgetReservation
from shoal.core.budgets.usage import ModelCard
from shoal.core.clock import SystemClock
from shoal.core.ids import AgentId
from shoal.team.channel.lead_channel import BudgetLimitSet, RemoteBudget
from shoal.wire.member_channel_codec import (
    AgentSlotReleasedMessage,
    BudgetGrantDecidedMessage,
    BudgetReservationRequestedMessage,
    BudgetReservationSettledMessage,
    MessageFromMember,
)

CARD = ModelCard(id="m", provider="x")


async def test_a_grant_that_arrives_as_its_request_is_cancelled_is_given_back() -> None:
    sent: list[MessageFromMember] = []
    budget = RemoteBudget(BudgetLimitSet(), SystemClock(), sent.append)
    account = budget.get_or_create_agent_budget(AgentId("ann@crew"), "general-purpose")
    waiting = asyncio.ensure_future(account.wait_and_reserve(CARD, 10))
    entering = asyncio.ensure_future(budget.request_agent_slot("Explore", 2))
    await asyncio.sleep(0)
    numbers = [sent[-2].number, sent[-1].number]  # type: ignore[union-attr]
    for number in numbers:
        budget.resolve_grant(BudgetGrantDecidedMessage(number=number))
    # Both tasks were woken and have not run yet.
    waiting.cancel()
    entering.cancel()
    await asyncio.wait([waiting, entering])
    assert waiting.cancelled()
    assert entering.cancelled()
    assert BudgetReservationSettledMessage(number=numbers[0]) in sent
    assert AgentSlotReleasedMessage(number=numbers[1], begun=False) in sent


async def test_a_reservation_of_a_member_has_the_amounts_that_its_lead_reserved() -> None:
    sent: list[MessageFromMember] = []
    budget = RemoteBudget(BudgetLimitSet(), SystemClock(), sent.append)
    account = budget.get_or_create_agent_budget(AgentId("ann@crew"), "general-purpose")
    waiting = asyncio.ensure_future(account.wait_and_reserve(CARD, 10))
    await asyncio.sleep(0)
    asked = sent[-1]
    assert isinstance(asked, BudgetReservationRequestedMessage)
    budget.resolve_grant(BudgetGrantDecidedMessage(number=asked.number, usd=0.25, tokens=9_000))
    reservation = await waiting
    assert isinstance(reservation, BudgetReservation)
    assert (reservation.usd, reservation.tokens) == (0.25, 9_000)
