"""The lead's side of a teammate that runs in its own process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Container
from contextlib import suppress

from msgspec import Struct

from shoal.agent.agent_runner import AgentRunner
from shoal.core.agents.subagents import ResolvedAgentSettings, RetainedWorktreeWork, SpawnRequest
from shoal.core.budgets.limits import AgentSlot
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import (
    AgentProcessNotStarted,
    AgentRequestRefused,
    AgentTranscriptMissing,
    ProcessError,
    ShoalError,
    StateFileError,
    TeamStoreError,
)
from shoal.core.events import AgentStarted, JournaledEvent
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.permissions.permission_changes import PermissionSuggestion
from shoal.core.task_groups import uncancel_current_task
from shoal.core.teams.mail_bodies import ShutdownRequestMail
from shoal.core.teams.member_backends import MemberProcess
from shoal.core.teams.roster import RosterEntry
from shoal.core.teams.team_operations import MemberState, TeammateStatusSnapshot
from shoal.runs.progress_monitor import ProgressMonitor
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.channel.member_channel_server import MemberChannelServer, MemberStatusMessage
from shoal.team.mail.mail_authentication import InboundMail
from shoal.team.members.down_member import (
    DownMember,
    build_resolved_settings_from_roster,
    build_started_event_from_roster,
)
from shoal.team.members.member_protocol import RemoteMemberObserver
from shoal.team.team_prompts import format_team_notice
from shoal.team.team_services import TeamServices
from shoal.wire.journal_codec import parse_journal_line
from shoal.wire.member_channel_codec import (
    MailRequestWithdrawnMessage,
    MemberEventForwardedMessage,
    MemberInterruptRequestedMessage,
    MemberLeftMessage,
    MemberReadyMessage,
    MemberShutdownAgreedMessage,
    MemberStateReportedMessage,
    MemberStopRequestedMessage,
    SessionPermissionChangedMessage,
)

START_TIMEOUT = 60.0
"""Seconds a process has to report that it is ready."""
LEAVE_TIMEOUT = 2.0
"""Seconds a process has to end on request, before TERM."""
KILL_GRACE = 1.0
"""Seconds between TERM and KILL."""
_COUNTED_EVENTS = re.compile(rb'"type":"(tool_finished|request_settled)"')
_EVENT_TYPE_OFFSET = 200


class MemberConnection(Struct, frozen=True, kw_only=True):
    """Process of a member that is ready."""

    process: MemberProcess
    channel: MemberChannelServer | None
    """None for a foreign program."""
    ready: MemberReadyMessage
    earlier_mail: Collection[str] = ()
    """Ids of its mail that the lead had when the process was started."""


class RemoteMember:
    """A teammate behind a channel, or a foreign program without one."""

    agent: AgentRunner | None = None
    delivered: Container[str] = ()
    reads_own_mail = True

    def __init__(
        self,
        services: TeamServices,
        entry: RosterEntry,
        connection: MemberConnection,
        *,
        observer: RemoteMemberObserver,
        monitor: ProgressMonitor | None = None,
    ) -> None:
        """`monitor` has counted the usage of its earlier processes."""
        self._services = services
        self._entry = entry
        self._process = connection.process
        self._channel = connection.channel
        self._observer = observer
        self.ready = connection.ready
        self.name: AgentName = entry.name
        self.state: MemberState = "created"
        self.is_claiming = False
        self.claims_tasks = True
        self.shutdown_request: ShutdownRequestMail | None = None
        self.stop_reason = ""
        self.resumable = self.has_finished_work = False
        self._earlier_mail = connection.earlier_mail
        self.death_cause = ""
        """Cause of an unexpected end of its process, if it had one."""
        self._is_stuck = False
        self._end_message: MemberLeftMessage | None = None
        if monitor is None and not self.is_foreign:
            monitor = services.agent_factory.create_progress_monitor(self.id)
        self.monitor = monitor
        """Counts usage only: the member's process writes the output file."""
        self._process_gone = False
        """True if its process is gone and a restart, or its end, is still pending."""

    @classmethod
    async def connect(
        cls,
        services: TeamServices,
        entry: RosterEntry,
        request: SpawnRequest | None,
        process: MemberProcess,
        *,
        slot: AgentSlot,
        observer: RemoteMemberObserver,
        monitor: ProgressMonitor | None = None,
    ) -> RemoteMember:
        """Return the member once its process is ready; `slot` is the slot that it uses while it works.

        Raises `AgentRequestRefused` if the process cannot start.
        """
        try:
            earlier_mail = await _list_mail_ids_unread_by_lead(services, entry)
            if process.channel is None:
                ready_message = _build_foreign_member_ready_message(entry, request)
                connection = MemberConnection(
                    process=process, channel=None, ready=ready_message, earlier_mail=earlier_mail
                )
                return cls(services, entry, connection, observer=observer, monitor=monitor)
            channel = MemberChannelServer(
                process.channel,
                budget=services.runtime.budget,
                slot=slot,
                ask_person=services.ask_person_or_deny,
                wait_for_store=services.runtime.team_store.wait_until_available,
                clock=services.runtime.clock,
            )
            async with services.runtime.clock.deadline(START_TIMEOUT):
                ready = await channel.wait_until_ready()
                exit_text = "" if ready is not None else await process.wait_until_exit()
        except (TimeoutError, ValueError):
            ready, exit_text = None, format_end_reason("not_ready")
        except BaseException:
            await _close_and_stop_process(process)
            raise
        if isinstance(ready, MemberReadyMessage):
            connection = MemberConnection(
                process=process, channel=channel, ready=ready, earlier_mail=earlier_mail
            )
            return cls(services, entry, connection, observer=observer, monitor=monitor)
        await _close_and_stop_process(process)
        if ready is not None:
            raise (AgentTranscriptMissing if ready.is_transcript_missing else AgentRequestRefused)(ready.why)
        raise AgentProcessNotStarted(
            format_team_notice("process_not_started", name=entry.name, reason=exit_text)
        )

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
    def resolved(self) -> ResolvedAgentSettings:
        return self.ready.resolved

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
                return not await self._services.runtime.team_store.open_mailboxes(
                    self._entry.team
                ).take_unread(self.name, limit=1)
            except (TeamStoreError, StateFileError):
                return True  # unknown; only the foreign program reads this inbox
        busy = await self._channel.ping()
        if busy is None:
            await self._end_stuck_process()
        return busy is False

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
            model=self.resolved.model,
            pid=self._process.pid,
            pane=self.pane,
        )

    async def run(self) -> AgentRunOutcome:
        self._send_session_permissions()
        try:
            await self._listen_to_channel()
            # A stuck process that TERM revived still sends an end message, but its end is unexpected.
            is_unexpected = self._end_message is None or self._is_stuck or self._was_ended_by_machine
            if is_unexpected and not self.is_foreign:
                await self._observer.on_connection_lost(self.name)
            exit_text = await self._process.wait_until_exit()
            if self.is_foreign and self.shutdown_request is not None:
                return AgentRunOutcome(status="completed", text="", detail=format_end_reason("shut_down"))
            if self._end_message is None or is_unexpected:
                if self._is_stuck:
                    exit_text = format_end_reason("silent", seconds=f"{MemberChannelServer.ping_timeout:g}")
                elif self._end_message is not None:
                    exit_text = self._end_message.detail
                self.death_cause = exit_text
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
        except Exception as error:  # noqa: BLE001 - boundary around teammates: a crash ends only this one
            return AgentRunOutcome(
                status="failed",
                text="",
                detail=format_end_reason("connection_failed", error=_format_first_grouped_error(error)),
            )
        finally:
            self._process_gone = True
            if self._channel is not None:
                self._channel.release_gone_process()
            await self.discard()

    @property
    def _was_ended_by_machine(self) -> bool:
        """True if a signal ended the process, for example because a machine of a cluster was stopped."""
        reason = None if self._end_message is None else self._end_message.detail
        return not self.stop_reason and reason == format_end_reason("terminated")

    async def clean_up(self) -> RetainedWorktreeWork | None:
        """Return the retained work. Its process released the rest; if it was killed, the next sweep does."""
        return None if self._end_message is None else self._end_message.work

    async def discard(self) -> None:
        if self._channel is not None:
            self._channel.close()
        try:
            await self._process.stop(grace=KILL_GRACE)
        except ProcessError as error:
            self._services.note(f"The process of {self.name} could not be removed: {error}")

    def _send_session_permissions(self) -> None:
        """Send also the permissions granted while the process started; it ignores those that it has."""
        for update in self._services.permissions.session_permissions:
            self.send_permission_update(update)

    def send_permission_update(self, update: PermissionSuggestion) -> None:
        """Send a permission answer that a person gave for the whole session."""
        if self._channel is not None:
            self._channel.send_message(SessionPermissionChangedMessage(update=update))

    def interrupt_turn(self) -> bool:
        if self.state != "running" or self._channel is None:
            return False
        self._channel.send_message(MemberInterruptRequestedMessage())
        return True

    async def deliver_mail(self, received: InboundMail) -> bool:
        """Leave the mail to the member's own process."""
        return False

    def on_message_sent(self, summary: str) -> None:
        return  # its own process keeps the summary

    def on_foreign_mail(self, *, is_idle: bool) -> None:
        if self.is_foreign:
            self.state = "idle" if is_idle else "running"
            self._observer.notify_changed()

    def create_placeholder(self, entry: RosterEntry, cause: str) -> DownMember:
        return DownMember(entry, cause, self)

    def expect_restart(self) -> bool:
        return False

    async def _stop_gracefully_or_terminate(self) -> None:
        if self._channel is not None:
            stop_message = MemberStopRequestedMessage(why=self.stop_reason, stays=self.resumable)
            self._channel.send_message(stop_message)
        try:
            async with self._services.runtime.clock.deadline(LEAVE_TIMEOUT):
                await self._listen_to_channel()
                await self._process.wait_until_exit()
        except TimeoutError:
            await self._terminate_process()

    async def _terminate_process(self) -> None:
        with suppress(ProcessError):  # `discard` runs after this and reports what is left
            await self._process.stop(grace=KILL_GRACE)

    async def _end_stuck_process(self) -> None:
        self._is_stuck = True
        timeout = MemberChannelServer.ping_timeout
        self._services.note(
            f"{self.name} has not answered for {timeout:g} s, so its process is being killed."
        )
        await self._terminate_process()

    async def _listen_to_channel(self) -> None:
        """Handle messages until the process closes its end of the channel."""
        if self._channel is None:
            await self._process.wait_until_exit()
            return
        await self._channel.serve(
            self._handle_status_message,
            max_silence=self._services.policy.stall_after,
            on_unresponsive=self._end_stuck_process,
        )

    def _handle_status_message(self, message: MemberStatusMessage) -> None:
        match message:
            case MemberStateReportedMessage():
                if self.state == "running" and message.state == "idle":
                    self.has_finished_work = True
                self.state, self.is_claiming, self.claims_tasks = (
                    message.state,
                    message.claiming,
                    message.claims,
                )
                self._observer.notify_changed()
            case MemberEventForwardedMessage(line=line):
                self._services.runtime.events.publish_remote_journal_line(bytes(line))
                self._count_usage_of_journal_line(bytes(line))
            case MailRequestWithdrawnMessage(request=request):
                self._observer.on_request_withdrawn(request)
            case MemberShutdownAgreedMessage(request=request):
                self._observer.on_shutdown_agreed(self.name, request)
            case SessionPermissionChangedMessage(update=update):
                self._services.permissions.apply_session_permission(update)
            case MemberLeftMessage():
                self._end_message = message

    def _count_usage_of_journal_line(self, line: bytes) -> None:
        """Count usage from a journal line; each line starts with its time and event type."""
        if self.monitor is not None and _COUNTED_EVENTS.search(line, 0, _EVENT_TYPE_OFFSET):
            _, event = parse_journal_line(line)
            if isinstance(event, JournaledEvent) and event.agent == self.id:
                self.monitor.count_remote_event(event)

    def _outcome_from_end_message(self, end_message: MemberLeftMessage) -> AgentRunOutcome:
        return AgentRunOutcome(
            status=end_message.status,
            text=end_message.text,
            detail=end_message.detail,
            is_passing=end_message.passing,
        )


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
        started=build_started_event_from_roster(entry, "" if request is None else request.description),
        resolved=build_resolved_settings_from_roster(entry),
        prompt=entry.prompt or "",
    )


async def _list_mail_ids_unread_by_lead(services: TeamServices, entry: RosterEntry) -> frozenset[str]:
    """Return the ids of the member's mail that the lead has not read."""
    try:
        unread = await services.runtime.team_store.open_mailboxes(entry.team).take_unread(LEAD_NAME)
    except (TeamStoreError, StateFileError):
        return frozenset()
    return frozenset(mail.id for mail in unread if mail.sender == entry.name)
