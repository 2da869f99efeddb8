"""The lead's end of the channel to a teammate's process: its budget, its questions and its status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeAlias

from shoal.core.budgets.agent_budgets import AgentBudget, BudgetReservation
from shoal.core.budgets.budget import Budget
from shoal.core.budgets.limits import NO_LIMITS, AgentSlot, BudgetRefusal
from shoal.core.clock import Clock
from shoal.core.errors import ShoalError
from shoal.core.ids import AgentId
from shoal.core.permissions.questions import Answer, Question
from shoal.core.teams.member_backends import MemberChannel
from shoal.wire.member_channel_codec import (
    AgentBudgetOpenedMessage,
    AgentItemDeliveredMessage,
    AgentSlotReleasedMessage,
    AgentSlotRequestedMessage,
    BudgetGrantDecidedMessage,
    BudgetReservationRequestedMessage,
    BudgetReservationSettledMessage,
    ItemForLeadSentMessage,
    MailRequestWithdrawnMessage,
    MemberEventForwardedMessage,
    MemberLeftMessage,
    MemberPingMessage,
    MemberPongMessage,
    MemberQuestionAnsweredMessage,
    MemberQuestionAskedMessage,
    MemberQuestionWithdrawnMessage,
    MemberReadyMessage,
    MemberShutdownAgreedMessage,
    MemberStartRefusedMessage,
    MemberStateReportedMessage,
    MemberWorkSlotReleasedMessage,
    MemberWorkSlotRequestedMessage,
    MessageFromLead,
    MessageFromMember,
    SessionPermissionChangedMessage,
    encode_member_channel_message,
    parse_message_from_member,
)

PING_ATTEMPTS = 2
"""Number of pings within `ping_timeout`: if the lead itself was suspended, one answer may arrive too late."""

_STORE_DELAY = 0.5
"""Seconds after which an answer of the store counts as late."""

BudgetMessage: TypeAlias = (
    AgentBudgetOpenedMessage
    | BudgetReservationRequestedMessage
    | BudgetReservationSettledMessage
    | AgentSlotRequestedMessage
    | AgentSlotReleasedMessage
    | MemberWorkSlotRequestedMessage
    | MemberWorkSlotReleasedMessage
)
MemberStatusMessage: TypeAlias = (
    MemberStateReportedMessage
    | MemberEventForwardedMessage
    | MailRequestWithdrawnMessage
    | MemberShutdownAgreedMessage
    | SessionPermissionChangedMessage
    | MemberLeftMessage
    | AgentItemDeliveredMessage
    | ItemForLeadSentMessage
)


class MemberChannelServer:
    """Serves budget and questions over one channel, and passes the status of the member on."""

    ping_timeout: ClassVar[float] = 10.0
    """Seconds within which a live process answers a ping."""

    def __init__(
        self,
        channel: MemberChannel,
        *,
        budget: Budget,
        slot: AgentSlot,
        ask_person: Callable[[Question], Awaitable[Answer]],
        wait_for_store: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`slot` is the concurrency slot that the member uses while it works."""
        self._channel = channel
        self._wait_for_store = wait_for_store
        self._clock = clock
        self._budget_server = MemberBudgetServer(budget, slot, self.send_message)
        self._question_server = MemberQuestionServer(ask_person, self.send_message)
        self._early_messages: list[MessageFromMember] = []
        self._pongs: dict[int, asyncio.Future[bool]] = {}
        self._number = 0
        self._last_message_at = clock.monotonic()

    async def wait_until_ready(self) -> MemberReadyMessage | MemberStartRefusedMessage | None:
        """Wait for the ready message; None if the channel is closed.

        Messages that arrive before it, such as its budgets, wait for `serve`.
        """
        while (message := await self._channel.receive()) is not None:
            self._last_message_at = self._clock.monotonic()
            parsed = parse_message_from_member(message)
            if isinstance(parsed, (MemberReadyMessage, MemberStartRefusedMessage)):
                return parsed
            self._early_messages.append(parsed)
        return None

    async def serve(
        self,
        on_status: Callable[[MemberStatusMessage], None],
        *,
        max_silence: float,
        on_unresponsive: Callable[[], Awaitable[None]],
    ) -> None:
        """Handle messages until the process closes its end.

        After `max_silence` seconds without a message the process is pinged. `on_unresponsive` is called if it
        does not answer.
        """
        async with asyncio.TaskGroup() as tasks:
            early_messages, self._early_messages = self._early_messages, []
            for early_message in early_messages:
                self._dispatch_message(early_message, on_status, tasks)
            liveness_task = tasks.create_task(self._ping_after_silence(max_silence, on_unresponsive))
            while (message := await self._channel.receive()) is not None:
                self._last_message_at = self._clock.monotonic()
                self._dispatch_message(parse_message_from_member(message), on_status, tasks)
            liveness_task.cancel()
            self._question_server.close()
            self._budget_server.cancel_waiting_budget_requests()

    def send_message(self, message: MessageFromLead) -> None:
        self._channel.send(encode_member_channel_message(message))

    async def ping(self) -> bool | None:
        """Return True if the process has work, None if it does not answer.

        A process that waits for the store cannot answer, so it is asked again when the store is available.
        """
        answer = await self._ping_once()
        while answer is None and await self._has_waited_for_store():
            answer = await self._ping_once()
        return answer

    async def _has_waited_for_store(self) -> bool:
        """Wait until the store is available; return False if it was."""
        asked_at = self._clock.monotonic()
        try:
            await self._wait_for_store()
        except ShoalError:
            return False
        return self._clock.monotonic() - asked_at >= _STORE_DELAY

    async def _ping_once(self) -> bool | None:
        for _ in range(PING_ATTEMPTS):
            # A new number per ping: several callers may ask at once.
            number = self._number = self._number + 1
            pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._pongs[number] = pong
            self.send_message(MemberPingMessage(number=number))
            try:
                async with self._clock.deadline(self.ping_timeout / PING_ATTEMPTS):
                    return await pong
            except TimeoutError:
                continue
            finally:
                self._pongs.pop(number, None)
        return None

    def release_gone_process(self) -> None:
        """Settle the budget of a process that is gone, and answer open pings for it."""
        self._budget_server.settle_budget_of_gone_process()
        for pong in self._pongs.values():
            if not pong.done():
                pong.set_result(True)  # it ends rather than rests; do not interrupt the waiter

    def close(self) -> None:
        self._channel.close()

    async def _ping_after_silence(
        self, max_silence: float, on_unresponsive: Callable[[], Awaitable[None]]
    ) -> None:
        """Ping the process after each silence: a suspended process cannot notice this itself."""
        clock = self._clock
        while True:
            await clock.sleep(max(0.0, self._last_message_at + max_silence - clock.monotonic()))
            if clock.monotonic() - self._last_message_at < max_silence:
                continue
            if await self.ping() is None:
                await on_unresponsive()
                return
            self._last_message_at = clock.monotonic()

    def _dispatch_message(
        self,
        message: MessageFromMember,
        on_status: Callable[[MemberStatusMessage], None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        match message:
            case MemberPongMessage():
                self._resolve_pong(message)
            case MemberQuestionAskedMessage() | MemberQuestionWithdrawnMessage():
                self._question_server.handle_question_message(message, tasks)
            case MemberReadyMessage() | MemberStartRefusedMessage():
                return
            case (
                MemberStateReportedMessage()
                | MemberEventForwardedMessage()
                | MailRequestWithdrawnMessage()
                | MemberShutdownAgreedMessage()
                | SessionPermissionChangedMessage()
                | MemberLeftMessage()
                | AgentItemDeliveredMessage()
                | ItemForLeadSentMessage()
            ):
                on_status(message)
            case _:
                self._budget_server.handle_budget_message(message, tasks)

    def _resolve_pong(self, message: MemberPongMessage) -> None:
        pong = self._pongs.get(message.number)
        if pong is not None and not pong.done():
            pong.set_result(message.busy)


class MemberBudgetServer:
    """Budget server of one process; its unsettled reservations count as spent when it is gone."""

    def __init__(self, budget: Budget, slot: AgentSlot, send: Callable[[MessageFromLead], None]) -> None:
        """`slot` is the concurrency slot of the member itself."""
        self._budget = budget
        self._member_slot = slot
        self._send = send
        self._agent_budgets: dict[AgentId, AgentBudget] = {}
        self._reservations: dict[int, tuple[AgentBudget, BudgetReservation]] = {}
        self._slots: dict[int, AgentSlot] = {}
        self._slot_task: asyncio.Task[None] | None = None
        self._reserve_tasks: set[asyncio.Task[None]] = set()

    def handle_budget_message(self, request: BudgetMessage, tasks: asyncio.TaskGroup) -> None:
        match request:
            case AgentBudgetOpenedMessage(agent=agent, kind=kind, limits=limits):
                self._agent_budgets[agent] = self._budget.get_or_create_agent_budget(agent, kind, limits)
            case BudgetReservationRequestedMessage():
                self._reserve_or_wait(request, tasks)
            case BudgetReservationSettledMessage(number=number):
                if (reserved := self._reservations.get(number)) is not None:
                    self._settle_reservation(request, *reserved)
            case AgentSlotRequestedMessage():
                self._open_agent_slot_and_reply(request)
            case AgentSlotReleasedMessage(number=number, begun=was_started):
                if (slot := self._slots.pop(number, None)) is not None:
                    self._budget.close_agent_slot(slot, was_started=was_started)
            case MemberWorkSlotRequestedMessage(number=number):
                self._grant_work_slot_or_wait(number, tasks)
            case MemberWorkSlotReleasedMessage():
                self._release_work_slot()

    def _open_agent_slot_and_reply(self, request: AgentSlotRequestedMessage) -> None:
        slot = self._budget.open_agent_slot(request.kind, request.depth, is_resumed=request.again)
        if isinstance(slot, BudgetRefusal):
            self._send(BudgetGrantDecidedMessage(number=request.number, refusal=slot))
        else:
            self._slots[request.number] = slot
            self._send(BudgetGrantDecidedMessage(number=request.number))

    def _grant_work_slot_or_wait(self, number: int, tasks: asyncio.TaskGroup) -> None:
        if self._budget.try_activate_agent_slot(self._member_slot):
            self._send_work_slot(number)
        else:
            self._slot_task = tasks.create_task(self._grant_work_slot(number))

    async def _grant_work_slot(self, number: int) -> None:
        await self._budget.activate_agent_slot(self._member_slot)
        self._send_work_slot(number)

    def _send_work_slot(self, number: int) -> None:
        """Grant the slot, and report a spent limit: the member may use the slot for the mail that it has."""
        spent_limit = self._budget.find_spent_limit(self._member_slot.kind)
        self._send(BudgetGrantDecidedMessage(number=number, refusal=spent_limit))

    def _release_work_slot(self) -> None:
        task, self._slot_task = self._slot_task, None
        if task is not None:
            task.cancel()
        self._budget.deactivate_agent_slot(self._member_slot)

    def _reserve_or_wait(self, request: BudgetReservationRequestedMessage, tasks: asyncio.TaskGroup) -> None:
        """Reserve at once, without a task; wait if other reservations have to be settled first."""
        agent_budget = self._agent_budgets.get(request.agent) or self._budget.get_or_create_agent_budget(
            request.agent, "", NO_LIMITS
        )
        result = agent_budget.reserve(request.card, request.prompt_tokens, request.max_tokens)
        if isinstance(result, BudgetRefusal) and result.for_now:
            task = tasks.create_task(self._wait_and_reserve(request, agent_budget))
            self._reserve_tasks.add(task)
            task.add_done_callback(self._reserve_tasks.discard)
        else:
            self._reply_to_reservation(request, agent_budget, result)

    async def _wait_and_reserve(
        self, request: BudgetReservationRequestedMessage, agent_budget: AgentBudget
    ) -> None:
        result = await agent_budget.wait_and_reserve(request.card, request.prompt_tokens, request.max_tokens)
        self._reply_to_reservation(request, agent_budget, result)

    def _reply_to_reservation(
        self,
        request: BudgetReservationRequestedMessage,
        agent_budget: AgentBudget,
        reservation: BudgetReservation | BudgetRefusal,
    ) -> None:
        if isinstance(reservation, BudgetRefusal):
            self._send(BudgetGrantDecidedMessage(number=request.number, refusal=reservation))
        else:
            self._reservations[request.number] = (agent_budget, reservation)
            self._send(
                BudgetGrantDecidedMessage(
                    number=request.number, usd=reservation.usd, tokens=reservation.tokens
                )
            )

    def _settle_reservation(
        self,
        request: BudgetReservationSettledMessage,
        agent_budget: AgentBudget,
        reservation: BudgetReservation,
    ) -> None:
        if request.billed:
            agent_budget.write_off(reservation, request.usage)
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


class MemberQuestionServer:
    """Question server of one process: passes its questions to the lead's question broker."""

    def __init__(
        self,
        ask_person: Callable[[Question], Awaitable[Answer]],
        send: Callable[[MessageFromLead], None],
    ) -> None:
        self._ask_person = ask_person
        self._send = send
        self._open_questions: dict[str, asyncio.Task[None]] = {}

    def handle_question_message(
        self, message: MemberQuestionAskedMessage | MemberQuestionWithdrawnMessage, tasks: asyncio.TaskGroup
    ) -> None:
        if isinstance(message, MemberQuestionWithdrawnMessage):
            self._withdraw_question(message.question)
        else:
            self._open_questions[message.question.id] = tasks.create_task(
                self._ask_person_and_reply(message.question)
            )

    def _withdraw_question(self, question: str) -> None:
        if (task := self._open_questions.pop(question, None)) is not None:
            task.cancel()

    def close(self) -> None:
        for question in list(self._open_questions):
            self._withdraw_question(question)

    async def _ask_person_and_reply(self, question: Question) -> None:
        answer = await self._ask_person(question)
        self._open_questions.pop(question.id, None)
        self._send(MemberQuestionAnsweredMessage(question=question.id, answer=answer))
