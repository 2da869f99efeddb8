"""Hosts one member in its own process, with its mail and its channel to the lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.agent_runner import AgentRunner
from shoal.core.agents.subagents import (
    AgentMessageDeliveryReceipt,
    AgentStatusSnapshot,
    RetainedWorktreeWork,
    SpawnRequest,
)
from shoal.core.agents.worktrees import MachineCheckoutPaths
from shoal.core.budgets.limits import AgentSlot
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.tools import ToolContext
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import AgentRequestRefused, InvalidName, ShoalError
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, USER_NAME, AgentName, TeamName, map_to_inbox_name
from shoal.core.permissions.permission_changes import PermissionMode, PermissionSuggestion
from shoal.core.ports import WorkCheckpoints
from shoal.core.teams.mail_bodies import (
    ShutdownRejectedMail,
    ShutdownRequestMail,
    format_peer_message_summary,
)
from shoal.core.teams.mail_signatures import MailSigner
from shoal.core.teams.roster import RosterEntry, TeamRoster
from shoal.core.teams.team_operations import (
    TeammateSpawnResult,
    TeammateStatusSnapshot,
    TeamMessagePostReceipt,
)
from shoal.runs.agent_registry import LEAD_NAMES
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.runs.start_hooks import add_subagent_start_hook_context
from shoal.team.channel.lead_channel import LeadChannel, LeadCommandMessage
from shoal.team.channel.mail_question_broker import MailQuestionBroker
from shoal.team.mail.broadcast import post_to_all
from shoal.team.mail.mail_authentication import ForeignMemberNameLookup, MailSenderAuthenticator
from shoal.team.mail.mail_pump import MailPump, MailVerifier
from shoal.team.mail.mail_sender import TeamMailPoster
from shoal.team.members.local_member import LocalMember
from shoal.team.members.member_admission import (
    attach_progress_monitor,
    find_unanswered_shutdown_request,
    prepare_member,
)
from shoal.team.members.member_results import build_shutdown_approval
from shoal.team.roster_activity import RosterActivityWriter
from shoal.team.team_briefing import TeamBriefer, teammate_statuses_from_roster
from shoal.team.team_prompts import format_team_notice
from shoal.team.team_services import TeamServices
from shoal.wire.member_channel_codec import (
    MailRequestWithdrawnMessage,
    MemberInterruptRequestedMessage,
    MemberLeftMessage,
    MemberPingMessage,
    MemberPongMessage,
    MemberReadyMessage,
    MemberShutdownAgreedMessage,
    MemberStateReportedMessage,
    MemberStopRequestedMessage,
    SessionPermissionChangedMessage,
)

_TEAM_CHECK_SECONDS = 2.0
"""Seconds between two looks at the roster of a foreign lead."""


class TeamMembership(Struct, frozen=True, kw_only=True):
    """Member and team that a process runs as."""

    name: AgentName
    team: TeamName
    spawn_request: SpawnRequest | None
    """Request it was spawned with; None if it resumes from its transcript."""
    mode: PermissionMode | None = None
    call: str = ""
    channel: LeadChannel | None = None
    """Channel to a Shoal lead; None if another program started this process."""
    session: str = ""
    """Session of the Shoal lead whose run this process belongs to."""
    run_directory: str = ""
    """Directory of the run."""
    transcript: str = ""
    """Transcript of the lead."""
    snapshot: str = ""
    """Snapshot of the user's shell, if the lead has one."""
    denied_tools: tuple[str, ...] = ()
    """Tools that its lead may not use, beyond the rules of the session."""
    only_tools: tuple[tuple[str, ...], ...] = ()
    """Tools with patterns that its lead is restricted to."""
    agent: str = ""
    """Id of the agent if this process runs one for a single job, and no member of a team."""
    checkpoints: WorkCheckpoints | None = None
    """Checkpoints of the files in the checkout of this process."""
    checkout: MachineCheckoutPaths | None = None
    """Its checkout on a machine of a cluster; None if it shares the lead's files."""


