"""Placeholder of a member that is down: it failed unexpectedly, stays in the team and is started again."""

from __future__ import annotations

from collections.abc import Container

from shoal.agent.agent_runner import AgentRunner
from shoal.core.agents.subagents import ResolvedAgentSettings, RetainedWorktreeWork
from shoal.core.events import AgentStarted
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.names import AgentName
from shoal.core.permissions.permission_changes import PermissionSuggestion
from shoal.core.teams.mail_bodies import ShutdownRequestMail
from shoal.core.teams.roster import RosterEntry
from shoal.core.teams.team_operations import MemberState, TeammateStatusSnapshot
from shoal.runs.progress_monitor import ProgressMonitor
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.mail.mail_authentication import InboundMail
from shoal.team.members.member_protocol import Member


class DownMember:
    """Takes the place of a member in its team until it is started again."""

    agent: AgentRunner | None = None
    delivered: Container[str] = ()
    is_foreign = reads_own_mail = False
    death_cause = ""

    def __init__(
        self,
        entry: RosterEntry,
        cause: str,
        failed_member: Member | None = None,
        *,
        is_start_repeatable: bool = True,
    ) -> None:
        """`failed_member` is None if the member could not be resumed."""
        self.cause = cause
        self.is_start_repeatable = is_start_repeatable
        """True if the team waits for the next attempts to start it; False if they will hardly succeed."""
        self.is_restart_expected = True
        """True while the team waits for the restart; False once its first attempts have failed."""
        self.name: AgentName = entry.name
        self.state: MemberState = "down"
        self.shutdown_request: ShutdownRequestMail | None = None
        self.stop_reason = ""
        self.resumable = self.has_finished_work = False
        self.monitor: ProgressMonitor | None = None
        self.pane = entry.tmux_pane_id
        self._entry = entry
        self.agent_started_event = build_started_event_from_roster(entry)
        self.resolved = build_resolved_settings_from_roster(entry)
        if failed_member is not None:
            self.shutdown_request = failed_member.shutdown_request
            self.monitor = failed_member.monitor
            self.pane = failed_member.pane
            self.agent_started_event = failed_member.agent_started_event
            self.resolved = failed_member.resolved

    @property
    def id(self) -> AgentId:
        return AgentId(self._entry.agent_id)

    @property
    def is_busy(self) -> bool:
        return self.is_restart_expected

    @property
    def can_claim_task(self) -> bool:
        return False

    async def is_confirmed_idle(self) -> bool:
        return True

    def to_teammate_status(self) -> TeammateStatusSnapshot:
        return TeammateStatusSnapshot(
            agent=self.id,
            name=self.name,
            kind=self.agent_started_event.kind,
            state=self.state,
            color=self._entry.color,
            model=self.resolved.model,
            pane=self.pane,
            down_cause=self.cause,
        )

    def is_waiting_for_answer(self, request: str, mail: str) -> bool:
        return False

    async def run(self) -> AgentRunOutcome:
        return AgentRunOutcome(status="failed", text="", detail=self.cause, is_passing=True)

    async def deliver_mail(self, received: InboundMail) -> bool:
        """Leave the mail unread for the restarted member."""
        return False

    def on_message_sent(self, summary: str) -> None:
        return

    def on_foreign_mail(self, *, is_idle: bool) -> None:
        return

    def send_permission_update(self, update: PermissionSuggestion) -> None:
        return

    def create_placeholder(self, entry: RosterEntry, cause: str) -> DownMember:
        return self

    def expect_restart(self) -> bool:
        self.is_restart_expected = True
        return True

    def interrupt_turn(self) -> bool:
        return False

    async def discard(self) -> None:
        return

    async def clean_up(self) -> RetainedWorktreeWork | None:
        return None


def build_started_event_from_roster(entry: RosterEntry, description: str = "") -> AgentStarted:
    """Build the start event of a member whose process reported none."""
    return AgentStarted(
        agent=AgentId(entry.agent_id),
        kind=entry.agent_type,
        name=entry.name,
        description=description,
        parent=LEAD_ID,
        call="",
        depth=1,
        model=entry.model,
        mode="",
        background=True,
        cwd=entry.cwd,
        color=entry.color,
        team=entry.team,
    )


def build_resolved_settings_from_roster(entry: RosterEntry) -> ResolvedAgentSettings:
    return ResolvedAgentSettings(
        kind=entry.agent_type,
        model=entry.model,
        mode="",
        tools=(),
        cwd=entry.cwd,
        source="another program",
        start_tokens=0,
    )
