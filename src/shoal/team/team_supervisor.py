"""Supervises the team that a session leads: its members, its mail, and whether it is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import partial

from shoal.core.agents.subagents import AgentStatusSnapshot, SpawnRequest
from shoal.core.budgets.limits import AgentSlot
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.errors import AgentRequestRefused, ShoalError, StateFileError, TeamStoreError
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, AgentName, TaskId
from shoal.core.permissions.permission_changes import PermissionSuggestion
from shoal.core.task_groups import uncancel_current_task
from shoal.core.teams.mail_signatures import MailSigner
from shoal.core.teams.roster import EXTERNAL_MEMBER_TYPE, RosterEntry, TeamRoster, format_agent_id
from shoal.core.teams.tasks import has_claimable_task
from shoal.core.teams.team_operations import TeammateSpawnResult, TeammateStatusSnapshot
from shoal.runs.prepared_agent import PreparedAgent
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.channel.mail_question_broker import MailQuestionBroker
from shoal.team.mail.lead_inbox import LeadInbox
from shoal.team.mail.mail_authentication import ForeignMemberNameLookup, MailSenderAuthenticator
from shoal.team.mail.mail_pump import MailPump
from shoal.team.mail.mail_sender import TeamMailPoster
from shoal.team.mail.mail_verifier import MailVerifier
from shoal.team.members.local_member import LocalMember
from shoal.team.members.member_admission import AdmittedMember, MemberAdmission
from shoal.team.members.member_handle import MemberHandle
from shoal.team.members.member_registrar import MemberRegistrar
from shoal.team.members.member_results import LostMember, build_member_snapshot
from shoal.team.members.member_shutdown import MemberShutdown, is_foreign_program_member
from shoal.team.members.remote_member import RemoteMember
from shoal.team.roster_activity import RosterActivityWriter
from shoal.team.team_briefing import build_team_briefing
from shoal.team.team_prompts import format_unknown_member_error
from shoal.team.team_services import TeamServices


class TeamSupervisor(MemberShutdown):
    """Supervisor of one team; `tasks` outlives it."""

    def __init__(self, services: TeamServices, team: TeamRoster, tasks: asyncio.TaskGroup) -> None:
        self.name = team.name
        self._team = team
        self._services = services
        self._tasks = tasks
        mailboxes = services.store.open_mailboxes(team.name)
        self._colors = {member.name: member.color for member in team.members}
        key = services.store.read_signing_key(team.name)
        self.mail_sender = TeamMailPoster(
            mailboxes, self._colors, clock=services.clock, ids=services.ids, seal=MailSigner(team.name, key)
        )
        authenticator = MailSenderAuthenticator(
            team.name, key, trusted=ForeignMemberNameLookup(mailboxes), policy=services.trust_unsigned
        )
        self._board = services.store.open_board(team.name)
        self._mail_pump = MailPump(mailboxes, services.clock, services.note, self.notify_changed)
        self._mail_verifier = MailVerifier(services, self._mail_pump, authenticator, self.notify_changed)
        self._lead_inbox = LeadInbox(services, self.mail_sender, self, tasks)
        self._registrar = MemberRegistrar(services, team, self.mail_sender, authenticator)
        self._admission = MemberAdmission(services, self._registrar, self._board, self)
        self._activity_writer = RosterActivityWriter(
            services.store.rosters, team.name, services.clock, services.note
        )
        self._handles: dict[AgentName, MemberHandle] = {}
        self._leaving: set[MemberHandle] = set()
        """Members that ended and whose end is not announced yet."""
        self._version = 0
        self._changed_event = asyncio.Event()
        self._background_tasks: list[asyncio.Task[None]] = []

    def start_background_tasks(self, delivered: Container[str] = ()) -> None:
        """Start delivering mail to the lead; its transcript already contains `delivered`."""
        pump_coroutine = self._mail_verifier.pump_and_verify_inbox(
            LEAD_NAME, self._services.lead_id, self._lead_inbox.deliver_mail, delivered
        )
        for coroutine in (
            pump_coroutine,
            self._mail_pump.run_mark_settled_mail_read_loop(),
            self._activity_writer.flush_continuously(),
            self._release_idle_notices_when_quiet(),
        ):
            self._background_tasks.append(self._tasks.create_task(coroutine))

    # Members

    async def spawn_teammate(self, request: SpawnRequest, call: str) -> TeammateSpawnResult:
        (spawned,) = await self.add_members((request,), call)
        return spawned

    async def add_members(
        self, requests: Sequence[SpawnRequest], call: str = ""
    ) -> tuple[TeammateSpawnResult, ...]:
        """Admit all before the first of them starts. If one fails, all are undone."""
        admitted = await self._admission.admit_members(requests, call)
        for member in admitted:
            self._colors[member.entry.name] = member.entry.color
            self._start_member(member)
        return tuple(each.spawned_teammate for each in admitted)

    async def resume_members(self, team: TeamRoster, on_lost: Callable[[LostMember], None]) -> None:
        """Resume the members of an earlier process; a member that was cut off at work continues.

        `on_lost` is called for members that cannot be resumed before they leave the team. If that cannot be
        journaled, they stay for the next resume.
        """
        # Before anybody looks for a free task: claimed tasks stay with their owner.
        own_entries = [entry for entry in team.members if entry.agent_type != EXTERNAL_MEMBER_TYPE]
        claimed_tasks = {
            entry.name: await self._board.reclaim_owner_tasks(entry.name) for entry in own_entries
        }
        lead_mail_ids = await self.mail_sender.list_received_mail_ids(LEAD_NAME)
        async with asyncio.TaskGroup() as task_group:
            resume_tasks = [
                task_group.create_task(self._resume_member(entry, claimed_tasks[entry.name], lead_mail_ids))
                for entry in own_entries
                if entry.name != LEAD_NAME
            ]
        for lost in filter(None, (task.result() for task in resume_tasks)):
            on_lost(lost)
            if lost.leaves_roster:
                await self._board.release_owner_tasks(AgentName(lost.name))
                await self._services.store.rosters.remove_member(self.name, AgentName(lost.name))

    async def _resume_member(
        self, entry: RosterEntry, claimed_tasks: tuple[TaskId, ...], lead_mail_ids: Container[str]
    ) -> LostMember | None:
        admitted = await self._admission.resume_member(entry, claimed_tasks, lead_mail_ids)
        if isinstance(admitted, LostMember):
            return admitted
        self._start_member(admitted)
        try:
            if (request := await self._registrar.find_unanswered_shutdown_request(entry)) is not None:
                self.on_shutdown_requested(entry.name, request)
        except ShoalError as error:
            self._services.note(f"Whether {entry.name} was asked to shut down cannot be read: {error}")
        return None

    def resolve_member_name(self, name: str) -> AgentName | None:
        """Return the name of a member, given its name or id."""
        handle = self._handles.get(AgentName(name.removesuffix(f"@{self.name}")))
        return None if handle is None else handle.member.name

    async def list_external_member_names(self) -> tuple[AgentName, ...]:
        """Return the names of external members, which joined on their own and are only in the roster."""
        team = await self._services.store.rosters.read_team_roster(self.name)
        members = () if team is None else team.members
        return tuple(each.name for each in members if each.agent_type == EXTERNAL_MEMBER_TYPE)

    async def resolve_external_member_name(self, name: str) -> AgentName | None:
        return next(
            (
                each
                for each in await self.list_external_member_names()
                if name in (each, f"{each}@{self.name}")
            ),
            None,
        )

    def find_member_handle(self, agent: AgentId) -> MemberHandle | None:
        handle = self._handles.get(AgentName(agent.removesuffix(f"@{self.name}")))
        return handle if handle is not None and handle.member.id == agent else None

    def get_member_color(self, name: AgentName) -> str | None:
        return self._colors.get(name)

    def list_member_names(self) -> tuple[AgentName, ...]:
        return tuple(self._handles)

    def list_member_statuses(self) -> tuple[TeammateStatusSnapshot, ...]:
        return tuple(handle.member.to_teammate_status() for handle in self._handles.values())

    async def build_team_briefing(self, name: AgentName) -> str:
        """Build the summary for a lead or member whose conversation no longer contains it."""
        try:
            team = await self._services.store.rosters.read_team_roster(self.name)
            tasks = await self._board.list_unfinished(), len(await self._board.get_live_task_mapping())
        except (TeamStoreError, StateFileError) as error:
            return f"How your team {self.name} stands cannot be read now: {error}"
        return build_team_briefing(team or self._team, name, self.list_member_statuses(), *tasks)

    def on_item_entered(self, item: InboxItem) -> None:
        """Settle mail that is now in an agent's transcript."""
        owner = (
            LEAD_NAME
            if item.to == self._services.lead_id
            else AgentName(item.to.removesuffix(f"@{self.name}"))
        )
        self._mail_pump.note_mail_settled(item.id, owner)
        self.notify_changed()

    def send_permission_to_remote_members(self, update: PermissionSuggestion) -> None:
        """Send a session-wide permission to the members in other processes."""
        for handle in self._handles.values():
            if isinstance(handle.member, RemoteMember):
                handle.member.send_permission_update(update)

    async def close(self, *, resumable: bool) -> tuple[AgentStatusSnapshot, ...]:
        """End all members and chores; return the members that were working. `resumable` keeps them."""
        handles = tuple(self._handles.values())
        working = tuple(
            build_member_snapshot(self._services, post) for post in handles if post.member.state == "running"
        )
        async with asyncio.TaskGroup() as task_group:
            for handle in handles:
                task_group.create_task(
                    self.end_member(handle, "the session ended", quietly=True, resumable=resumable)
                )
            for handle in tuple(self._leaving):
                task_group.create_task(self._wait_until_end_announced(handle))
        self._lead_inbox.cancel_open_requests()
        for task in self._background_tasks:
            task.cancel()
        await self._mail_pump.mark_settled_mail_read()
        await self._activity_writer.flush()
        return working

    # Idle state

    @property
    def is_working(self) -> bool:
        # Active members first: then the rest of a large team need not be checked.
        if self._leaving or self._mail_verifier.open_questions or self._activity_writer.active_members:
            return True
        return any(
            handle.member.is_busy or self._services.leads_working_team(handle.member.id)
            for handle in self._handles.values()
        )

    async def wait_until_idle(self) -> None:
        """Wait until no member works or has work left, then release what was held for the lead."""
        while True:
            version, changed = self._version, self._changed_event
            if await self._is_team_quiet():
                self._lead_inbox.release_held_idle_notices()
                await self._activity_writer.flush()
                return
            if version == self._version:
                await changed.wait()

    def notify_changed(self) -> None:
        self._version += 1
        changed, self._changed_event = self._changed_event, asyncio.Event()
        changed.set()
        self._services.on_changed()

    # For the mail

    def is_member_waiting_for_answer(self, name: AgentName, request: str, mail: str = "") -> bool:
        handle = self._handles.get(name)
        return handle is None or handle.member.is_waiting_for_answer(request, mail)

    def on_foreign_member_idle(self, name: AgentName) -> None:
        handle = self._handles.get(name)
        if handle is not None and is_foreign_program_member(handle.member):
            handle.member.set_foreign_idle(idle=True)

    def mark_foreign_member_working(self, name: AgentName) -> None:
        """Mark a foreign program as working until its next idle notice: it reports no start."""
        handle = self._handles.get(name)
        if handle is not None and is_foreign_program_member(handle.member):
            handle.member.set_foreign_idle(idle=False)

    def is_non_foreign_member(self, name: AgentName) -> bool:
        handle = self._handles.get(name)
        return handle is not None and not is_foreign_program_member(handle.member)

    def get_member_agent_id(self, name: AgentName) -> AgentId:
        return AgentId(format_agent_id(name, self.name))

    def mark_lead_mail_settled(self, mail: str) -> None:
        self._mail_pump.note_mail_settled(mail, LEAD_NAME)

    def set_roster_activity(self, name: AgentName, *, active: bool) -> None:
        self._activity_writer.set_member_active(name, active=active)

    # For admission

    def create_question_broker(self, name: AgentName) -> MailQuestionBroker:
        return MailQuestionBroker(
            name,
            self.name,
            self.mail_sender,
            self._services.question_broker,
            self._lead_inbox.cancel_withdrawn_request,
        )

    def create_local_member(self, prepared: PreparedAgent, slot: AgentSlot) -> LocalMember:
        question_broker = prepared.agent.environment.question_broker
        assert isinstance(question_broker, MailQuestionBroker)
        prepared.agent.build_briefing = partial(
            self.build_team_briefing, AgentName(prepared.agent.identity.name)
        )
        return LocalMember(
            self._services,
            prepared,
            slot,
            question_broker=question_broker,
            mail_sender=self.mail_sender,
            board=self._board,
            observer=self,
        )

    def attach_remote_member(self, member: RemoteMember, slot: AgentSlot) -> RemoteMember:
        """Connect a remote member's callbacks to this team."""
        name = member.name
        member.set_concurrency_slot(slot)
        member.on_changed = self.notify_changed
        member.on_request_withdrawn = self._lead_inbox.cancel_withdrawn_request
        member.on_shutdown_agreed = lambda request: self.on_shutdown_agreed(name, request)
        member.on_connection_lost = lambda: self._keep_tasks_of_lost_process_claimed(name)
        return member

    async def _keep_tasks_of_lost_process_claimed(self, name: AgentName) -> None:
        """Keep the tasks of a lost process claimed until the member restarts or ends."""
        # Retried before the restart.
        with suppress(ShoalError):
            await self._board.reclaim_owner_tasks(name)

    def _start_member(self, admitted: AdmittedMember) -> None:
        member, started_at = admitted.member, self._services.clock.monotonic()
        handle = self._handles[member.name] = MemberHandle(
            member, admitted.entry, admitted.slot, started_at=started_at
        )
        self._services.emit_or_note(member.agent_started_event)
        if isinstance(member, LocalMember):
            pump_coroutine = self._mail_verifier.pump_and_verify_inbox(
                member.name, member.id, member.deliver_mail, admitted.delivered
            )
            handle.mail_task = self._tasks.create_task(pump_coroutine)
        handle.run_task = self._tasks.create_task(self._run_member(handle))
        self.notify_changed()

    async def _run_member(self, handle: MemberHandle) -> None:
        outcome = await handle.member.run()
        try:
            self._lead_inbox.cancel_requests_of_member(handle.member.name)
            while await self._restart_dead_member(handle):
                outcome = await handle.member.run()
                self._lead_inbox.cancel_requests_of_member(handle.member.name)
        except asyncio.CancelledError:
            # It is ended while its next process starts.
            if not handle.member.stop_reason:
                raise
            uncancel_current_task()
            outcome = AgentRunOutcome(status="killed", text="", detail=handle.member.stop_reason)
        handle.run_task = None
        await self._remove_member(handle, outcome)

    async def _restart_dead_member(self, handle: MemberHandle) -> bool:
        """Restart a member whose process died from its transcript; return True if it was restarted."""
        dead_member = handle.member
        if (
            not isinstance(dead_member, RemoteMember)
            or not dead_member.death_cause
            or dead_member.is_foreign
            or dead_member.stop_reason
        ):
            return False
        if handle.approved_request is not None or handle.restarts >= self._services.max_restarts:
            return False
        handle.restarts += 1
        try:
            await self._board.reclaim_owner_tasks(dead_member.name)
            team = await self._services.store.rosters.read_team_roster(self.name)
            entry = None if team is None else team.find_member(dead_member.name)
            if entry is None:
                return False
            backend = await self._services.launcher.choose_backend(entry.agent_type)
            new_member = self.attach_remote_member(
                await self._registrar.restore_remote_member(entry, backend), handle.slot
            )
        except ShoalError as error:
            self._services.note(f"{dead_member.name} could not be started again: {error}")
            return False
        new_member.shutdown_request, new_member.monitor, handle.member = (
            dead_member.shutdown_request,
            dead_member.monitor,
            new_member,
        )
        self._services.emit_or_note(new_member.agent_started_event)
        self._services.note(
            f"The process of {dead_member.name} died ({dead_member.death_cause}); it continues in a new one."
        )
        self.notify_changed()
        return True

    async def _release_idle_notices_when_quiet(self) -> None:
        """Release what was held for the lead whenever the team becomes quiet."""
        while True:
            changed = self._changed_event
            if self._lead_inbox.has_held_idle_notices and await self._is_team_quiet():
                self._lead_inbox.release_held_idle_notices()
            await changed.wait()

    async def _is_team_quiet(self) -> bool:
        """Return True if the team is quiet; repeats while the team changes during the check."""
        while True:
            version = self._version
            handles = tuple(self._handles.values())
            if self.is_working:
                return False
            if await self._mail_pump.has_undelivered_mail():
                return False
            for handle in handles:
                if not await handle.member.is_confirmed_idle():
                    return False
            if any(post.member.can_claim_task for post in handles) and await self._has_claimable_task():
                return False
            if version == self._version:
                return True

    async def _has_claimable_task(self) -> bool:
        try:
            return has_claimable_task({task.id: task for task in await self._board.list_unfinished()})
        except ShoalError as error:
            # Nobody can claim a task from it either.
            self._services.note(f"The board of {self.name} cannot be read: {error}")
            return False

    def build_unknown_member_error(self, name: str) -> AgentRequestRefused:
        return AgentRequestRefused(format_unknown_member_error(name, self.name, (LEAD_NAME, *self._handles)))
