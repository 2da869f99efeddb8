"""The lead's side of a teammate that runs in its own process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

from shoal.core.agents.subagents import ResolvedAgentSettings, RetainedWorktreeWork, SpawnRequest
from shoal.core.budgets.limits import AgentSlot
from shoal.core.errors import AgentRequestRefused, ProcessError, ShoalError, StateFileError, TeamStoreError
from shoal.core.events import AgentStarted, JournaledEvent
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.permissions.permission_changes import PermissionSuggestion
from shoal.core.task_groups import uncancel_current_task
from shoal.core.teams.mail_bodies import ShutdownRequestMail
from shoal.core.teams.member_backends import MemberChannel, MemberProcess
from shoal.core.teams.roster import RosterEntry
from shoal.core.teams.team_operations import MemberState, TeammateStatusSnapshot
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.channel.budget_server import MemberBudgetServer
from shoal.team.channel.question_channel import MemberQuestionServer
from shoal.team.team_services import TeamServices
from shoal.wire.journal_codec import parse_journal_line
from shoal.wire.member_channel_codec import (
    MailRequestWithdrawnMessage,
    MemberEventForwardedMessage,
    MemberInterruptRequestedMessage,
    MemberLeftMessage,
    MemberPingMessage,
    MemberPongMessage,
    MemberQuestionAskedMessage,
    MemberQuestionWithdrawnMessage,
    MemberReadyMessage,
    MemberShutdownAgreedMessage,
    MemberStartRefusedMessage,
    MemberStateReportedMessage,
    MemberStopRequestedMessage,
    MessageFromLead,
    MessageFromMember,
    SessionPermissionChangedMessage,
    encode_member_channel_message,
    parse_message_from_member,
)

START_TIMEOUT = 60.0
"""Seconds a process has to report that it is ready."""
LEAVE_TIMEOUT = 2.0
"""Seconds a process has to end on request, before TERM."""
KILL_GRACE = 1.0
"""Seconds between TERM and KILL."""
_COUNTED_EVENTS = re.compile(rb'"type":"(tool_finished|request_settled)"')
_EVENT_TYPE_OFFSET = 200
PING_TIMEOUT = 10.0
"""Seconds in which a live process answers a ping."""
PING_ATTEMPTS = 2
"""Pings in that time: if the lead itself was suspended, one answer may arrive too late."""


class RemoteMember:
    """A teammate behind a channel, or a foreign program without one.

    `on_request_withdrawn` and `on_shutdown_agreed` are called for messages from the channel, `on_changed` for
    a new state.
    """

    def __init__(
        self,
        services: TeamServices,
        entry: RosterEntry,
        process: MemberProcess,
        ready: MemberReadyMessage,
        early_messages: Sequence[MessageFromMember] = (),
        earlier_mail: Collection[str] = (),
    ) -> None:
        """`earlier_mail` are the ids of its mail that the lead had when the process was started."""
        self._services = services
        self._entry = entry
        self._process = process
        self._channel = process.channel
        self.ready = ready
        self._early_messages = early_messages
        self.name: AgentName = entry.name
        self.state: MemberState = "created"
        self.is_claiming = False
        self.claims_tasks = True
        self.shutdown_request: ShutdownRequestMail | None = None
        self.stop_reason = ""
        self.resumable = False
        self.on_request_withdrawn: Callable[[str], None] = lambda _: None
        self.on_shutdown_agreed: Callable[[str], None] = lambda _: None
        self.on_changed: Callable[[], None] = lambda: None
        self.on_connection_lost: Callable[[], Awaitable[None]] = _do_nothing
        """Called when the channel ends without an end message, before the process is cleaned up."""
        self._earlier_mail = earlier_mail
        self.death_cause = ""
        """Cause of an unexpected end of its process, if it had one."""
        self._budget_server = MemberBudgetServer(services.budget, self._send_message)
        self._question_server = MemberQuestionServer(services, self._send_message)
        self._pongs: dict[int, asyncio.Future[bool]] = {}
        self._number = 0
        self._last_message_at = services.clock.monotonic()
        """Time of the last message from its channel."""
        self._is_stuck = False
        self._end_message: MemberLeftMessage | None = None
        self.monitor = (
            None if self._channel is None else services.agent_factory.create_progress_monitor(self.id)
        )
        """Counts usage only: the member's process writes the output file."""
        self._process_gone = False
        """True if its process is gone and a restart, or its end, is still pending."""

    @classmethod
    async def connect(
        cls, services: TeamServices, entry: RosterEntry, request: SpawnRequest | None, process: MemberProcess
    ) -> RemoteMember:
        """Return the member once its process is ready.

        Raises `AgentRequestRefused` if the process cannot start.
        """
        early_messages: list[MessageFromMember] = []
        try:
            earlier_mail = await _list_mail_ids_unread_by_lead(services, entry)
            if process.channel is None:
                return cls(
                    services,
                    entry,
                    process,
                    _build_foreign_member_ready_message(entry, request),
                    earlier_mail=earlier_mail,
                )
            async with services.clock.deadline(START_TIMEOUT):
                ready = await _wait_for_ready_message(process.channel, early_messages)
                exit_text = "" if ready is not None else await process.wait_until_exit()
        except (TimeoutError, ValueError):
            ready, exit_text = None, "it did not say that it is ready"
        except BaseException:
            await _close_and_stop_process(process)
            raise
        if isinstance(ready, MemberReadyMessage):
            return cls(services, entry, process, ready, early_messages, earlier_mail)
        await _close_and_stop_process(process)
        if ready is not None:
            raise AgentRequestRefused(ready.why)
        raise AgentRequestRefused(f"The process of {entry.name} could not be started: {exit_text}.")

    def set_concurrency_slot(self, slot: AgentSlot) -> None:
        """Set the concurrency slot that its process asks for."""
        self._budget_server.member_slot = slot

    @property
    def id(self) -> AgentId:
        return AgentId(self._entry.agent_id)

    @property
    def is_foreign(self) -> bool:
        return self._channel is None

    @property
    def agent_started_event(self) -> AgentStarted:
        return self.ready.started

    @property
    def pane(self) -> str:
        return self._process.pane

    @property
    def is_busy(self) -> bool:
        is_working = self.state in ("running", "created") or self.is_claiming
        return is_working or self.shutdown_request is not None or self._process_gone

    @property
    def can_claim_task(self) -> bool:
        return self.claims_tasks and self.shutdown_request is None and not self.stop_reason

    async def is_confirmed_idle(self) -> bool:
        """Return True if its process answers a ping as idle; a process that does not answer is ended."""
        if self._channel is None:
            try:
                return not await self._services.store.open_mailboxes(self._entry.team).take_unread(
                    self.name, limit=1
                )
            except (TeamStoreError, StateFileError):
                return True  # unknown; only the foreign program reads this inbox
        busy = await self._ping_for_busy_state()
        if busy is None:
            await self._end_stuck_process()
        return busy is False

    async def _ping_for_busy_state(self) -> bool | None:
        """Return True if the process has work, None if it does not answer."""
        for _ in range(PING_ATTEMPTS):
            # A new number per ping: several callers may ask at once.
            number = self._number = self._number + 1
            pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._pongs[number] = pong
            self._send_message(MemberPingMessage(number=number))
            try:
                async with self._services.clock.deadline(PING_TIMEOUT / PING_ATTEMPTS):
                    return await pong
            except TimeoutError:
                continue
            finally:
                self._pongs.pop(number, None)
        return None

    async def _ping_after_silence(self) -> None:
        """Ping the process after each silence: a suspended process cannot notice this itself."""
        clock = self._services.clock
        while True:
            await clock.sleep(
                max(0.0, self._last_message_at + self._services.stall_after - clock.monotonic())
            )
            if clock.monotonic() - self._last_message_at < self._services.stall_after:
                continue
            if await self._ping_for_busy_state() is None:
                await self._end_stuck_process()
                return
            self._last_message_at = clock.monotonic()

    def is_waiting_for_answer(self, request: str, mail: str) -> bool:
        # Nobody waits for requests of an earlier process. They are recognized by being in the inbox already;
        # timestamps would fail when the clock is changed.
        return mail not in self._earlier_mail

    def to_teammate_status(self) -> TeammateStatusSnapshot:
        return TeammateStatusSnapshot(
            agent=self.id,
            name=self.name,
            kind=self.agent_started_event.kind,
            state=self.state,
            color=self._entry.color,
            model=self.ready.resolved.model,
            pid=self._process.pid,
            pane=self.pane,
        )

    async def run(self) -> AgentRunOutcome:
        try:
            await self._listen_to_channel()
            # A stuck process that TERM revived still sends an end message, but its end is unexpected.
            is_unexpected = self._end_message is None or self._is_stuck
            if is_unexpected and not self.is_foreign:
                await self.on_connection_lost()
            exit_text = await self._process.wait_until_exit()
            if self.is_foreign and self.shutdown_request is not None:
                return AgentRunOutcome(status="completed", text="", detail="it shut down as it was asked to")
            if self._end_message is None or is_unexpected:
                self.death_cause = (
                    f"it had not answered for {PING_TIMEOUT:g} s" if self._is_stuck else exit_text
                )
                return AgentRunOutcome(status="failed", text="", detail=self.death_cause)
            return self._outcome_from_end_message(self._end_message)
        except asyncio.CancelledError:
            if not self.stop_reason:
                raise
            uncancel_current_task()
            await self._stop_gracefully_or_terminate()
            return AgentRunOutcome(
                status="killed",
                text="" if self._end_message is None else self._end_message.text,
                detail=self.stop_reason,
            )
        except Exception as error:  # noqa: BLE001 - the wall around teammates: a crash ends this one alone
            return AgentRunOutcome(
                status="failed", text="", detail=f"its line failed: {_format_first_grouped_error(error)}"
            )
        finally:
            self._process_gone = True
            self._budget_server.settle_budget_of_gone_process()
            for pong in self._pongs.values():
                if not pong.done():
                    pong.set_result(True)  # it ends rather than rests; do not interrupt the waiter
            await self.stop_process()

    async def clean_up(self) -> RetainedWorktreeWork | None:
        """Return the retained work. Its process released the rest; if it was killed, the next sweep does."""
        return None if self._end_message is None else self._end_message.work

    async def stop_process(self) -> None:
        """Close the channel and stop the process."""
        if self._channel is not None:
            self._channel.close()
        try:
            await self._process.stop(grace=KILL_GRACE)
        except ProcessError as error:
            self._services.note(f"The process of {self.name} is left behind: {error}")

    def send_permission_update(self, update: PermissionSuggestion) -> None:
        """Send a permission answer that a person gave for the whole session."""
        self._send_message(SessionPermissionChangedMessage(update=update))

    def interrupt_turn(self) -> bool:
        """End its working period but not the member."""
        if self.state != "running" or self._channel is None:
            return False
        self._send_message(MemberInterruptRequestedMessage())
        return True

    def set_foreign_idle(self, *, idle: bool) -> None:
        """Set the state of a foreign program, which is known only from its mail."""
        self.state = "idle" if idle else "running"
        self.on_changed()

    async def _stop_gracefully_or_terminate(self) -> None:
        self._send_message(MemberStopRequestedMessage(why=self.stop_reason, stays=self.resumable))
        try:
            async with self._services.clock.deadline(LEAVE_TIMEOUT):
                await self._listen_to_channel()
                await self._process.wait_until_exit()
        except TimeoutError:
            await self._terminate_process()

    async def _terminate_process(self) -> None:
        with suppress(ProcessError):  # `stop_process` runs after this and reports what is left
            await self._process.stop(grace=KILL_GRACE)

    async def _end_stuck_process(self) -> None:
        self._is_stuck = True
        self._services.note(f"{self.name} has not answered for {PING_TIMEOUT:g} s: its process is ended.")
        await self._terminate_process()

    async def _listen_to_channel(self) -> None:
        """Handle messages until the process closes its end of the channel."""
        if self._channel is None:
            await self._process.wait_until_exit()
            return
        async with asyncio.TaskGroup() as tasks:
            early_messages, self._early_messages = self._early_messages, ()
            for early_message in early_messages:
                self._handle_member_message(early_message, tasks)
            liveness_task = tasks.create_task(self._ping_after_silence())
            while (message := await self._channel.receive()) is not None:
                self._last_message_at = self._services.clock.monotonic()
                self._handle_member_message(parse_message_from_member(message), tasks)
            liveness_task.cancel()
            self._question_server.close()
            self._budget_server.cancel_waiting_budget_requests()

    def _handle_member_message(self, message: MessageFromMember, tasks: asyncio.TaskGroup) -> None:
        match message:
            case MemberStateReportedMessage():
                self.state, self.is_claiming, self.claims_tasks = (
                    message.state,
                    message.claiming,
                    message.claims,
                )
                self.on_changed()
            case MemberEventForwardedMessage(line=line):
                self._services.on_journal_line(bytes(line))
                self._count_usage_of_journal_line(bytes(line))
            case MemberPongMessage():
                self._resolve_pong(message)
            case MailRequestWithdrawnMessage(request=request):
                self.on_request_withdrawn(request)
            case MemberShutdownAgreedMessage(request=request):
                self.on_shutdown_agreed(request)
            case MemberLeftMessage():
                self._end_message = message
            case MemberQuestionAskedMessage() | MemberQuestionWithdrawnMessage():
                self._question_server.handle_question_message(message, tasks)
            case SessionPermissionChangedMessage(update=update):
                self._services.apply_permission_update(update)
            case MemberReadyMessage() | MemberStartRefusedMessage():
                return
            case _:
                self._budget_server.handle_budget_message(message, tasks)

    def _count_usage_of_journal_line(self, line: bytes) -> None:
        """Count usage from a journal line; each line starts with its time and event type."""
        if self.monitor is not None and _COUNTED_EVENTS.search(line, 0, _EVENT_TYPE_OFFSET):
            _, event = parse_journal_line(line)
            if isinstance(event, JournaledEvent) and event.agent == self.id:
                self.monitor.count_remote_event(event)

    def _resolve_pong(self, message: MemberPongMessage) -> None:
        pong = self._pongs.get(message.number)
        if pong is not None and not pong.done():
            pong.set_result(message.busy)

    def _outcome_from_end_message(self, end_message: MemberLeftMessage) -> AgentRunOutcome:
        return AgentRunOutcome(status=end_message.status, text=end_message.text, detail=end_message.detail)

    def _send_message(self, message: MessageFromLead) -> None:
        if self._channel is not None:
            self._channel.send(encode_member_channel_message(message))


