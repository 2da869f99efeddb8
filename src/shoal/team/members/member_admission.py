"""Admits members to a team: newly spawned, or resumed from an earlier process."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.agents.subagents import ResolvedAgentSettings, RetainedWorktreeWork, SpawnRequest
from shoal.core.budgets.limits import AgentSlot, BudgetRefusal
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import (
    AgentProcessNotStarted,
    AgentRequestRefused,
    AgentTranscriptMissing,
    InvalidName,
    ShoalError,
)
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, AgentName, TaskId, parse_teammate_name
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.teams.mail_bodies import ShutdownApprovedMail, ShutdownRejectedMail, ShutdownRequestMail
from shoal.core.teams.roster import BackendType, NewMember, RosterEntry, TeamRoster, format_agent_id
from shoal.core.teams.team_operations import TeammateSpawnResult
from shoal.core.teams.team_storage import TaskBoard
from shoal.runs.prepared_agent import AgentPreparationRequest, PreparedAgent, TeammateMembership
from shoal.runs.progress_monitor import ProgressMonitor
from shoal.runs.start_hooks import add_subagent_start_hook_context
from shoal.team.channel.mail_question_broker import MailQuestionBroker
from shoal.team.mail.lead_inbox import LeadInbox
from shoal.team.mail.mail_authentication import MailSenderAuthenticator
from shoal.team.mail.mail_sender import TeamMailPoster
from shoal.team.members.down_member import DownMember
from shoal.team.members.local_member import LocalMember, MemberPreparation
from shoal.team.members.member_protocol import Member
from shoal.team.members.member_results import LostMember
from shoal.team.members.member_shutdown import MemberShutdown
from shoal.team.members.member_table import MemberTable
from shoal.team.members.remote_member import RemoteMember
from shoal.team.members.stall_detector import MemberStallDetector
from shoal.team.roster_activity import RosterActivityWriter
from shoal.team.team_briefing import TeamBriefer
from shoal.team.team_prompts import build_team_prompt_section, format_team_notice
from shoal.team.team_services import TeamServices

MAX_STARTS = 32
"""Maximum number of members that start at the same time in other processes: members that share a process slow
each other down, and each has a deadline."""
_PROMPT_PREFIX, _SHUTDOWN_PREFIX = "prompt-", "end-"
_MODE_BY_NAME: dict[str, PermissionMode] = {
    "plan": "plan",
    "delegate": "acceptEdits",
    "acceptEdits": "acceptEdits",
    "bypassPermissions": "bypassPermissions",
    "default": "default",
    "dontAsk": "dontAsk",
}
"""Permission mode for each `mode` value of a spawn call."""


def parse_teammate_permission_mode(name: str | None) -> PermissionMode | None:
    if name is None:
        return None
    if name not in _MODE_BY_NAME:
        modes = ", ".join(_MODE_BY_NAME)
        raise AgentRequestRefused(format_team_notice("unknown_mode", mode=repr(name), modes=modes))
    return _MODE_BY_NAME[name]


def resolve_first_permission_mode(entry: RosterEntry) -> PermissionMode | None:
    return "plan" if entry.plan_mode_required else None


def parse_requested_member_name(text: str) -> AgentName:
    try:
        return parse_teammate_name(text)
    except InvalidName as error:
        raise AgentRequestRefused(str(error)) from error


def _require_cluster_for_resources(request: SpawnRequest, backend: BackendType) -> None:
    if request.resources is not None and backend != "ray":
        raise AgentRequestRefused(format_team_notice("resources_without_cluster"))


class AdmittedMember(Struct, frozen=True, kw_only=True):
    """A member that is in the roster and has not started."""

    member: Member
    entry: RosterEntry
    slot: AgentSlot
    prompt: str = ""
    """First prompt."""
    delivered: Container[str] = ()
    """Ids of the items that its transcript already contains."""

    @property
    def spawned_teammate(self) -> TeammateSpawnResult:
        member = self.member
        return TeammateSpawnResult(
            teammate=member.id,
            name=self.entry.name,
            team=self.entry.team,
            color=self.entry.color,
            resolved=member.resolved,
        )


class TeamMemberObserver:
    """Observer of all members of a team, wherever they run."""

    def __init__(
        self,
        members: MemberTable,
        board: TaskBoard,
        *,
        lead_inbox: LeadInbox,
        shutdown: MemberShutdown,
        activity_writer: RosterActivityWriter,
    ) -> None:
        self._members = members
        self._board = board
        self._lead_inbox = lead_inbox
        self._shutdown = shutdown
        self._activity_writer = activity_writer

    def notify_changed(self) -> None:
        self._members.notify_changed()

    def set_roster_activity(self, name: AgentName, *, active: bool) -> None:
        self._activity_writer.set_member_active(name, active=active)

    def on_shutdown_requested(self, name: AgentName, request: ShutdownRequestMail) -> None:
        self._shutdown.start_grace(name, request)

    def on_shutdown_agreed(self, name: AgentName, request: str) -> None:
        self._members.accept_shutdown_agreement(name, request)

    def on_request_withdrawn(self, request: str) -> None:
        self._lead_inbox.cancel_withdrawn_request(request)

    async def on_connection_lost(self, name: AgentName) -> None:
        """Keep the tasks of a lost process claimed until the member restarts or ends."""
        # Retried before the restart.
        with suppress(ShoalError):
            await self._board.reclaim_owner_tasks(name)


class MemberAdmission:
    """Admits members of one team: to its roster, with an inbox and their prompt as first message."""

    def __init__(
        self,
        services: TeamServices,
        team: TeamRoster,
        mail_sender: TeamMailPoster,
        *,
        board: TaskBoard,
        briefer: TeamBriefer,
        observer: TeamMemberObserver,
    ) -> None:
        self._services = services
        self._team = team
        self._mail_sender = mail_sender
        self._board = board
        self._briefer = briefer
        self._observer = observer
        self._starts = asyncio.Semaphore(MAX_STARTS)
        self._refused_names: set[AgentName] = set()
        """Members that did not start and could not be removed from the roster, for example on a full disk."""

    async def admit_members(self, requests: Sequence[SpawnRequest], call: str) -> list[AdmittedMember]:
        """Admit all and post their prompts once all have joined. If one fails, all are undone."""
        admitted: list[AdmittedMember] = []
        await self.remove_refused_members()
        try:
            for request in requests:
                admitted.append(await self._admit_member(request, call))  # noqa: PERF401 - undone one by one
            for member, request in zip(admitted, requests, strict=True):
                await self._post_first_prompt(member.entry, member.prompt, fyi=request.waits_for_work)
        except BaseException:
            for member in admitted:
                await self._undo_admission(member)
            raise
        return admitted

    async def _admit_member(self, request: SpawnRequest, call: str) -> AdmittedMember:
        kind = request.kind or self._services.policy.default_kind
        slot = self._reserve_agent_slot(kind)
        try:
            backend = await self._services.launcher.choose_backend(kind)
            _require_cluster_for_resources(request, backend)
            if backend == "in-process":
                return await self._admit_local_member(request, slot, call)
            return await self._admit_remote_member(request, backend, slot, call)
        except BaseException:
            self._services.runtime.budget.close_agent_slot(slot, was_started=False)
            raise

    async def _undo_admission(self, admitted: AdmittedMember) -> None:
        member, entry = admitted.member, admitted.entry
        self._services.runtime.budget.close_agent_slot(admitted.slot, was_started=False)
        try:
            await member.discard()
        except ShoalError as error:
            self._services.note(f"{entry.name} could not be cleaned up completely: {error}")
        await self._remove_refused_member(entry.name)

    async def remove_refused_members(self) -> None:
        """Remove members that did not start and are still in the roster."""
        # Taken from the set first: a second removal could meet a new member of the same name.
        names, self._refused_names = self._refused_names, set()
        for name in names:
            await self._remove_refused_member(name)

    async def _remove_refused_member(self, name: AgentName) -> None:
        """Remove a member that did not start from the roster, or remember that it is still in it."""
        try:
            await self._services.runtime.team_store.rosters.remove_member(self._team.name, name)
        except (ShoalError, OSError) as error:
            self._refused_names.add(name)
            self._services.note(f"{name} did not start and is still in the roster: {error}")

    async def resume_member(
        self, entry: RosterEntry, claimed_tasks: tuple[TaskId, ...], lead_mail_ids: Container[str]
    ) -> AdmittedMember | LostMember:
        """Resume a member of an earlier process with its claimed tasks.

        `lead_mail_ids` are the ids of all mail of the lead.
        """
        slot: AgentSlot | None = None
        try:
            slot = self._reserve_agent_slot(entry.agent_type, is_resumed=True)
            return await self._restore_member(entry, claimed_tasks, lead_mail_ids, slot)
        except AgentTranscriptMissing as error:
            reason, leaves_roster = format_end_reason("left_team", error=error), True
        except (ShoalError, OSError) as error:
            # The cause may pass, so the member stays in the team.
            if slot is not None:
                self._services.note(f"The teammate {entry.name} could not be resumed and is down: {error}")
                is_transient = isinstance(error, AgentProcessNotStarted)
                down_member = DownMember(entry, str(error), is_start_repeatable=is_transient)
                return AdmittedMember(member=down_member, entry=entry, slot=slot)
            reason, leaves_roster = format_end_reason("not_resumed_yet", error=error), False
        if slot is not None:
            self._services.runtime.budget.close_agent_slot(slot)
        self._services.note(f"The teammate {entry.name} is not available: {reason}")
        agent = AgentId(entry.agent_id)
        return LostMember(
            agent=agent, name=entry.name, kind=entry.agent_type, why=reason, leaves_roster=leaves_roster
        )

    async def _restore_member(
        self,
        entry: RosterEntry,
        claimed_tasks: tuple[TaskId, ...],
        lead_mail_ids: Container[str],
        slot: AgentSlot,
    ) -> AdmittedMember:
        fallback_reason = ""
        try:
            backend = await self._services.launcher.choose_backend(entry.agent_type)
        except AgentRequestRefused as refusal:
            if self._services.launcher.is_foreign_agent_type(entry.agent_type):
                raise
            backend, fallback_reason = "in-process", str(refusal)
        if backend != "in-process":
            # If only this start fails, the backend is there: the member is down until a later one succeeds.
            remote_member = await self.restore_remote_member(entry, backend, slot)
            return AdmittedMember(member=remote_member, entry=entry, slot=slot)
        try:
            admitted = await self.restore_local_member(entry, claimed_tasks, lead_mail_ids, slot)
        except AgentTranscriptMissing:
            raise
        except ShoalError as error:
            # For example, its directory is on another machine.
            raise AgentRequestRefused(fallback_reason or str(error)) from error
        if fallback_reason:
            # A missing backend loses no member: its transcript is enough to resume it here.
            self._services.note(f"{entry.name} continues in the lead's process: {fallback_reason}")
        return admitted

    async def restore_local_member(
        self,
        entry: RosterEntry,
        claimed_tasks: tuple[TaskId, ...],
        lead_mail_ids: Container[str],
        slot: AgentSlot,
    ) -> AdmittedMember:
        """Restore a member in this process, from its transcript."""
        preparation, prepared = await self._restore_local_agent(entry)
        member = self._create_local_member(preparation, prepared, slot)
        await member.continue_after_restart(claimed_tasks, lead_mail_ids)
        if member.state == "idle" and entry.is_active:
            self._observer.set_roster_activity(member.name, active=False)
        return AdmittedMember(member=member, entry=entry, slot=slot, delivered=prepared.delivered)

    async def _admit_local_member(self, request: SpawnRequest, slot: AgentSlot, call: str) -> AdmittedMember:
        """Admit an in-process member; its prompt is not posted yet. If this raises, nothing is left."""
        entry = await self._add_to_roster(request, "in-process")
        prepared: PreparedAgent | None = None
        try:
            request = replace(request, name=entry.name, kind=entry.agent_type)
            preparation = await self._prepare_member(
                entry, parse_teammate_permission_mode(request.mode), call
            )
            new_agent = preparation.request
            prepared = attach_progress_monitor(
                await self._services.agent_factory.prepare_new_agent(request, new_agent), new_agent.monitor
            )
            prepared = await add_subagent_start_hook_context(prepared)
            entry = await self._update_roster_entry(entry, prepared.resolved)
        except BaseException:
            await self._remove_refused_member(entry.name)
            if prepared is not None:
                await prepared.clean_up()
            raise
        return AdmittedMember(
            member=self._create_local_member(preparation, prepared, slot),
            entry=entry,
            slot=slot,
            prompt=request.prompt if prepared.prompt is None else prepared.prompt.text,
            delivered=prepared.delivered,
        )

    async def _admit_remote_member(
        self, request: SpawnRequest, backend: BackendType, slot: AgentSlot, call: str
    ) -> AdmittedMember:
        """Admit a member in its own process, like `_admit_local_member`."""
        # Also for the roster: else all members of a large team join it before the first one starts.
        async with self._starts:
            return await self._admit_and_launch(request, backend, slot, call)

    async def _admit_and_launch(
        self, request: SpawnRequest, backend: BackendType, slot: AgentSlot, call: str
    ) -> AdmittedMember:
        entry = await self._add_to_roster(request, backend)
        member: RemoteMember | None = None
        try:
            request = replace(request, name=entry.name, kind=entry.agent_type)
            member = await self._launch_remote_member(entry, request, slot, call)
            entry = await self._update_roster_entry(entry, member.resolved, member.pane)
        except BaseException:
            await self._remove_refused_member(entry.name)
            if member is not None:
                await member.discard()
            raise
        return AdmittedMember(member=member, entry=entry, slot=slot, prompt=member.ready.prompt)

    def _create_local_member(
        self, preparation: MemberPreparation, prepared: PreparedAgent, slot: AgentSlot
    ) -> LocalMember:
        return LocalMember(
            self._services,
            prepared,
            slot,
            preparation=preparation,
            mail_sender=self._mail_sender,
            board=self._board,
            observer=self._observer,
        )

    async def _prepare_member(
        self, entry: RosterEntry, mode: PermissionMode | None, call: str
    ) -> MemberPreparation:
        question_broker = MailQuestionBroker(
            entry.name,
            self._team.name,
            self._mail_sender,
            self._services.question_broker,
            self._observer.on_request_withdrawn,
        )
        return await prepare_member(
            self._services,
            self._team,
            entry,
            self._briefer,
            mode=mode,
            question_broker=question_broker,
            call=call,
        )

    def _reserve_agent_slot(self, kind: str, *, is_resumed: bool = False) -> AgentSlot:
        """Reserve a slot; a member uses it only while it works, a foreign program always."""
        idle = not self._services.launcher.is_foreign_agent_type(kind)
        match self._services.runtime.budget.open_agent_slot(kind, 1, is_resumed=is_resumed, idle=idle):
            case BudgetRefusal(sentence=sentence):
                raise AgentRequestRefused(format_team_notice("member_not_started", reason=sentence))
            case slot:
                return slot

    async def _post_first_prompt(self, entry: RosterEntry, text: str, *, fyi: bool = False) -> None:
        """Post the prompt as the first message of its inbox, which gives it work unless it is `fyi`."""
        ident = _build_first_prompt_mail_id(entry)
        await self._mail_sender.post_lead_prompt(entry.name, text, ident, fyi=fyi)

    async def _restore_local_agent(self, entry: RosterEntry) -> tuple[MemberPreparation, PreparedAgent]:
        """Restore the agent of an in-process member from its transcript."""
        preparation = await self._prepare_member(entry, resolve_first_permission_mode(entry), "")
        new_agent = preparation.request
        prepared = attach_progress_monitor(
            await self._services.agent_factory.prepare_resumed_agent(new_agent), new_agent.monitor
        )
        try:
            if entry.backend_type != "in-process" or entry.is_down:
                await self._update_roster_backend(entry, "in-process", "in-process")
            await self._ensure_first_prompt_posted(entry)
        except BaseException:
            await prepared.clean_up()
            raise
        return preparation, prepared

    async def restore_remote_member(
        self,
        entry: RosterEntry,
        backend: BackendType,
        slot: AgentSlot,
        monitor: ProgressMonitor | None = None,
    ) -> RemoteMember:
        """Restore a member in a new process, from its transcript; `monitor` has counted its usage."""
        await self._open_inbox(entry)
        async with self._starts:
            member = await self._launch_remote_member(entry, None, slot, "", monitor)
        try:
            await self._update_roster_backend(entry, backend, member.pane)
            await self._ensure_first_prompt_posted(entry)
        except BaseException:
            await member.discard()
            raise
        return member

    async def _update_roster_backend(self, entry: RosterEntry, backend: BackendType, pane: str) -> None:
        rosters = self._services.runtime.team_store.rosters
        await rosters.update_member(
            self._team.name, entry.name, backend_type=backend, tmux_pane_id=pane, is_down=False
        )

    async def _add_to_roster(self, request: SpawnRequest, backend: BackendType) -> RosterEntry:
        """Add a member to the roster and open its inbox."""
        mode = parse_teammate_permission_mode(request.mode)
        lead = self._services.lead()
        new_member = NewMember(
            name=parse_requested_member_name(request.name or ""),
            agent_type=request.kind or self._services.policy.default_kind,
            model=request.model or lead.model.card.id,
            cwd=request.cwd or str(lead.environment.workspace.cwd),
            prompt=request.prompt,
            plan_mode_required=mode == "plan",
            backend_type=backend,
            tmux_pane_id=backend,
            resources=request.resources,
        )
        entry = await self._services.runtime.team_store.rosters.add_member(self._team.name, new_member)
        try:
            await self._open_inbox(entry)
            await self._mark_stale_requests_read(entry)
        except BaseException:
            await self._remove_refused_member(entry.name)
            raise
        return entry

    async def _mark_stale_requests_read(self, entry: RosterEntry) -> None:
        """Mark prompts and shutdown requests that a former member of that name left unread as read."""
        mailboxes = self._services.runtime.team_store.open_mailboxes(self._team.name)
        unread_ids = [mail.id for mail in await mailboxes.read_history(entry.name) if not mail.read]
        if stale_ids := [
            ident for ident in unread_ids if ident.startswith((_PROMPT_PREFIX, _SHUTDOWN_PREFIX))
        ]:
            await mailboxes.mark_read(entry.name, stale_ids)

    async def _open_inbox(self, entry: RosterEntry) -> None:
        """Open its inbox; mark it if a foreign program uses it, so that its unsigned mail is trusted."""
        foreign = self._services.launcher.is_foreign_agent_type(entry.agent_type)
        await self._services.runtime.team_store.open_mailboxes(self._team.name).open_inbox(
            entry.name, foreign=foreign
        )

    async def _launch_remote_member(
        self,
        entry: RosterEntry,
        request: SpawnRequest | None,
        slot: AgentSlot,
        call: str,
        monitor: ProgressMonitor | None = None,
    ) -> RemoteMember:
        mode = (
            resolve_first_permission_mode(entry)
            if request is None
            else parse_teammate_permission_mode(request.mode)
        )
        process = await self._services.launcher.launch_member(entry, request, mode=mode, call=call)
        return await RemoteMember.connect(
            self._services, entry, request, process, slot=slot, observer=self._observer, monitor=monitor
        )

    async def _update_roster_entry(
        self, entry: RosterEntry, resolved: ResolvedAgentSettings, pane: str = "in-process"
    ) -> RosterEntry:
        return await self._services.runtime.team_store.rosters.update_member(
            self._team.name,
            entry.name,
            agent_type=resolved.kind,
            model=resolved.model,
            cwd=resolved.cwd,
            tmux_pane_id=pane,
        )

    async def _ensure_first_prompt_posted(self, entry: RosterEntry) -> None:
        await self._open_inbox(entry)
        mailboxes = self._services.runtime.team_store.open_mailboxes(self._team.name)
        if not any(
            mail.id == _build_first_prompt_mail_id(entry) for mail in await mailboxes.read_history(entry.name)
        ):
            # Its process ended before the prompt was posted.
            await self._post_first_prompt(entry, entry.prompt or "")


async def prepare_member(
    services: TeamServices,
    team: TeamRoster,
    entry: RosterEntry,
    briefer: TeamBriefer,
    *,
    mode: PermissionMode | None,
    question_broker: MailQuestionBroker,
    call: str,
) -> MemberPreparation:
    """Build the request to prepare the agent of a member, in whatever process it runs."""
    agent = AgentId(format_agent_id(entry.name, team.name))
    current_team = await services.runtime.team_store.rosters.read_team_roster(team.name) or team
    monitor = services.agent_factory.create_progress_monitor(agent)
    stall_detector = MemberStallDetector(
        services.runtime.clock, services.policy.stall_after, question_broker, monitor.record_and_forward_event
    )
    request = AgentPreparationRequest(
        agent=agent,
        parent=services.lead(),
        call=call,
        monitor=monitor,
        emit=stall_detector.observe_and_forward_event,
        assignment=TeammateMembership(
            team=team.name,
            name=entry.name,
            color=entry.color,
            mode=mode,
            section=build_team_prompt_section(current_team, entry.name),
            question_broker=question_broker,
            build_briefing=partial(_build_member_briefing, services, briefer, entry.name, agent),
            form=services.policy.form,
            can_lead=services.policy.allows_nested_teams,
        ),
    )
    return MemberPreparation(request=request, question_broker=question_broker, stall_detector=stall_detector)


async def _build_member_briefing(
    services: TeamServices, briefer: TeamBriefer, name: AgentName, agent: AgentId
) -> str:
    """Build the summaries of the member's team, and of the team that it leads."""
    led_team = "" if services.led_teams is None else await services.led_teams.build_briefing_of(agent)
    return "\n\n".join(filter(None, (await briefer.build_briefing(name), led_team)))