class MemberHost:
    """Observer of its one member, and the team as that member's tools reach it."""

    def __init__(
        self, services: TeamServices, membership: TeamMembership, has_pending_hooks: Callable[[], bool]
    ) -> None:
        """`has_pending_hooks` returns True if hooks are running that may wake the member."""
        self._services = services
        self._membership = membership
        self._channel = membership.channel
        self._has_pending_hooks = has_pending_hooks
        self._roster_name = membership.name
        """Its name as spelled in the roster; it may contain characters that file names cannot."""
        self._last_roster: TeamRoster | None = None
        """Roster as it was last read, with a foreign lead. Other members may share their process with
        thousands, of which each would keep a different roster."""
        self._approved_request: ShutdownRequestMail | None = None
        """Shutdown request that it has approved."""
        self._has_rejected = False
        """True if it has already rejected a shutdown once."""
        self._run_task: asyncio.Task[AgentRunOutcome] | None = None
        self._last_status: MemberStateReportedMessage | None = None
        self._task_group: asyncio.TaskGroup | None = None
        mailboxes = services.runtime.team_store.open_mailboxes(membership.team)
        self._mail_pump = MailPump(
            mailboxes, services.runtime.clock, services.note, self._resend_member_status
        )
        self._activity_writer = RosterActivityWriter(
            services.runtime.team_store.rosters, membership.team, services.runtime.clock, services.note
        )
        # A foreign program that started this process is its lead, but has none of our keys.
        key = (
            None
            if membership.channel is None
            else services.runtime.team_store.read_signing_key(membership.team)
        )
        self._authenticator = MailSenderAuthenticator(
            membership.team,
            key,
            trusted=(LEAD_NAME,) if key is None else ForeignMemberNameLookup(mailboxes),
            policy=services.policy.trust_unsigned,
        )
        self._colors: dict[AgentName, str | None] = {}
        self._mail_sender = TeamMailPoster(
            mailboxes,
            self._colors,
            clock=services.runtime.clock,
            ids=services.ids,
            seal=None if key is None else MailSigner(membership.team, key),
        )
        self._mail_verifier = MailVerifier(
            services, self._mail_pump, self._authenticator, self.notify_changed
        )
        self._member: LocalMember | None = None

    async def __aenter__(self) -> MemberHost:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    @property
    def led_teams(self) -> None:
        """Teams that the session leads: none."""

    @property
    def member_host(self) -> MemberHost:
        """Host of the member that the process runs."""
        return self

    async def run_member(self) -> AgentRunOutcome:
        """Run the member to its end. Raises `AgentRequestRefused` if it cannot be created."""
        team, entry = await self._read_own_roster_entry()
        self._colors[entry.name] = entry.color
        member = self._member = await self._create_member(team, entry)
        del team  # the roster of a large team, which would be kept as long as the member
        if self._channel is not None:
            prompt = "" if member.prepared.prompt is None else member.prepared.prompt.text
            ready = MemberReadyMessage(
                started=member.agent_started_event, resolved=member.prepared.resolved, prompt=prompt
            )
            self._channel.send_message(ready)
            self.notify_changed()
        async with asyncio.TaskGroup() as tasks:
            self._task_group = tasks
            run_task = self._run_task = tasks.create_task(member.run())
            coroutines = (
                self._pump_mail(member),
                self._mail_pump.run_mark_settled_mail_read_loop(),
                self._activity_writer.flush_continuously(),
            )
            background_tasks = [tasks.create_task(coroutine) for coroutine in coroutines]
            if self._channel is not None:
                background_tasks.append(tasks.create_task(self._listen_to_lead(self._channel)))
            else:
                background_tasks.append(tasks.create_task(self._end_with_foreign_team(member)))
            outcome = await run_task
            for task in background_tasks:
                task.cancel()
        await self._mail_pump.mark_settled_mail_read()
        await self._activity_writer.flush()
        work = await self._clean_up_member(member)
        await self._report_member_end(member, outcome, work)
        return outcome

    async def _pump_mail(self, member: LocalMember) -> None:
        """Deliver mail until canceled. If a foreign lead deletes the team, the member ends."""
        while True:
            await self._mail_verifier.pump_and_verify_inbox(
                member.name, member.id, member.deliver_mail, member.prepared.delivered
            )
            if self._channel is not None:
                return  # the lead tells it what to do
            try:
                await self._read_roster()
                await self._services.runtime.team_store.open_mailboxes(self._membership.team).open_inbox(
                    member.name
                )
            except ShoalError as error:
                self._end_without_team(member, str(error))
                return

    async def _end_with_foreign_team(self, member: LocalMember) -> None:
        """End the member if its foreign lead deletes the roster, but not the inbox that it watches."""
        rosters, team = self._services.runtime.team_store.rosters, self._membership.team
        missing = 0
        while missing < 2:  # a program may replace the file by removing it first
            await self._services.runtime.clock.sleep(_TEAM_CHECK_SECONDS)
            with suppress(ShoalError):
                missing = 0 if team in await rosters.list_teams() else missing + 1
        self._end_without_team(member, format_team_notice("deleted_team", team=team))

    def _end_without_team(self, member: LocalMember, reason: str) -> None:
        self._services.note(f"{member.name} ends because its team is gone: {reason}")
        self.request_member_end(format_end_reason("team_deleted"))

    def request_member_end(self, why: str, *, resumable: bool = False) -> None:
        """Ask the member to end, whatever it is doing."""
        member, run_task = self._member, self._run_task
        if member is None or run_task is None:
            return
        member.stop_reason, member.resumable = member.stop_reason or why, member.resumable or resumable
        # A task that is canceled before its first step never runs, and would never report its end.
        asyncio.get_running_loop().call_soon(run_task.cancel)

    def share_permission_across_processes(self, update: PermissionSuggestion) -> None:
        """Send a session-wide permission to the lead."""
        if self._channel is not None:
            self._channel.send_message(SessionPermissionChangedMessage(update=update))

    # Observer of the member

    def set_roster_activity(self, name: AgentName, *, active: bool) -> None:
        self._activity_writer.set_member_active(self._roster_name, active=active)

    def on_shutdown_requested(self, name: AgentName, request: ShutdownRequestMail) -> None:
        """Report the change; the lead enforces the grace."""
        self.notify_changed()

    def notify_changed(self) -> None:
        member = self._member
        if member is None or self._channel is None:
            return
        state = "running" if member.state == "idle" and self._has_work(member) else member.state
        status = MemberStateReportedMessage(
            state=state, claiming=member.is_claiming, claims=member.claims_tasks
        )
        if status != self._last_status:
            self._last_status = status
            self._channel.send_message(status)

    def _resend_member_status(self) -> None:
        """Resend the status to a lead that saw waiting mail here which then changed nothing."""
        self._last_status = None
        self.notify_changed()

    # For its tools

    async def create_team(
        self, name: str, *, description: str | None, kind: str | None, context: ToolContext
    ) -> TeamRoster:
        raise AgentRequestRefused(format_team_notice("lead_creates_team"))

    async def delete_team(self, context: ToolContext) -> TeamName:
        raise AgentRequestRefused(format_team_notice("lead_deletes_team"))

    async def spawn_teammate(self, request: SpawnRequest, context: ToolContext) -> TeammateSpawnResult | None:
        return None

    async def send_message(
        self, to: str, text: str, summary: str, context: ToolContext, *, fyi: bool = False
    ) -> tuple[TeamMessagePostReceipt, ...] | None:
        if not context.agent.is_teammate:
            return None
        team = await self._read_roster()
        sender, own_name = AgentName(context.agent.name), self._roster_name
        if to == "*":
            others = [each.name for each in team.members if each.name not in (sender, own_name)]
            if not others:
                raise AgentRequestRefused(format_team_notice("nobody_else"))
            await self._open_inboxes_of_added_members(others)
            return await post_to_all(
                others, lambda each: self._post_message(team, sender, each, text, summary, fyi=fyi)
            )
        found = team.resolve_member(LEAD_NAME if to in LEAD_NAMES else to)
        if found is None:
            return None
        if found.name in (sender, own_name):
            raise AgentRequestRefused(format_team_notice("message_to_self"))
        await self._open_inboxes_of_added_members((found.name,))
        return (await self._post_message(team, sender, found.name, text, summary, fyi=fyi),)

    async def request_shutdown(self, to: str, reason: str, context: ToolContext) -> str:
        raise AgentRequestRefused(format_team_notice("lead_asks_for_shutdown"))

    async def answer_shutdown_request(
        self, request: str, reason: str, *, approve: bool, context: ToolContext
    ) -> None:
        if not context.agent.is_teammate:
            raise AgentRequestRefused(format_team_notice("member_answers_shutdown"))
        await self._apply_shutdown_answer(request, reason, approve=approve)

    async def answer_plan_approval_request(
        self, to: str, request: str, feedback: str, *, approve: bool, context: ToolContext
    ) -> AgentName:
        raise AgentRequestRefused(format_team_notice("lead_approves_plans"))

    async def stop_member(self, name: str, context: ToolContext) -> bool:
        team = await self._read_roster()
        if team.find_member(name.removesuffix(f"@{team.name}")) is not None:
            raise AgentRequestRefused(format_team_notice("lead_only"))
        return False

    async def _apply_shutdown_answer(self, request: str, reason: str, *, approve: bool) -> None:
        member = self._member
        shutdown_request = None if member is None else member.shutdown_request
        if member is None or shutdown_request is None or request not in ("", shutdown_request.request_id):
            raise AgentRequestRefused(format_team_notice("unknown_shutdown"))
        if not approve and self._has_rejected:
            raise AgentRequestRefused(format_team_notice("second_shutdown"))
        if approve:
            self._approved_request = shutdown_request
            if self._channel is not None:
                self._channel.send_message(MemberShutdownAgreedMessage(request=shutdown_request.request_id))
            self.request_member_end(format_end_reason("shut_down"))
            # This is the member's own tool call and ends with it: its model must not be called after this.
            await asyncio.Event().wait()
        self._has_rejected = True
        member.shutdown_request = None
        body = ShutdownRejectedMail(
            request_id=shutdown_request.request_id,
            sender=member.name,
            reason=reason,
            timestamp=self._mail_sender.current_timestamp,
        )
        await self._mail_sender.post_mail_body(member.name, LEAD_NAME, body)

    # For the session

    def find_agent(self, agent: AgentId) -> AgentRunner | None:
        member = self._member
        return member.agent if member is not None and member.id == agent else None

    def on_item_entered(self, item: InboxItem) -> None:
        self._mail_pump.note_mail_settled(item.id, self._membership.name)
        self.notify_changed()

    @property
    def is_working(self) -> bool:
        return self._member is not None and self._member.is_busy

    def list_members(self) -> tuple[TeammateStatusSnapshot, ...]:
        if self._last_roster is not None:
            return teammate_statuses_from_roster(self._last_roster)
        return () if self._member is None else (self._member.to_teammate_status(),)

    async def list_external_members(self) -> tuple[TeammateStatusSnapshot, ...]:
        """List the others as the roster has them now, unless the last roster, which is kept, has them."""
        if self._last_roster is not None or self._member is None:
            return ()
        team = await self._services.runtime.team_store.rosters.read_team_roster(self._membership.team)
        statuses = () if team is None else teammate_statuses_from_roster(team)
        return tuple(each for each in statuses if each.agent != self._member.id)

    async def build_lead_briefing(self) -> str:
        return ""  # the lead is in another process

    async def wait_until_idle(self) -> None:
        return

    async def close(self) -> tuple[AgentStatusSnapshot, ...]:
        return ()

    async def send_user_message(self, to: str, text: str) -> AgentMessageDeliveryReceipt | None:
        """Deliver a person's text to the member; None if it has another name."""
        member = self._member
        if member is None or to not in (member.name, member.id):
            return None
        mail_id = self._services.ids.new_uuid()
        self._authenticator.trust_typed_mail(mail_id)
        await self._mail_sender.post_text(USER_NAME, member.name, text, kind="notice", ident=mail_id)
        return AgentMessageDeliveryReceipt(to=member.id, name=member.name, how="queued")

    def interrupt_member(self, name: str) -> bool | None:
        member = self._member
        if member is None or name not in (member.name, member.id):
            return None
        return member.interrupt_turn()

    async def end_member(self, name: str, why: str) -> bool:
        if self._member is None or name not in (self._membership.name, self._member.id):
            return False
        self.request_member_end(why)
        return True

    async def _read_own_roster_entry(self) -> tuple[TeamRoster, RosterEntry]:
        team = await self._services.runtime.team_store.rosters.read_team_roster(self._membership.team)
        entry = None if team is None else team.resolve_member(self._membership.name)
        if team is None or entry is None:
            raise AgentRequestRefused(
                format_team_notice("left_team", team=self._membership.team, name=self._membership.name)
            )
        self._roster_name = entry.name
        return team, replace(entry, name=entry.inbox_name)

    async def _create_member(self, team: TeamRoster, entry: RosterEntry) -> LocalMember:
        services, name = self._services, entry.name
        question_broker = MailQuestionBroker(
            name, team.name, self._mail_sender, services.question_broker, self._send_request_withdrawal
        )
        request, board = self._membership.spawn_request, services.runtime.team_store.open_board(team.name)
        preparation = await prepare_member(
            services,
            team,
            entry,
            TeamBriefer(
                # It reads the members when it needs them. A process may have many members of a large team.
                replace(team, members=()),
                services.runtime.team_store.rosters,
                board,
                teammate_statuses_from_roster,
            ),
            mode=self._membership.mode,
            question_broker=question_broker,
            call=self._membership.call,
        )
        new_agent = preparation.request
        if request is None:
            prepared = await services.agent_factory.prepare_resumed_agent(new_agent)
        else:
            request = replace(request, name=name, kind=entry.agent_type)
            prepared = await add_subagent_start_hook_context(
                await services.agent_factory.prepare_new_agent(request, new_agent)
            )
        prepared = attach_progress_monitor(prepared, new_agent.monitor)
        # With a foreign lead, nothing limits how many members work at once.
        slot = None if self._channel is None else AgentSlot(kind=entry.agent_type, depth=1, is_running=False)
        member = LocalMember(
            services,
            prepared,
            slot,
            preparation=preparation,
            mail_sender=self._mail_sender,
            board=board,
            observer=self,
        )
        if request is None:
            lead_mail_ids = await self._mail_sender.list_received_mail_ids(LEAD_NAME)
            await member.continue_after_restart(
                await board.reclaim_owner_tasks(name),
                lead_mail_ids,
                await find_unanswered_shutdown_request(services, self._authenticator, entry),
            )
            if member.state == "idle" and entry.is_active:
                # Its earlier process died before it wrote this.
                self.set_roster_activity(name, active=False)
        return member

    def _send_request_withdrawal(self, request: str) -> None:
        if self._channel is not None:
            self._channel.send_message(MailRequestWithdrawnMessage(request=request))

    async def _listen_to_lead(self, channel: LeadChannel) -> None:
        await channel.listen(self._handle_lead_command)
        self.request_member_end(format_end_reason("lead_gone"), resumable=True)

    def _handle_lead_command(self, message: LeadCommandMessage) -> None:
        member = self._member
        assert member is not None
        assert self._task_group is not None
        match message:
            case MemberPingMessage(number=number):
                self._task_group.create_task(self._send_pong(member, number))
            case SessionPermissionChangedMessage(update=update):
                self._services.permissions.apply_session_permission(update)
            case MemberInterruptRequestedMessage():
                member.interrupt_turn()
            case MemberStopRequestedMessage(why=reason, stays=resumable):
                self.request_member_end(reason, resumable=resumable)

    async def _send_pong(self, member: LocalMember, number: int) -> None:
        busy = (
            self._has_work(member)
            or self._services.agents.has_running_agents
            or await self._mail_pump.has_undelivered_mail()
        )
        if busy:
            # The lead waits for the next status, even if it is the one that it has.
            self._last_status = None
        if self._channel is not None:
            self._channel.send_message(MemberPongMessage(number=number, busy=busy))

    def _has_work(self, member: LocalMember) -> bool:
        is_working = member.state in ("running", "created") or member.is_claiming
        has_pending_input = (
            bool(self._services.runtime.inbox.queue.count_waking_items(member.id))
            or self._mail_verifier.open_questions > 0
            or self._has_pending_hooks()
        )
        return is_working or has_pending_input

    async def _clean_up_member(self, member: LocalMember) -> RetainedWorktreeWork | None:
        work: RetainedWorktreeWork | None = None
        try:
            try:
                await self._services.stop_agents_of(member.id, format_end_reason("member_ended"))
            finally:
                work = await member.clean_up()
        except ShoalError as error:
            self._services.note(f"{member.name} could not be cleaned up completely: {error}")
        return work

    async def _report_member_end(
        self, member: LocalMember, outcome: AgentRunOutcome, work: RetainedWorktreeWork | None
    ) -> None:
        if self._channel is not None:
            end_message = MemberLeftMessage(
                status=outcome.status,
                text=outcome.text,
                detail=outcome.detail,
                work=work,
                passing=outcome.is_passing,
            )
            self._channel.send_message(end_message)
        elif self._approved_request is not None:
            _, entry = await self._read_own_roster_entry()
            pane, backend = entry.tmux_pane_id, entry.backend_type or ""
            body = build_shutdown_approval(
                self._approved_request, member.name, pane, backend, self._mail_sender.current_timestamp
            )
            await self._mail_sender.post_mail_body(member.name, LEAD_NAME, body)

    async def _read_roster(self) -> TeamRoster:
        team = await self._services.runtime.team_store.rosters.read_team_roster(self._membership.team)
        if team is None:
            raise AgentRequestRefused(format_team_notice("deleted_team", team=self._membership.team))
        if self._channel is None:
            self._last_roster = team
        return team

    async def _open_inboxes_of_added_members(self, recipients: Sequence[AgentName]) -> None:
        """Open the inboxes of members that other programs run; these may not have created them."""
        team_store, team = self._services.runtime.team_store, self._membership.team
        for name in set(recipients) & await team_store.rosters.list_members_of_other_programs(team):
            with suppress(InvalidName):  # the post reports it
                await team_store.open_mailboxes(team).open_inbox(map_to_inbox_name(name), foreign=True)

    async def _post_message(
        self, team: TeamRoster, sender: AgentName, to: AgentName, text: str, summary: str, *, fyi: bool
    ) -> TeamMessagePostReceipt:
        receipt = await self._mail_sender.post_text(sender, to, text, summary=summary, fyi=fyi)
        if self._member is not None and to != LEAD_NAME:
            self._member.on_message_sent(format_peer_message_summary(to, summary))
        entry = team.find_member(to)
        color = None if entry is None else entry.color
        return TeamMessagePostReceipt(sender=sender, to=to, color=color, standing=receipt.standing)