async def _wait_for_ready_message(
    channel: MemberChannel, early_messages: list[MessageFromMember]
) -> MemberReadyMessage | MemberStartRefusedMessage | None:
    """Wait for the ready message; None if the channel is closed.

    Messages that arrive before it, such as its budgets, are added to `early_messages`.
    """
    while (message := await channel.receive()) is not None:
        parsed = parse_message_from_member(message)
        if isinstance(parsed, (MemberReadyMessage, MemberStartRefusedMessage)):
            return parsed
        early_messages.append(parsed)
    return None


async def _do_nothing() -> None: ...


def _format_first_grouped_error(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, ShoalError) else f"{type(error).__name__}: {error}"


async def _close_and_stop_process(process: MemberProcess) -> None:
    if process.channel is not None:
        process.channel.close()
    await process.stop(grace=KILL_GRACE)


def _build_foreign_member_ready_message(
    entry: RosterEntry, request: SpawnRequest | None
) -> MemberReadyMessage:
    """Build the ready message of a foreign program, which sends none."""
    return MemberReadyMessage(
        started=AgentStarted(
            agent=AgentId(entry.agent_id),
            kind=entry.agent_type,
            name=entry.name,
            description="" if request is None else request.description,
            parent=LEAD_ID,
            call="",
            depth=1,
            model=entry.model,
            mode="",
            background=True,
            cwd=entry.cwd,
            color=entry.color,
            team=entry.team,
        ),
        resolved=ResolvedAgentSettings(
            kind=entry.agent_type,
            model=entry.model,
            mode="",
            tools=(),
            cwd=entry.cwd,
            source="another program",
            start_tokens=0,
        ),
        prompt=entry.prompt or "",
    )


async def _list_mail_ids_unread_by_lead(services: TeamServices, entry: RosterEntry) -> frozenset[str]:
    """Return the ids of the member's mail that the lead has not read."""
    try:
        unread = await services.store.open_mailboxes(entry.team).take_unread(LEAD_NAME)
    except (TeamStoreError, StateFileError):
        return frozenset()
    return frozenset(mail.id for mail in unread if mail.sender == entry.name)
