"""Serves the budget to a teammate's process over the lead's end of the channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from shoal.core.budgets.agent_budgets import AgentBudget, BudgetReservation
from shoal.core.budgets.budget import Budget
from shoal.core.budgets.limits import NO_LIMITS, AgentSlot, BudgetRefusal
from shoal.core.ids import AgentId
from shoal.wire.member_channel_codec import (
    AgentBudgetOpenedMessage,
    AgentSlotReleasedMessage,
    AgentSlotRequestedMessage,
    BudgetGrantDecidedMessage,
    BudgetReservationRequestedMessage,
    BudgetReservationSettledMessage,
    MemberWorkSlotReleasedMessage,
    MemberWorkSlotRequestedMessage,
    MessageFromLead,
)

BudgetMessage: TypeAlias = (
    AgentBudgetOpenedMessage
    | BudgetReservationRequestedMessage
    | BudgetReservationSettledMessage
    | AgentSlotRequestedMessage
    | AgentSlotReleasedMessage
    | MemberWorkSlotRequestedMessage
    | MemberWorkSlotReleasedMessage
)


class MemberBudgetServer:
    """Budget server of one process; its unsettled reservations count as spent when it is gone."""

    def __init__(self, budget: Budget, send: Callable[[MessageFromLead], None]) -> None:
        self._budget = budget
        self._send = send
        self._agent_budgets: dict[AgentId, AgentBudget] = {}
        self._reservations: dict[int, tuple[AgentBudget, BudgetReservation]] = {}
        self._slots: dict[int, AgentSlot] = {}
        self.member_slot: AgentSlot | None = None
        """Concurrency slot of the member itself."""
        self._slot_task: asyncio.Task[None] | None = None
        self._reserve_tasks: set[asyncio.Task[None]] = set()

    def handle_budget_message(self, request: BudgetMessage, tasks: asyncio.TaskGroup) -> None:
        match request:
            case AgentBudgetOpenedMessage(agent=agent, kind=kind, limits=limits):
                self._agent_budgets[agent] = self._budget.get_or_create_agent_budget(agent, kind, limits)
            case BudgetReservationRequestedMessage():
                # It may have to wait until other reservations are settled.
                task = tasks.create_task(self._reserve_budget_and_reply(request))
                self._reserve_tasks.add(task)
                task.add_done_callback(self._reserve_tasks.discard)
            case BudgetReservationSettledMessage(number=number):
                if (reserved := self._reservations.get(number)) is not None:
                    self._settle_reservation(request, *reserved)
            case AgentSlotRequestedMessage():
                self._open_agent_slot_and_reply(request)
            case AgentSlotReleasedMessage(number=number, begun=was_started):
                if (slot := self._slots.pop(number, None)) is not None:
                    self._budget.close_agent_slot(slot, was_started=was_started)
            case MemberWorkSlotRequestedMessage(number=number):
                self._slot_task = tasks.create_task(self._grant_work_slot(number))
            case MemberWorkSlotReleasedMessage():
                self._release_work_slot()

    def _open_agent_slot_and_reply(self, request: AgentSlotRequestedMessage) -> None:
        slot = self._budget.open_agent_slot(request.kind, request.depth, is_resumed=request.again)
        if isinstance(slot, BudgetRefusal):
            self._send(BudgetGrantDecidedMessage(number=request.number, refusal=slot))
        else:
            self._slots[request.number] = slot
            self._send(BudgetGrantDecidedMessage(number=request.number))

    async def _grant_work_slot(self, number: int) -> None:
        if self.member_slot is not None:
            await self._budget.activate_agent_slot(self.member_slot)
        self._send(BudgetGrantDecidedMessage(number=number))

    def _release_work_slot(self) -> None:
        task, self._slot_task = self._slot_task, None
        if task is not None:
            task.cancel()
        if self.member_slot is not None:
            self._budget.deactivate_agent_slot(self.member_slot)

    async def _reserve_budget_and_reply(self, request: BudgetReservationRequestedMessage) -> None:
        agent_budget = self._agent_budgets.get(request.agent) or self._budget.get_or_create_agent_budget(
            request.agent, "", NO_LIMITS
        )
        reservation = await agent_budget.wait_and_reserve(
            request.card, request.prompt_tokens, request.max_tokens
        )
        if isinstance(reservation, BudgetRefusal):
            self._send(BudgetGrantDecidedMessage(number=request.number, refusal=reservation))
        else:
            self._reservations[request.number] = (agent_budget, reservation)
            self._send(BudgetGrantDecidedMessage(number=request.number))

    def _settle_reservation(
        self,
        request: BudgetReservationSettledMessage,
        agent_budget: AgentBudget,
        reservation: BudgetReservation,
    ) -> None:
        if request.billed:
            agent_budget.write_off(reservation)
            return
        del self._reservations[request.number]
        if request.usage is None:
            agent_budget.release(reservation)
        else:
            agent_budget.settle(reservation, request.usage)

    def cancel_waiting_budget_requests(self) -> None:
        """Cancel pending grants that nobody receives."""
        self._release_work_slot()
        for task in tuple(self._reserve_tasks):
            task.cancel()

    def settle_budget_of_gone_process(self) -> None:
        """Write off the open reservations of a process that is gone."""
        self._release_work_slot()
        for agent_budget, reservation in self._reservations.values():
            agent_budget.write_off(reservation)
            agent_budget.release(reservation)
        for slot in self._slots.values():
            self._budget.close_agent_slot(slot)
        self._reservations.clear()
        self._slots.clear()