async def find_unanswered_shutdown_request(
    services: TeamServices, authenticator: MailSenderAuthenticator, entry: RosterEntry
) -> ShutdownRequestMail | None:
    """Return its unanswered shutdown request, ignoring those to a former member of that name."""
    mailboxes = services.runtime.team_store.open_mailboxes(entry.team)
    read_body, prefix = authenticator.read_trusted_body, build_shutdown_mail_id_prefix(entry)
    requests = [mail for mail in await mailboxes.read_history(entry.name) if mail.id.startswith(prefix)]
    answer_bodies = [read_body(mail, LEAD_NAME) for mail in await mailboxes.read_history(LEAD_NAME)]
    answered_ids = {
        body.request_id
        for body in answer_bodies
        if isinstance(body, (ShutdownApprovedMail, ShutdownRejectedMail))
    }
    for mail in reversed(requests):
        if isinstance(body := read_body(mail, entry.name), ShutdownRequestMail):
            return None if body.request_id in answered_ids else body
    return None


def _build_first_prompt_mail_id(entry: RosterEntry) -> str:
    """Return the id of its first mail, which differs from that of a former member of that name."""
    return f"{_PROMPT_PREFIX}{entry.joined_at}"


def build_shutdown_mail_id_prefix(entry: RosterEntry) -> str:
    """Return the id prefix of shutdown requests for this member.

    Timestamps would not tell them from requests to a former member of that name if the clock is changed.
    """
    return f"{_SHUTDOWN_PREFIX}{entry.joined_at}-"


def attach_progress_monitor(prepared: PreparedAgent, monitor: ProgressMonitor) -> PreparedAgent:
    """Attach the monitor, so that cleanup also closes its output file."""

    async def flush_output_and_clean_up() -> RetainedWorktreeWork | None:
        monitor.flush_output()
        return await prepared.clean_up()

    return replace(prepared, clean_up=flush_output_and_clean_up, monitor=monitor)
