"""The teammate's end of the channel to its lead: its budget, its questions and the lead's commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct

from shoal.core.budgets.agent_budgets import AgentBudget, BudgetReservation
from shoal.core.budgets.budget import Budget
from shoal.core.budgets.limits import NO_LIMITS, AgentSlot, BudgetLimits, BudgetMeter, BudgetRefusal
from shoal.core.budgets.usage import ModelCard, Usage
from shoal.core.clock import Clock
from shoal.core.ids import AgentId
from shoal.core.permissions.questions import Answer, Question
from shoal.core.teams.member_backends import MemberChannel
from shoal.wire.member_channel_codec import (
    AgentBudgetOpenedMessage,
    AgentItemSentMessage,
    AgentSlotReleasedMessage,
    AgentSlotRequestedMessage,
    BudgetGrantDecidedMessage,
    BudgetReservationRequestedMessage,
    BudgetReservationSettledMessage,
    MemberInterruptRequestedMessage,
    MemberPingMessage,
    MemberQuestionAnsweredMessage,
    MemberQuestionAskedMessage,
    MemberQuestionWithdrawnMessage,
    MemberStopRequestedMessage,
    MemberWorkSlotReleasedMessage,
    MemberWorkSlotRequestedMessage,
    MessageFromMember,
    SessionPermissionChangedMessage,
    encode_member_channel_message,
    parse_message_from_lead,
)

LeadCommandMessage: TypeAlias = (
    MemberPingMessage
    | SessionPermissionChangedMessage
    | MemberInterruptRequestedMessage
    | MemberStopRequestedMessage
    | AgentItemSentMessage
)


class LeadChannel:
    """Requests budget, asks questions and reports status over one channel."""

    def __init__(self, channel: MemberChannel, limit_set: BudgetLimitSet, clock: Clock) -> None:
        self._channel = channel
        self.question_broker = RemoteQuestionBroker(self.send_message)
        self.budget = RemoteBudget(limit_set, clock, self.send_message)

    def send_message(self, message: MessageFromMember) -> None:
        self._channel.send(encode_member_channel_message(message))

    async def listen(self, on_command: Callable[[LeadCommandMessage], None]) -> None:
        """Receive until the lead is gone; `on_command` gets everything that is not an answer."""
        while (message := await self._channel.receive()) is not None:
            match parse_message_from_lead(message):
                case BudgetGrantDecidedMessage() as grant:
                    self.budget.resolve_grant(grant)
                case MemberQuestionAnsweredMessage() as answer:
                    self.question_broker.resolve_pending_question(answer)
                case command:
                    on_command(command)


class BudgetLimitSet(Struct, frozen=True, kw_only=True):
    """Limits of a tree of agents, with its remaining seconds."""

    tree: BudgetLimits = NO_LIMITS
    per_agent: BudgetLimits = NO_LIMITS
    per_type: Mapping[str, BudgetLimits] = {}


class _RemoteReservation(BudgetReservation):
    number: int = 0


class _RemoteAgentSlot(AgentSlot):
    number: int = 0


class RemoteBudget(Budget):
    """Checks time here; money, tokens, requests and agents are counted in the lead's process."""

    def __init__(
        self, limit_set: BudgetLimitSet, clock: Clock, send: Callable[[MessageFromMember], None]
    ) -> None:
        per_type = {kind: _keep_only_time_limit(limits) for kind, limits in limit_set.per_type.items()}
        super().__init__(
            limit_set.tree,
            per_agent=_keep_only_time_limit(limit_set.per_agent),
            per_type=per_type,
            clock=clock,
        )
        self.meters = ()
        self._limit_set = limit_set
        self._send = send
        self._number = 0
        self._spent_limit: BudgetRefusal | None = None
        """Limit that was spent when the lead's process granted the last slot for work."""
        self._pending: dict[int, asyncio.Future[BudgetGrantDecidedMessage]] = {}

    def get_or_create_agent_budget(
        self, agent: AgentId, kind: str, limits: BudgetLimits | None = None
    ) -> AgentBudget:
        self._send(AgentBudgetOpenedMessage(agent=agent, kind=kind, limits=limits or NO_LIMITS))
        found_budget = self._agent_budgets.get(agent)
        time_limits = _keep_only_time_limit((limits or NO_LIMITS).tighten_with(self.per_agent))
        if found_budget is None:
            found_budget = self._agent_budgets[agent] = RemoteAgentBudget(self, agent, kind, time_limits)
        else:
            found_budget.apply_limits(kind, time_limits)
        return found_budget

    def find_spent_limit(self, kind: str) -> BudgetRefusal | None:
        """Return what the lead's process reported; it refuses the requests that follow in any case."""
        return self._spent_limit

    def require_priced_model(self, card: ModelCard, kind: str | None = None) -> None:
        full_budget = Budget(
            self._limit_set.tree, per_agent=self._limit_set.per_agent, per_type=self._limit_set.per_type
        )
        full_budget.require_priced_model(card, kind)

    def meters_for_agent_type(self, kind: str) -> tuple[BudgetMeter, ...]:
        return ()

    async def request_agent_slot(
        self, kind: str, depth: int, *, is_resumed: bool = False
    ) -> AgentSlot | BudgetRefusal:
        number, grant = self.register_grant_request()
        self._send(AgentSlotRequestedMessage(number=number, kind=kind, depth=depth, again=is_resumed))
        granted = await self.wait_for_grant(grant)
        return granted.refusal or _RemoteAgentSlot(
            kind=kind, depth=depth, is_resumed=is_resumed, number=number
        )

    def close_agent_slot(self, slot: AgentSlot, *, was_started: bool = True) -> None:
        if slot.is_open and isinstance(slot, _RemoteAgentSlot):
            slot.is_open = False
            self._send(AgentSlotReleasedMessage(number=slot.number, begun=was_started))

    async def activate_agent_slot(self, slot: AgentSlot) -> None:
        if slot.is_running:
            return
        number, grant = self.register_grant_request()
        self._send(MemberWorkSlotRequestedMessage(number=number))
        try:
            granted = await grant
        except asyncio.CancelledError:
            self._send(MemberWorkSlotReleasedMessage())
            raise
        slot.is_running = True
        self._spent_limit = granted.refusal

    def deactivate_agent_slot(self, slot: AgentSlot) -> None:
        if slot.is_running:
            slot.is_running = False
            self._send(MemberWorkSlotReleasedMessage())

    def send_budget_message(self, message: MessageFromMember) -> None:
        self._send(message)

    def register_grant_request(self) -> tuple[int, asyncio.Future[BudgetGrantDecidedMessage]]:
        self._number += 1
        grant = self._pending[self._number] = asyncio.get_running_loop().create_future()
        return self._number, grant

    async def wait_for_grant(
        self, grant: asyncio.Future[BudgetGrantDecidedMessage]
    ) -> BudgetGrantDecidedMessage:
        """Wait for the lead's decision; a grant that arrives as the wait is canceled is given back."""
        try:
            return await grant
        except asyncio.CancelledError:
            if grant.done() and not grant.cancelled():
                self._give_back_grant(grant.result())
            raise

    def resolve_grant(self, message: BudgetGrantDecidedMessage) -> None:
        grant = self._pending.pop(message.number, None)
        if grant is not None and not grant.done():
            grant.set_result(message)
        elif grant is not None:
            # The requester was interrupted in the meantime.
            self._give_back_grant(message)

    def _give_back_grant(self, message: BudgetGrantDecidedMessage) -> None:
        if message.refusal is None:
            self._send(BudgetReservationSettledMessage(number=message.number))
            self._send(AgentSlotReleasedMessage(number=message.number, begun=False))


