"""Registers agents as team members, and restores them in a later process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from shoal.core.agents.subagents import ResolvedAgentSettings, RetainedWorktreeWork, SpawnRequest
from shoal.core.budgets.limits import AgentSlot, BudgetRefusal
from shoal.core.errors import AgentRequestRefused, InvalidName
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, AgentName, parse_teammate_name
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.teams.mail_bodies import ShutdownApprovedMail, ShutdownRejectedMail, ShutdownRequestMail
from shoal.core.teams.roster import BackendType, NewMember, RosterEntry, TeamRoster, format_agent_id
from shoal.runs.prepared_agent import AgentPreparationRequest, PreparedAgent, TeammateMembership
from shoal.runs.progress_monitor import ProgressMonitor
from shoal.runs.start_hooks import add_subagent_start_hook_context
from shoal.team.channel.mail_question_broker import MailQuestionBroker
from shoal.team.mail.mail_authentication import MailSenderAuthenticator
from shoal.team.mail.mail_sender import TeamMailPoster
from shoal.team.members.remote_member import RemoteMember
from shoal.team.team_prompts import build_team_prompt_section
from shoal.team.team_services import TeamServices

QuestionBrokerFactory: TypeAlias = Callable[[AgentName], MailQuestionBroker]
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
        raise AgentRequestRefused(
            f"{name!r} is not a mode for a teammate. There are: {', '.join(_MODE_BY_NAME)}."
        )
    return _MODE_BY_NAME[name]


def resolve_first_permission_mode(entry: RosterEntry) -> PermissionMode | None:
    return "plan" if entry.plan_mode_required else None


def parse_requested_member_name(text: str) -> AgentName:
    try:
        return parse_teammate_name(text)
    except InvalidName as error:
        raise AgentRequestRefused(str(error)) from error


class MemberRegistrar:
    """Registers the members of one team in its roster, with an inbox and their prompt as first message."""

    def __init__(
        self,
        services: TeamServices,
        team: TeamRoster,
        mail_sender: TeamMailPoster,
        authenticator: MailSenderAuthenticator,
    ) -> None:
        self._services = services
        self._team = team
        self._mail_sender = mail_sender
        self._authenticator = authenticator

    def reserve_agent_slot(self, kind: str, *, is_resumed: bool = False) -> AgentSlot:
        """Reserve a slot; a member uses it only while it works, a foreign program always."""
        idle = not self._services.launcher.is_foreign_agent_type(kind)
        match self._services.budget.open_agent_slot(kind, 1, is_resumed=is_resumed, idle=idle):
            case BudgetRefusal(sentence=sentence):
                raise AgentRequestRefused(f"The teammate was not started: {sentence}.")
            case slot:
                return slot

    async def register_member(
        self, request: SpawnRequest, create_broker: QuestionBrokerFactory, call: str
    ) -> tuple[PreparedAgent, RosterEntry]:
        """Register an in-process member; its prompt is not posted yet. If this raises, nothing is left."""
        entry = await self._add_to_roster(request, "in-process")
        prepared: PreparedAgent | None = None
        try:
            request = replace(request, name=entry.name, kind=entry.agent_type)
            mode = parse_teammate_permission_mode(request.mode)
            new_agent = await self.build_agent_preparation_request(
                entry, mode, create_broker(entry.name), call
            )
            prepared = attach_progress_monitor(
                await self._services.agent_factory.prepare_new_agent(request, new_agent), new_agent.monitor
            )
            prepared = await add_subagent_start_hook_context(prepared)
            entry = await self._update_roster_entry(entry, prepared.resolved)
        except BaseException:
            await self._services.store.rosters.remove_member(self._team.name, entry.name)
            if prepared is not None:
                await prepared.clean_up()
            raise
        return prepared, entry

    async def register_remote_member(
        self, request: SpawnRequest, backend: BackendType, call: str
    ) -> tuple[RemoteMember, RosterEntry]:
        """Register a member in its own process, like `register_member`."""
        entry = await self._add_to_roster(request, backend)
        member: RemoteMember | None = None
        try:
            request = replace(request, name=entry.name, kind=entry.agent_type)
            member = await self._launch_remote_member(entry, request, call)
            entry = await self._update_roster_entry(entry, member.ready.resolved, member.pane)
        except BaseException:
            try:
                await self._services.store.rosters.remove_member(self._team.name, entry.name)
            finally:
                if member is not None:
                    await member.stop_process()
            raise
        return member, entry

    async def post_first_prompt(self, entry: RosterEntry, text: str) -> None:
        """Post the prompt as the first message of its inbox, which gives it work."""
        await self._mail_sender.post_lead_prompt(entry.name, text, _build_first_prompt_mail_id(entry))

    async def restore_member(self, entry: RosterEntry, create_broker: QuestionBrokerFactory) -> PreparedAgent:
        """Restore an in-process member from its transcript."""
        new_agent = await self.build_agent_preparation_request(
            entry, resolve_first_permission_mode(entry), create_broker(entry.name), ""
        )
        prepared = attach_progress_monitor(
            await self._services.agent_factory.prepare_resumed_agent(new_agent), new_agent.monitor
        )
        try:
            if entry.backend_type != "in-process":
                await self._update_roster_backend(entry, "in-process", "in-process")
            await self._ensure_first_prompt_posted(entry)
        except BaseException:
            await prepared.clean_up()
            raise
        return prepared

    async def restore_remote_member(self, entry: RosterEntry, backend: BackendType) -> RemoteMember:
        await self._open_inbox(entry)
        member = await self._launch_remote_member(entry, None, "")
        try:
            await self._update_roster_backend(entry, backend, member.pane)
            await self._ensure_first_prompt_posted(entry)
        except BaseException:
            await member.stop_process()
            raise
        return member

    async def _update_roster_backend(self, entry: RosterEntry, backend: BackendType, pane: str) -> None:
        rosters = self._services.store.rosters
        await rosters.update_member(self._team.name, entry.name, backend_type=backend, tmux_pane_id=pane)

    async def _add_to_roster(self, request: SpawnRequest, backend: BackendType) -> RosterEntry:
        """Add a member to the roster and open its inbox."""
        mode = parse_teammate_permission_mode(request.mode)
        lead = self._services.lead()
        new_member = NewMember(
            name=parse_requested_member_name(request.name or ""),
            agent_type=request.kind or self._services.default_kind,
            model=request.model or lead.model.card.id,
            cwd=request.cwd or str(lead.environment.workspace.cwd),
            prompt=request.prompt,
            plan_mode_required=mode == "plan",
            backend_type=backend,
            tmux_pane_id=backend,
        )
        entry = await self._services.store.rosters.add_member(self._team.name, new_member)
        try:
            await self._open_inbox(entry)
            await self._mark_stale_requests_read(entry)
        except BaseException:
            await self._services.store.rosters.remove_member(self._team.name, entry.name)
            raise
        return entry

    async def _mark_stale_requests_read(self, entry: RosterEntry) -> None:
        """Mark prompts and shutdown requests as read that a former member of that name left unread."""
        mailboxes = self._services.store.open_mailboxes(self._team.name)
        unread_ids = [mail.id for mail in await mailboxes.read_history(entry.name) if not mail.read]
        if stale_ids := [
            ident for ident in unread_ids if ident.startswith((_PROMPT_PREFIX, _SHUTDOWN_PREFIX))
        ]:
            await mailboxes.mark_read(entry.name, stale_ids)

    async def _open_inbox(self, entry: RosterEntry) -> None:
        """Open its inbox; mark it if a foreign program uses it, so that its unsigned mail is trusted."""
        foreign = self._services.launcher.is_foreign_agent_type(entry.agent_type)
        await self._services.store.open_mailboxes(self._team.name).open_inbox(entry.name, foreign=foreign)

    async def _launch_remote_member(
        self, entry: RosterEntry, request: SpawnRequest | None, call: str
    ) -> RemoteMember:
        mode = (
            resolve_first_permission_mode(entry)
            if request is None
            else parse_teammate_permission_mode(request.mode)
        )
        process = await self._services.launcher.launch_member(entry, request, mode=mode, call=call)
        return await RemoteMember.connect(self._services, entry, request, process)

    async def _update_roster_entry(
        self, entry: RosterEntry, resolved: ResolvedAgentSettings, pane: str = "in-process"
    ) -> RosterEntry:
        return await self._services.store.rosters.update_member(
            self._team.name,
            entry.name,
            agent_type=resolved.kind,
            model=resolved.model,
            cwd=resolved.cwd,
            tmux_pane_id=pane,
        )

    async def _ensure_first_prompt_posted(self, entry: RosterEntry) -> None:
        await self._open_inbox(entry)
        mailboxes = self._services.store.open_mailboxes(self._team.name)
        if not any(
            mail.id == _build_first_prompt_mail_id(entry) for mail in await mailboxes.read_history(entry.name)
        ):
            # Its process ended before the prompt was posted.
            await self.post_first_prompt(entry, entry.prompt or "")

    async def find_unanswered_shutdown_request(self, entry: RosterEntry) -> ShutdownRequestMail | None:
        """Return its unanswered shutdown request, ignoring those to a former member of that name."""
        mailboxes = self._services.store.open_mailboxes(self._team.name)
        read_body, prefix = self._authenticator.read_trusted_body, build_shutdown_mail_id_prefix(entry)
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

    async def build_agent_preparation_request(
        self, entry: RosterEntry, mode: PermissionMode | None, question_broker: MailQuestionBroker, call: str
    ) -> AgentPreparationRequest:
        agent = AgentId(format_agent_id(entry.name, self._team.name))
        team = await self._services.store.rosters.read_team_roster(self._team.name) or self._team
        return AgentPreparationRequest(
            agent=agent,
            parent=self._services.lead(),
            call=call,
            monitor=self._services.agent_factory.create_progress_monitor(agent),
            assignment=TeammateMembership(
                team=self._team.name,
                name=entry.name,
                color=entry.color,
                mode=mode,
                section=build_team_prompt_section(team, entry.name),
                question_broker=question_broker,
                form=self._services.form,
                can_lead=self._services.allows_nested_teams,
            ),
        )


def _build_first_prompt_mail_id(entry: RosterEntry) -> str:
    """Return the id of its first mail, which differs from that of a former member of that name."""
    return f"{_PROMPT_PREFIX}{entry.joined_at}"


def build_shutdown_mail_id_prefix(entry: RosterEntry) -> str:
    """Return the id prefix of shutdown requests for this member.

    Timestamps would not tell them from requests to a former member of that name if the clock is changed.
    """
    return f"{_SHUTDOWN_PREFIX}{entry.joined_at}-"


def attach_progress_monitor(prepared: PreparedAgent, monitor: ProgressMonitor) -> PreparedAgent:
    """Attach the monitor, so that clean-up also closes its output file."""

    async def flush_output_and_clean_up() -> RetainedWorktreeWork | None:
        monitor.flush_output()
        return await prepared.clean_up()

    return replace(prepared, clean_up=flush_output_and_clean_up, monitor=monitor)
