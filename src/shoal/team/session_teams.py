"""The team of a session: created and deleted by its lead, used by the tools of all its agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.agent.agent_runner import AgentRunner
from shoal.core.agents.identity import AgentIdentity, assume_identity
from shoal.core.agents.subagents import AgentMessageDeliveryReceipt, AgentStatusSnapshot, SpawnRequest
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.tools import ToolContext
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import AgentRequestRefused, InvalidName
from shoal.core.events import AgentStarted
from shoal.core.ids import AgentId
from shoal.core.names import (
    LEAD_NAME,
    RESERVED_NAMES,
    USER_NAME,
    AgentName,
    TeamName,
    fold_name,
    parse_agent_name,
    parse_team_name,
)
from shoal.core.permissions.permission_changes import PermissionSuggestion
from shoal.core.task_groups import exit_task_group_without_wrapping
from shoal.core.teams.mail_bodies import (
    PlanApprovalResponseMail,
    ShutdownRequestMail,
    format_peer_message_summary,
    format_shutdown_request_id,
)
from shoal.core.teams.roster import NewMember, TeamRoster, format_agent_id
from shoal.core.teams.tasks import Task
from shoal.core.teams.team_operations import (
    TeammateSpawnResult,
    TeammateStatusSnapshot,
    TeamMessagePostReceipt,
)
from shoal.runs.agent_registry import LEAD_NAMES
from shoal.team.mail.broadcast import post_to_all
from shoal.team.team_prompts import format_team_notice
from shoal.team.team_services import TeamServices
from shoal.wire.notification_text import format_system_reminder

if TYPE_CHECKING:
    # Most sessions have no team, so what runs one is imported when a team starts.
    from shoal.team.members.member_results import LostMember
    from shoal.team.members.member_table import MemberHandle
    from shoal.team.team_supervisor import TeamSupervisor

_ID_LENGTH = 8
"""Number of characters of the session id used in the name of an implicit team."""


class SessionTeams:
    """Team operations of a session, entered while the session is open."""

    def __init__(
        self,
        services: TeamServices,
        tasks: asyncio.TaskGroup | None = None,
        on_changed: Callable[[], None] | None = None,
    ) -> None:
        """With `tasks` it is not entered: its tasks end with that group.

        `on_changed` is called when a member's state changes.
        """
        self._services = services
        self._on_changed = on_changed
        self._tasks = tasks or asyncio.TaskGroup()
        self._supervisor: TeamSupervisor | None = None
        self._create_lock = asyncio.Lock()
        self._identity_before_team: AgentIdentity | None = None
        """Identity of the lead before it led a team."""
        self._closed_supervisor: TeamSupervisor | None = None
        """Supervisor of the team that ended with the session."""
        self._down_at_close: tuple[TeammateStatusSnapshot, ...] = ()

    async def __aenter__(self) -> SessionTeams:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
            await self._services.launcher.aclose()
        finally:
            await exit_task_group_without_wrapping(self._tasks, kind, error, trace)

    # For the lead

    async def create_team(
        self, name: str, *, description: str | None, kind: str | None, context: ToolContext
    ) -> TeamRoster:
        if not self.is_lead(context.agent):
            raise AgentRequestRefused(format_team_notice("no_nested_teams"))
        if self._supervisor is not None:
            raise AgentRequestRefused(format_team_notice("one_team", team=self._supervisor.name))
        if context.agent.is_lead and context.agent.team is not None:
            raise AgentRequestRefused(format_team_notice("already_in_team", team=context.agent.team))
        return await self.create_led_team(name, description=description, kind=kind)

    @property
    def led_teams(self) -> SessionTeams:
        """Teams that the session leads."""
        return self

    @property
    def member_host(self) -> None:
        """Host of the member that the process runs: none."""

    async def create_led_team(
        self, name: str, *, description: str | None, kind: str | None = None
    ) -> TeamRoster:
        """Create the lead's team if it leads none yet."""
        lead = self._services.lead()
        lead_member = NewMember(
            name=LEAD_NAME,
            agent_type=kind or LEAD_NAME,
            model=lead.model.card.id,
            cwd=str(lead.environment.workspace.cwd),
            prompt="",
        )
        try:
            requested_name = parse_team_name(name)
        except InvalidName as error:
            raise AgentRequestRefused(str(error)) from error
        team = await self._services.runtime.team_store.rosters.create_team(
            requested_name,
            lead=lead_member,
            session=lead.identity.session,
            description=description,
            leader=None if lead.identity.is_lead else lead.identity.agent,
        )
        await self._services.launcher.prepare_backend()
        self._start_supervisor(team).start_background_tasks()
        return team

    async def delete_team(self, context: ToolContext) -> TeamName:
        supervisor = self._require_team_supervisor()
        if not self.is_lead(context.agent):
            raise AgentRequestRefused(format_team_notice("lead_deletes_team"))
        busy = [
            each.name for each in supervisor.members.list_statuses() if each.state in ("running", "created")
        ]
        if busy:
            names = ", ".join(busy)
            raise AgentRequestRefused(format_team_notice("active_members", team=supervisor.name, names=names))
        await self.disband_team()
        return supervisor.name

    async def disband_team(self) -> None:
        """End all members and delete the team."""
        await self.end_team(resumable=False)
        lead = self._services.lead()
        if self._identity_before_team is not None:
            lead.identity = self._identity_before_team
            assume_identity(lead.identity)

    async def end_team(self, *, resumable: bool) -> None:
        """End the team and its members; with `resumable` it can be resumed."""
        supervisor = self._require_team_supervisor()
        await supervisor.close(resumable=resumable)
        if not resumable:
            await self._services.runtime.team_store.rosters.delete_team(supervisor.name)
            await self._services.runtime.team_store.close_team_stores(supervisor.name)
        self._supervisor = None

    async def spawn_teammate(self, request: SpawnRequest, context: ToolContext) -> TeammateSpawnResult | None:
        if not self.is_lead(context.agent) and context.agent.is_teammate:
            return None
        if request.name is None and request.team is None:
            return None
        if (
            request.team is None
            and context.agent.is_lead
            and context.agent.team is None
            and self._services.policy.implicit_teams
            and "TeamCreate" in self._services.lead().tools
        ):
            await self._create_implicit_team(context)
        if request.team is None and (self._supervisor is None or not self.is_lead(context.agent)):
            return None
        supervisor = self._require_team_supervisor()
        if request.team not in (None, supervisor.name):
            raise AgentRequestRefused(
                format_team_notice("other_team", team=supervisor.name, other=repr(request.team))
            )
        if not self.is_lead(context.agent):
            raise AgentRequestRefused(format_team_notice("lead_starts_members"))
        if request.name is None:
            raise AgentRequestRefused(format_team_notice("nameless_member"))
        return await supervisor.spawn_teammate(request, context.call_id)

    async def resume_team(
        self,
        session: str,
        delivered: Container[str],
        active_members: Collection[AgentStarted] = (),
        idle_members: Collection[AgentId] = (),
    ) -> TeamName | None:
        """Resume the team that an earlier process of the session led.

        `active_members` are the teammates without an end in the journal, `idle_members` those that ended with
        their process. The lead has no information about others, which had not started yet.
        """
        from shoal.team.members.member_results import LostMember, build_member_end_notice

        rosters = self._services.runtime.team_store.rosters
        roster_ids: set[AgentId] = set()
        known_ids = {*idle_members, *(started.agent for started in active_members)}

        def report_lost_member(lost: LostMember) -> None:
            if lost.agent in known_ids:
                end_event = lost.to_agent_ended_event(
                    self._services.ids.new_short_id(), self._services.lead_id
                )
                self._services.runtime.events.emit_event(end_event)
                self._services.runtime.inbox.queue.put(
                    build_member_end_notice(self._services.lead_id, end_event.completion.id, end_event.notice)
                )

        for name in await rosters.list_teams():
            team = await rosters.read_team_roster(name)
            is_own = team is not None and team.lead_agent_id == format_agent_id(LEAD_NAME, team.name)
            if team is not None and is_own and team.lead_session_id == session:
                roster_ids = {AgentId(entry.agent_id) for entry in team.members}
                await self.resume_led_team(team, delivered, report_lost_member)
                break
        for start_event in active_members:
            if start_event.parent == self._services.lead_id and start_event.agent not in roster_ids:
                report_lost_member(LostMember.from_agent_started_event(start_event))
        return None if self._supervisor is None else self._supervisor.name

    async def resume_led_team(
        self,
        team: TeamRoster,
        delivered: Container[str],
        on_lost: Callable[[LostMember], None] = lambda _: None,
    ) -> None:
        """Resume a team; `delivered` is in its lead's transcript, `on_lost` is called for lost members."""
        supervisor = self._start_supervisor(team)
        await supervisor.resume_members(team, on_lost)
        supervisor.start_background_tasks(delivered)
        await self._queue_team_briefing(supervisor)

    # For everybody

    async def send_message(
        self, to: str, text: str, summary: str, context: ToolContext, *, fyi: bool = False
    ) -> tuple[TeamMessagePostReceipt, ...] | None:
        supervisor, sender = self._supervisor, self._resolve_sender_name(context.agent)
        if supervisor is None:
            return None
        is_in_team = self.is_lead(context.agent) or context.agent.is_teammate
        if to == "*" and is_in_team:
            others = [
                each
                for each in (
                    LEAD_NAME,
                    *supervisor.members.handles,
                    *await supervisor.list_external_member_names(),
                )
                if each != sender
            ]
            if not others:
                raise AgentRequestRefused(format_team_notice("nobody_else"))
            return await post_to_all(
                others, lambda each: self._post_message(supervisor, sender, each, text, summary, fyi=fyi)
            )
        if context.agent.is_teammate and not self.is_lead(context.agent) and to in LEAD_NAMES:
            return (await self._post_message(supervisor, sender, LEAD_NAME, text, summary, fyi=fyi),)
        found = supervisor.members.resolve_name(to) or await supervisor.resolve_external_member_name(to)
        if found is None:
            return None
        if found == sender:
            raise AgentRequestRefused(format_team_notice("message_to_self"))
        return (await self._post_message(supervisor, sender, found, text, summary, fyi=fyi),)

    async def request_shutdown(self, to: str, reason: str, context: ToolContext) -> str:
        supervisor = self._require_team_supervisor()
        if not self.is_lead(context.agent):
            raise AgentRequestRefused(format_team_notice("lead_asks_for_shutdown"))
        handle = self._find_member_handle_by_name(to)
        if handle is None:
            if (external := await supervisor.resolve_external_member_name(to)) is not None:
                raise AgentRequestRefused(format_team_notice("external_member", name=external))
            raise await supervisor.build_unknown_member_error(to)
        return await self._mail_shutdown_request(supervisor, handle, reason)

    async def answer_shutdown_request(
        self, request: str, reason: str, *, approve: bool, context: ToolContext
    ) -> None:
        supervisor = self._require_team_supervisor()
        handle = supervisor.members.find_handle(context.agent.agent)
        if handle is None:
            raise AgentRequestRefused(format_team_notice("member_answers_shutdown"))
        await supervisor.shutdown.answer_shutdown(handle, request, reason, approve=approve)

    async def answer_plan_approval_request(
        self, to: str, request: str, feedback: str, *, approve: bool, context: ToolContext
    ) -> AgentName:
        supervisor = self._require_team_supervisor()
        if not self.is_lead(context.agent):
            raise AgentRequestRefused(format_team_notice("lead_approves_plans"))
        found = supervisor.members.resolve_name(to) or await supervisor.resolve_external_member_name(to)
        if found is None:
            raise await supervisor.build_unknown_member_error(to)
        if self._services.policy.plan_approver != "lead":
            raise AgentRequestRefused(format_team_notice("person_approves_plans"))
        if not supervisor.members.is_waiting_for_answer(found, request):
            raise AgentRequestRefused(format_team_notice("unknown_plan", name=found, request=repr(request)))
        body = PlanApprovalResponseMail(
            request_id=request,
            approved=approve,
            timestamp=supervisor.mail_sender.current_timestamp,
            permission_mode=self._services.lead_mode if approve else None,
            feedback=None if approve else feedback,
        )
        await supervisor.mail_sender.post_mail_body(LEAD_NAME, found, body)
        return found

    async def stop_member(self, name: str, context: ToolContext) -> bool:
        if self._supervisor is None or self._supervisor.members.resolve_name(name) is None:
            return False
        if not self.is_lead(context.agent):
            raise AgentRequestRefused(format_team_notice("lead_stops_members"))
        return await self.end_member(name, format_end_reason("stopped_by", name=LEAD_NAME))

    def list_members(self) -> tuple[TeammateStatusSnapshot, ...]:
        return () if self._supervisor is None else self._supervisor.members.list_statuses()

    async def list_external_members(self) -> tuple[TeammateStatusSnapshot, ...]:
        return () if self._supervisor is None else await self._supervisor.list_external_members()

    def list_down_members(self) -> tuple[TeammateStatusSnapshot, ...]:
        """Return the members that are down, or that were down when the session ended."""
        if self._supervisor is None:
            return self._down_at_close
        return tuple(each for each in self.list_members() if each.state == "down")

    async def list_unfinished_tasks(self) -> tuple[Task, ...]:
        """Return the tasks of the team that are not completed."""
        supervisor = self._supervisor or self._closed_supervisor
        return () if supervisor is None else await supervisor.list_unfinished_tasks()

    # For the session

    async def add_members(self, requests: Sequence[SpawnRequest]) -> tuple[TeammateSpawnResult, ...]:
        """Add members without a call of the lead; all are admitted before the first of them starts."""
        return await self._require_team_supervisor().add_members(requests)

    async def shut_down_member(self, name: str, reason: str) -> bool:
        """Shut a member down for a person; it is ended after the grace. False if there is none."""
        supervisor, handle = self._supervisor, self._find_member_handle_by_name(name)
        if supervisor is None or handle is None:
            return False
        await self._mail_shutdown_request(supervisor, handle, reason)
        if handle.member.state == "down":
            return True
        try:
            async with self._services.runtime.clock.deadline(self._services.policy.grace):
                await handle.gone.wait()
        except TimeoutError:
            await supervisor.shutdown.end_member(
                handle,
                format_end_reason(
                    "no_shutdown_consent", reason=reason, seconds=f"{self._services.policy.grace:g}"
                ),
            )
        return True

    def find_agent(self, agent: AgentId) -> AgentRunner | None:
        """Return the runner of a teammate in this process."""
        handle = self.find_member_handle(agent)
        return None if handle is None else handle.member.agent

    def on_item_entered(self, item: InboxItem) -> None:
        if self._supervisor is not None:
            self._supervisor.on_item_entered(item)

    async def send_user_message(self, to: str, text: str) -> AgentMessageDeliveryReceipt | None:
        """Deliver a person's text to a teammate; None if there is none of that name."""
        if self._supervisor is None:
            return None
        found = self._supervisor.members.resolve_name(
            to
        ) or await self._supervisor.resolve_external_member_name(to)
        if found is None:
            return None
        await self._supervisor.mail_sender.post_text(USER_NAME, found, text, kind="notice")
        self._supervisor.request_restart(found)
        return AgentMessageDeliveryReceipt(
            to=self._supervisor.members.get_agent_id(found), name=found, how="queued"
        )

    def restart_member(self, name: str) -> bool | None:
        """Restart a member that is down; False if it is not down, None if there is no such teammate."""
        handle = self._find_member_handle_by_name(name)
        if self._supervisor is None or handle is None:
            return None
        return self._supervisor.request_restart(handle.member.name)

    async def end_member(self, name: str, why: str) -> bool:
        """End a teammate at once; False if there is none of that name."""
        handle = self._find_member_handle_by_name(name)
        if self._supervisor is None or handle is None:
            return False
        await self._supervisor.shutdown.end_member(handle, why)
        return True

    def interrupt_member(self, name: str) -> bool | None:
        """End a teammate's working period; False if it did not work, None if there is no such teammate."""
        handle = self._find_member_handle_by_name(name)
        return None if handle is None else handle.member.interrupt_turn()

    def is_lead(self, agent: AgentIdentity) -> bool:
        """Return True if the agent leads this team, or would create it."""
        return agent.agent == self._services.lead_id

    @property
    def led_team_name(self) -> str:
        return "" if self._supervisor is None else self._supervisor.name

    def has_member(self, name: str) -> bool:
        """Return True if a member has that name or id."""
        return self._supervisor is not None and self._supervisor.members.resolve_name(name) is not None

    def find_member_handle(self, agent: AgentId) -> MemberHandle | None:
        return None if self._supervisor is None else self._supervisor.members.find_handle(agent)

    def notify_changed(self) -> None:
        """Notify waiters that a member's state changed."""
        if self._supervisor is not None:
            self._supervisor.members.notify_changed()

    def share_permission_across_processes(self, update: PermissionSuggestion) -> None:
        """Send a session-wide permission to the members in other processes."""
        if self._supervisor is not None:
            self._supervisor.send_permission_to_remote_members(update)

    @property
    def is_working(self) -> bool:
        return self._supervisor is not None and self._supervisor.is_working

    async def wait_until_idle(self) -> None:
        """Wait until no teammate works or has work left."""
        if self._supervisor is not None:
            await self._supervisor.wait_until_idle()

    async def close(self) -> tuple[AgentStatusSnapshot, ...]:
        """End every teammate so that it can be resumed; return those that were working."""
        supervisor = self._supervisor
        if supervisor is None:
            return ()
        self._down_at_close, self._closed_supervisor = self.list_down_members(), supervisor
        self._supervisor = None
        try:
            return await supervisor.close(resumable=True)
        except asyncio.CancelledError:
            # The exit of the session closes it again; otherwise it would wait for the members forever.
            self._supervisor = supervisor
            raise

    async def _create_implicit_team(self, context: ToolContext) -> None:
        """Create one implicit team, even if several calls of one message ask for it."""
        async with self._create_lock:
            if self._supervisor is None:
                name = f"session-{context.agent.session[:_ID_LENGTH]}"
                await self.create_team(name, description=None, kind=None, context=context)

    def _start_supervisor(self, team: TeamRoster) -> TeamSupervisor:
        from shoal.team.team_supervisor import TeamSupervisor

        supervisor = self._supervisor = TeamSupervisor(self._services, team, self._tasks, self._on_changed)
        lead = self._services.lead()
        if lead.identity.is_lead:
            self._identity_before_team = lead.identity
            lead.identity = replace(lead.identity, name=LEAD_NAME, team=team.name)
            assume_identity(lead.identity)
        return supervisor

    async def build_lead_briefing(self) -> str:
        """Build the summary of the team for its lead; empty if there is no team."""
        supervisor = self._supervisor
        return "" if supervisor is None else await supervisor.briefer.build_briefing(LEAD_NAME)

    async def _queue_team_briefing(self, supervisor: TeamSupervisor) -> None:
        """Queue a briefing for the lead's next turn: what it knew before may be outdated."""
        from shoal.team.mail.rendered_mail import RenderedMail

        text = format_system_reminder(await supervisor.briefer.build_briefing(LEAD_NAME))
        rendered = RenderedMail(rank=0, by="runtime", text=text, wakes=False)
        self._services.runtime.inbox.queue.put(
            rendered.to_inbox_item(self._services.ids.new_short_id(), self._services.lead_id)
        )

    async def _mail_shutdown_request(
        self, supervisor: TeamSupervisor, handle: MemberHandle, reason: str
    ) -> str:
        from shoal.team.members.member_admission import build_shutdown_mail_id_prefix

        name = handle.member.name
        request = format_shutdown_request_id(self._services.runtime.clock.now(), name)
        body = ShutdownRequestMail(
            request_id=request,
            sender=LEAD_NAME,
            reason=reason,
            timestamp=supervisor.mail_sender.current_timestamp,
        )
        mail_id = f"{build_shutdown_mail_id_prefix(handle.entry)}{self._services.ids.new_short_id()}"
        await supervisor.mail_sender.post_mail_body(LEAD_NAME, name, body, ident=mail_id)
        if handle.member.state == "down":
            # Nobody could answer.
            await supervisor.shutdown.end_member(handle, format_end_reason("shut_down_while_down"))
        else:
            supervisor.shutdown.start_remote_grace(name, body)
        return request

    def _find_member_handle_by_name(self, name: str) -> MemberHandle | None:
        """Return the handle of the member with this name or id."""
        supervisor = self._supervisor
        found = None if supervisor is None else supervisor.members.resolve_name(name)
        return (
            None
            if supervisor is None or found is None
            else supervisor.members.find_handle(supervisor.members.get_agent_id(found))
        )

    def _require_team_supervisor(self) -> TeamSupervisor:
        if self._supervisor is None:
            raise AgentRequestRefused(format_team_notice("no_team"))
        return self._supervisor

    def _resolve_sender_name(self, agent: AgentIdentity) -> AgentName:
        if self.is_lead(agent):
            return LEAD_NAME
        try:
            name = parse_agent_name(agent.name)
        except InvalidName:
            return AgentName(agent.agent)
        # A one-job agent may have a reserved name; it must not send mail under it.
        return AgentName(agent.agent) if fold_name(name) in RESERVED_NAMES else name

    async def _post_message(
        self,
        supervisor: TeamSupervisor,
        sender: AgentName,
        to: AgentName,
        text: str,
        summary: str,
        *,
        fyi: bool,
    ) -> TeamMessagePostReceipt:
        receipt = await supervisor.mail_sender.post_text(sender, to, text, summary=summary, fyi=fyi)
        supervisor.request_restart(to)
        if not fyi:
            supervisor.members.on_foreign_mail(to, is_idle=False)
        handle = supervisor.members.find_handle(supervisor.members.get_agent_id(sender))
        if handle is not None and to != LEAD_NAME:
            handle.member.on_message_sent(format_peer_message_summary(to, summary))
        return TeamMessagePostReceipt(
            sender=sender, to=to, color=supervisor.get_member_color(to), standing=receipt.standing
        )
