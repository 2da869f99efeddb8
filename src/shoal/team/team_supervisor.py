"""Supervises the team that a session leads: its members, its mail, and whether it is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from contextlib import suppress

from msgspec.structs import replace

from shoal.core.agents.subagents import AgentStatusSnapshot, SpawnRequest
from shoal.core.conversation.inbox_items import InboxItem, split_item_ids
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import AgentRequestRefused, InvalidName, ShoalError
from shoal.core.names import LEAD_NAME, AgentName, TaskId, map_to_inbox_name
from shoal.core.permissions.permission_changes import PermissionSuggestion
from shoal.core.task_groups import open_task_group, uncancel_current_task
from shoal.core.teams.mail_bodies import TaskAssignmentMail
from shoal.core.teams.mail_signatures import MailSigner
from shoal.core.teams.roster import EXTERNAL_MEMBER_TYPE, RosterEntry, TeamRoster
from shoal.core.teams.tasks import Task, find_open_blockers, has_claimable_task, sort_tasks_by_number
from shoal.core.teams.team_operations import TeammateSpawnResult, TeammateStatusSnapshot
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.mail.lead_inbox import LeadInbox
from shoal.team.mail.mail_authentication import ForeignMemberNameLookup, MailSenderAuthenticator
from shoal.team.mail.mail_pump import MailPump, MailVerifier
from shoal.team.mail.mail_sender import TeamMailPoster
from shoal.team.members.member_admission import (
    AdmittedMember,
    MemberAdmission,
    TeamMemberObserver,
    find_unanswered_shutdown_request,
)
from shoal.team.members.member_recovery import MemberRecovery
from shoal.team.members.member_results import LostMember, build_member_snapshot
from shoal.team.members.member_shutdown import MemberShutdown
from shoal.team.members.member_table import MemberHandle, MemberTable
from shoal.team.roster_activity import RosterActivityWriter
from shoal.team.team_briefing import TeamBriefer, teammate_statuses_from_roster
from shoal.team.team_prompts import format_unknown_member_error
from shoal.team.team_services import TeamServices
from shoal.wire.mail_body_codec import parse_mail_body

_ASKED_TOGETHER = 200
"""Number of members that are asked at the same time whether they are idle."""


class TeamSupervisor:
    """Supervisor of one team; `tasks` outlives it. `on_changed` is called when a member's state changes."""

    def __init__(
        self,
        services: TeamServices,
        team: TeamRoster,
        tasks: asyncio.TaskGroup,
        on_changed: Callable[[], None] | None = None,
    ) -> None:
        self.name = team.name
        self._services = services
        self._tasks = tasks
        mailboxes, key = (
            services.runtime.team_store.open_mailboxes(team.name),
            services.runtime.team_store.read_signing_key(team.name),
        )
        self._colors = {member.name: member.color for member in team.members}
        self._admissions = 0
        """Running admissions: meanwhile, new names in the roster may be those of own members."""
        self._opened_inboxes: set[AgentName] = set()
        self._last_busy_member: AgentName | None = None
        """Member found busy by the last check; the next check asks it first."""
        self.mail_sender = TeamMailPoster(
            mailboxes,
            self._colors,
            clock=services.runtime.clock,
            ids=services.ids,
            seal=MailSigner(team.name, key),
        )
        self._authenticator = MailSenderAuthenticator(
            team.name, key, trusted=ForeignMemberNameLookup(mailboxes), policy=services.policy.trust_unsigned
        )
        self._board = board = services.runtime.team_store.open_board(team.name)
        self.members = members = MemberTable(team.name, on_changed)
        members.own_names.update(member.name for member in team.members)
        self._mail_pump = MailPump(mailboxes, services.runtime.clock, services.note, members.notify_changed)
        self._mail_verifier = MailVerifier(
            services, self._mail_pump, self._authenticator, members.notify_changed
        )
        self._activity_writer = RosterActivityWriter(
            services.runtime.team_store.rosters, team.name, services.runtime.clock, services.note
        )
        self._lead_inbox = LeadInbox(services, self.mail_sender, self._mail_pump, members, tasks)
        self.shutdown = MemberShutdown(
            services,
            members,
            board,
            self.mail_sender,
            lead_inbox=self._lead_inbox,
            activity_writer=self._activity_writer,
            tasks=tasks,
        )
        self.briefer = TeamBriefer(
            team,
            services.runtime.team_store.rosters,
            board,
            lambda roster: (*members.list_statuses(), *self._list_external_statuses(roster)),
        )
        self._admission = MemberAdmission(
            services,
            team,
            self.mail_sender,
            board=board,
            briefer=self.briefer,
            observer=TeamMemberObserver(
                members,
                board,
                lead_inbox=self._lead_inbox,
                shutdown=self.shutdown,
                activity_writer=self._activity_writer,
            ),
        )
        self._recovery = MemberRecovery(
            services,
            members,
            board,
            self.mail_sender,
            admission=self._admission,
            activity_writer=self._activity_writer,
            start_mail=self._start_member_mail,
        )
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
        self._admissions += 1
        try:
            admitted = await self._admission.admit_members(requests, call)
            self.members.own_names.update(member.entry.name for member in admitted)
        finally:
            self._admissions -= 1
        for member in admitted:
            self._opened_inboxes.discard(member.entry.name)
            self._colors[member.entry.name] = member.entry.color
            self._start_member(member)
        return tuple(each.spawned_teammate for each in admitted)

    async def resume_members(self, team: TeamRoster, on_lost: Callable[[LostMember], None]) -> None:
        """Resume the members of an earlier process; a member that was cut off at work continues.

        Members that cannot be resumed now are down and are retried. `on_lost` is called for members without
        a transcript before they leave the team, and for members that the budget does not allow.
        """
        # Before anybody looks for a free task: claimed tasks stay with their owner.
        other_names = await self._services.runtime.team_store.rosters.list_members_of_other_programs(
            self.name
        )
        own_entries = [
            entry
            for entry in team.members
            if entry.agent_type != EXTERNAL_MEMBER_TYPE and entry.name not in other_names
        ]
        self.members.own_names.difference_update(other_names)
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
                await self._services.runtime.team_store.rosters.remove_member(self.name, AgentName(lost.name))
                self.members.own_names.discard(AgentName(lost.name))
        await self._notify_owners_of_ready_tasks([entry.name for entry in own_entries])

    async def _notify_owners_of_ready_tasks(self, members: Sequence[AgentName]) -> None:
        """Notify members of tasks that they can start: a process may die before it posts such a message."""
        unfinished = {task.id: task for task in await self._board.list_unfinished()}
        for task in sort_tasks_by_number(unfinished.values()):
            is_ready = task.status == "pending" and not find_open_blockers(task, unfinished)
            if task.owner is None or task.owner not in members or task.owner == LEAD_NAME or not is_ready:
                continue
            if not await self._was_told_to_start(task.owner, task):
                body = TaskAssignmentMail(
                    task_id=task.id,
                    subject=task.subject,
                    description=task.description,
                    assigned_by=LEAD_NAME,
                    timestamp=self.mail_sender.current_timestamp,
                )
                await self.mail_sender.post_mail_body(LEAD_NAME, task.owner, body)

    async def _was_told_to_start(self, owner: AgentName, task: Task) -> bool:
        mailboxes = self._services.runtime.team_store.open_mailboxes(self.name)
        await mailboxes.open_inbox(owner)
        # The first prompt of a member lists its tasks, but says to wait for those with blockers.
        in_prompt = f"#{task.id} {task.subject}"
        for mail in await mailboxes.read_history(owner):
            body = parse_mail_body(mail.text)
            if isinstance(body, TaskAssignmentMail) and body.task_id == task.id:
                return True
            if body is None and not task.blocked_by and in_prompt in mail.text:
                return True
        return False

    async def _resume_member(
        self, entry: RosterEntry, claimed_tasks: tuple[TaskId, ...], lead_mail_ids: Container[str]
    ) -> LostMember | None:
        admitted = await self._admission.resume_member(entry, claimed_tasks, lead_mail_ids)
        if isinstance(admitted, LostMember):
            return admitted
        self._start_member(admitted)
        try:
            if (
                request := await find_unanswered_shutdown_request(self._services, self._authenticator, entry)
            ) is not None:
                self.shutdown.start_grace(entry.name, request)
        except ShoalError as error:
            self._services.note(f"Cannot find out whether {entry.name} was asked to shut down: {error}")
        return None

    async def list_external_member_names(self) -> tuple[AgentName, ...]:
        """Return the names of external members, which joined on their own and are only in the roster.

        Members that another program adds to the roster while this session leads the team are among them.
        """
        await self._admission.remove_refused_members()
        team = await self._services.runtime.team_store.rosters.read_team_roster(self.name)
        external = () if team is None else self._select_external_members(team)
        for entry in external:
            if entry.agent_type != EXTERNAL_MEMBER_TYPE:
                await self._open_inbox_of_added_member(entry.name)
        return tuple(entry.name for entry in external)

    async def list_external_members(self) -> tuple[TeammateStatusSnapshot, ...]:
        team = await self._services.runtime.team_store.rosters.read_team_roster(self.name)
        return () if team is None else self._list_external_statuses(team)

    def _list_external_statuses(self, team: TeamRoster) -> tuple[TeammateStatusSnapshot, ...]:
        return teammate_statuses_from_roster(replace(team, members=self._select_external_members(team)))

    def _select_external_members(self, team: TeamRoster) -> tuple[RosterEntry, ...]:
        return tuple(
            entry
            for entry in team.members
            if entry.agent_type == EXTERNAL_MEMBER_TYPE
            or not (self._admissions or entry.name in self.members.own_names)
        )

    async def _open_inbox_of_added_member(self, name: AgentName) -> None:
        """Open the inbox of a member that another program runs, with all its mail in one file."""
        if name in self._opened_inboxes:
            return
        with suppress(InvalidName):
            mailboxes = self._services.runtime.team_store.open_mailboxes(self.name)
            await mailboxes.open_inbox(map_to_inbox_name(name), foreign=True)
            self._opened_inboxes.add(name)

    async def resolve_external_member_name(self, name: str) -> AgentName | None:
        return next(
            (
                each
                for each in await self.list_external_member_names()
                if name in (each, f"{each}@{self.name}", map_to_inbox_name(each))
            ),
            None,
        )

    def get_member_color(self, name: AgentName) -> str | None:
        return self._colors.get(name)

    def on_item_entered(self, item: InboxItem) -> None:
        """Settle mail that is now in an agent's transcript."""
        owner = (
            LEAD_NAME
            if item.to == self._services.lead_id
            else AgentName(item.to.removesuffix(f"@{self.name}"))
        )
        for mail_id in split_item_ids(item.id):
            self._mail_pump.note_mail_settled(mail_id, owner)
        self.members.notify_changed()

    def send_permission_to_remote_members(self, update: PermissionSuggestion) -> None:
        """Send a session-wide permission to the members in other processes."""
        for handle in self.members.handles.values():
            handle.member.send_permission_update(update)

    async def close(self, *, resumable: bool) -> tuple[AgentStatusSnapshot, ...]:
        """End all members and background tasks; return the members that were working. `resumable` keeps
        them."""
        await self._admission.remove_refused_members()
        handles = tuple(self.members.handles.values())
        working = tuple(
            build_member_snapshot(self._services, post) for post in handles if post.member.state == "running"
        )
        async with asyncio.TaskGroup() as task_group:
            for handle in handles:
                task_group.create_task(
                    self.shutdown.end_member(
                        handle, format_end_reason("session_ended"), quietly=True, resumable=resumable
                    )
                )
            for handle in tuple(self.members.leaving):
                task_group.create_task(self.shutdown.wait_until_end_announced(handle))
        self._lead_inbox.cancel_open_requests()
        for task in self._background_tasks:
            task.cancel()
        await self._mail_pump.mark_settled_mail_read()
        await self._activity_writer.flush()
        return working

    # Idle state

    @property
    def _has_active_member(self) -> bool:
        """True if the team is seen to work without a look at each member."""
        return bool(
            self.members.leaving or self._mail_verifier.open_questions or self._activity_writer.active_members
        )

    @property
    def is_working(self) -> bool:
        # Active members first: then the rest of a large team need not be checked.
        if self._has_active_member:
            return True
        handles = self.members.handles
        last_busy = None if self._last_busy_member is None else handles.get(self._last_busy_member)
        if last_busy is not None and self._is_member_busy(last_busy):
            return True
        for name, handle in handles.items():
            if self._is_member_busy(handle):
                self._last_busy_member = name
                return True
        return False

    def _is_member_busy(self, handle: MemberHandle) -> bool:
        led_teams = self._services.led_teams
        return handle.member.is_busy or (
            led_teams is not None and led_teams.is_leading_working_team(handle.member.id)
        )

    async def wait_until_idle(self) -> None:
        """Wait until no member works or has work left, then release what was held for the lead."""
        while True:
            version, changed = self.members.version, self.members.changed_event
            if await self._is_team_quiet():
                self._lead_inbox.release_held_idle_notices()
                await self._activity_writer.flush()
                return
            if version == self.members.version:
                await changed.wait()

    def _start_member(self, admitted: AdmittedMember) -> None:
        member, started_at = admitted.member, self._services.runtime.clock.monotonic()
        handle = self.members.handles[member.name] = MemberHandle(
            member, admitted.entry, admitted.slot, started_at=started_at
        )
        if member.state != "down":
            self._services.emit_or_note(member.agent_started_event)
        self._start_member_mail(handle, admitted)
        handle.run_task = self._tasks.create_task(self._run_member(handle))
        self.members.notify_changed()

    def _start_member_mail(self, handle: MemberHandle, admitted: AdmittedMember) -> None:
        """Start delivering mail to a member in this process; a remote one takes its mail itself."""
        member = admitted.member
        if member.agent is not None:
            pump_coroutine = self._mail_verifier.pump_and_verify_inbox(
                member.name, member.id, member.deliver_mail, admitted.delivered
            )
            handle.mail_task = self._tasks.create_task(pump_coroutine)

    def request_restart(self, name: AgentName) -> bool:
        """Restart a member that is down now instead of after its delay; return False if it is not down."""
        return self._recovery.request_restart(name)

    async def _run_member(self, handle: MemberHandle) -> None:
        outcome = await handle.member.run()
        try:
            self._lead_inbox.cancel_requests_of_member(handle.member.name)
            while await self._recovery.restart_failed_member(handle, outcome):
                outcome = await handle.member.run()
                self._lead_inbox.cancel_requests_of_member(handle.member.name)
        except asyncio.CancelledError:
            # It is ended while its next process starts.
            if not handle.member.stop_reason:
                raise
            uncancel_current_task()
            outcome = AgentRunOutcome(status="killed", text="", detail=handle.member.stop_reason)
        handle.run_task = None
        await self.shutdown.remove_member(handle, outcome)

    async def _release_idle_notices_when_quiet(self) -> None:
        """Release what was held for the lead whenever the team becomes quiet."""
        while True:
            changed = self.members.changed_event
            if self._lead_inbox.has_held_idle_notices and await self._is_team_quiet():
                self._lead_inbox.release_held_idle_notices()
            await changed.wait()

    async def _is_team_quiet(self) -> bool:
        """Return True if the team is quiet; repeats while the team changes during the check."""
        while True:
            version = self.members.version
            # A claimable task before the look at each member of a large team.
            if self._has_active_member or self._will_claim_task() or self.is_working:
                return False
            handles = tuple(self.members.handles.values())
            if await self._mail_pump.has_undelivered_mail():
                return False
            # Before the members are asked: one that claims the last task in between would count as idle.
            if any(post.member.can_claim_task for post in handles) and await self._has_claimable_task():
                return False
            # Members in this process have no more to say, and a task for each would delay the answer.
            elsewhere = [handle.member for handle in handles if handle.member.agent is None]
            for start in range(0, len(elsewhere), _ASKED_TOGETHER):
                async with open_task_group() as tasks:
                    asked = [
                        tasks.create_task(member.is_confirmed_idle())
                        for member in elsewhere[start : start + _ASKED_TOGETHER]
                    ]
                if not all(each.result() for each in asked):
                    return False
            if version == self.members.version:
                return True

    def _will_claim_task(self) -> bool:
        """Return True if a task is known to be claimable and some member claims tasks."""
        if not any(handle.member.can_claim_task for handle in self.members.handles.values()):
            return False
        try:
            return self._board.is_task_claimable_now()
        except ShoalError:
            return False  # `_has_claimable_task` notes the error

    async def _has_claimable_task(self) -> bool:
        try:
            return has_claimable_task({task.id: task for task in await self._board.list_unfinished()})
        except ShoalError as error:
            # Nobody can claim a task from it either.
            self._services.note(f"The board of {self.name} cannot be read: {error}")
            return False

    async def list_unfinished_tasks(self) -> tuple[Task, ...]:
        """Return the tasks that are not completed; none if the board cannot be read."""
        try:
            return tuple(await self._board.list_unfinished())
        except ShoalError as error:
            self._services.note(f"The board of {self.name} cannot be read: {error}")
            return ()

    async def build_unknown_member_error(self, name: str) -> AgentRequestRefused:
        names = (LEAD_NAME, *self.members.handles, *await self.list_external_member_names())
        return AgentRequestRefused(format_unknown_member_error(name, self.name, names))