class RemoteAgentBudget(AgentBudget):
    __slots__ = ()
    budget: RemoteBudget

    async def wait_and_reserve(
        self, card: ModelCard, prompt_tokens: int, max_tokens: int | None = None
    ) -> BudgetReservation | BudgetRefusal:
        local_result = self.reserve(card, prompt_tokens, max_tokens)
        if isinstance(local_result, BudgetRefusal):
            return local_result
        number, grant = self.budget.register_grant_request()
        self.budget.send_budget_message(
            BudgetReservationRequestedMessage(
                number=number, agent=self.agent, card=card, prompt_tokens=prompt_tokens, max_tokens=max_tokens
            )
        )
        granted = await self.budget.wait_for_grant(grant)
        return granted.refusal or _RemoteReservation(
            card, granted.usd, granted.tokens, local_result.meters, number=number
        )

    def settle(self, reservation: BudgetReservation, usage: Usage) -> float | None:
        self._send_settlement(
            reservation,
            BudgetReservationSettledMessage(number=_get_reservation_number(reservation), usage=usage),
        )
        if isinstance(reservation, _RemoteReservation):
            reservation.number = 0
        return super().settle(reservation, usage)

    def release(self, reservation: BudgetReservation) -> None:
        if reservation.is_open:
            self._send_settlement(
                reservation, BudgetReservationSettledMessage(number=_get_reservation_number(reservation))
            )
        super().release(reservation)

    def write_off(self, reservation: BudgetReservation, estimated_usage: Usage | None = None) -> None:
        self._send_settlement(
            reservation,
            BudgetReservationSettledMessage(
                number=_get_reservation_number(reservation), usage=estimated_usage, billed=True
            ),
        )
        super().write_off(reservation, estimated_usage)

    def _send_settlement(
        self, reservation: BudgetReservation, message: BudgetReservationSettledMessage
    ) -> None:
        if _get_reservation_number(reservation):
            self.budget.send_budget_message(message)


class RemoteQuestionBroker:
    """Sends questions to the lead and waits for the answers."""

    def __init__(self, send: Callable[[MessageFromMember], None]) -> None:
        self._send = send
        self._pending: dict[str, asyncio.Future[Answer]] = {}

    async def ask_person_or_deny(self, question: Question) -> Answer:
        future = self._pending[question.id] = asyncio.get_running_loop().create_future()
        self._send(MemberQuestionAskedMessage(question=question))
        try:
            answer: Answer = await future
        except asyncio.CancelledError:
            self._send(MemberQuestionWithdrawnMessage(question=question.id))
            raise
        finally:
            del self._pending[question.id]
        return answer

    def resolve_pending_question(self, message: MemberQuestionAnsweredMessage) -> None:
        future = self._pending.get(message.question)
        if future is not None and not future.done():
            future.set_result(message.answer)


def _get_reservation_number(reservation: BudgetReservation) -> int:
    return reservation.number if isinstance(reservation, _RemoteReservation) else 0


def _keep_only_time_limit(limits: BudgetLimits) -> BudgetLimits:
    return BudgetLimits(max_seconds=limits.max_seconds)
