"""Results and snapshots of members for the lead, the journal and people."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.agents.subagents import (
    AgentEndStatus,
    AgentResult,
    AgentStatusSnapshot,
    AgentWorkEvidence,
    RetainedWorktreeWork,
)
from shoal.core.budgets.usage import Usage
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock
from shoal.core.core_texts import format_end_reason
from shoal.core.events import AgentEnded, AgentStarted
from shoal.core.ids import AgentId
from shoal.core.names import AgentName
from shoal.core.teams.mail_bodies import ShutdownApprovedMail, ShutdownRequestMail, TeammateTerminatedNotice
from shoal.core.teams.roster import BackendType
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.members.member_table import MemberHandle
from shoal.team.team_services import TeamServices
from shoal.wire.notification_text import format_retained_worktree_work


def resolve_member_end_status(handle: MemberHandle, outcome: AgentRunOutcome) -> AgentEndStatus:
    return "completed" if handle.approved_request is not None else outcome.status


def format_member_termination(
    handle: MemberHandle, outcome: AgentRunOutcome, work: RetainedWorktreeWork | None
) -> str:
    member = handle.member
    headline = TeammateTerminatedNotice(
        task=member.id,
        kind=member.agent_started_event.kind,
        status=resolve_member_end_status(handle, outcome),
    ).text
    text = f"{headline}: {outcome.detail}" if outcome.detail else headline
    return text if work is None else f"{text}\n{format_retained_worktree_work(work)}"


def build_member_result(
    services: TeamServices, handle: MemberHandle, outcome: AgentRunOutcome
) -> AgentResult:
    member, started, monitor = handle.member, handle.member.agent_started_event, handle.member.monitor
    return AgentResult(
        id=services.ids.new_short_id(),
        agent=member.id,
        status=resolve_member_end_status(handle, outcome),
        kind=started.kind,
        description=started.description,
        report_to=services.lead_id,
        call=started.call,
        name=member.name,
        background=True,
        text=outcome.text[:1000],
        detail=outcome.detail,
        duration_ms=round((services.runtime.clock.monotonic() - handle.started_at) * 1000),
        output="" if monitor is None else monitor.output,
        usage=Usage() if monitor is None else monitor.usage,
        requests=0 if monitor is None else monitor.requests,
        evidence=AgentWorkEvidence() if monitor is None else monitor.collect_evidence(),
    )


def build_member_end_notice(to: AgentId, ident: str, notice: str) -> InboxItem:
    return InboxItem(id=ident, to=to, content=(TextBlock(text=notice),), by="runtime")


class LostMember(Struct, frozen=True, kw_only=True):
    """A former member whose end was never announced."""

    agent: AgentId
    name: str
    kind: str
    why: str
    leaves_roster: bool = False
    """True if it is still in the roster and must be removed."""
    description: str = ""
    call: str = ""

    @classmethod
    def from_agent_started_event(cls, started: AgentStarted) -> LostMember:
        why = (
            format_end_reason("lost_with_lead_in_worktree", path=started.cwd)
            if started.isolation
            else format_end_reason("lost_with_lead")
        )
        return cls(
            agent=started.agent,
            name=started.name,
            kind=started.kind,
            why=why,
            description=started.description,
            call=started.call,
        )

    def to_agent_ended_event(self, result_id: str, to: AgentId) -> AgentEnded:
        headline = TeammateTerminatedNotice(task=self.agent, kind=self.kind, status="killed").text
        result = AgentResult(
            id=result_id,
            agent=self.agent,
            status="killed",
            kind=self.kind,
            description=self.description,
            report_to=to,
            call=self.call,
            name=self.name,
            background=True,
            detail=self.why,
        )
        return AgentEnded(agent=self.agent, completion=result, notice=f"{headline}: {self.why}")


def build_member_snapshot(services: TeamServices, handle: MemberHandle) -> AgentStatusSnapshot:
    started, monitor = handle.member.agent_started_event, handle.member.monitor
    return AgentStatusSnapshot(
        agent=handle.member.id,
        kind=started.kind,
        name=handle.member.name,
        description=started.description,
        status="running",
        parent=services.lead_id,
        background=True,
        tool_calls=0 if monitor is None else monitor.tool_call_count,
        tokens=0 if monitor is None else monitor.usage.total_tokens,
        seconds=services.runtime.clock.monotonic() - handle.started_at,
    )


def build_shutdown_approval(
    request: ShutdownRequestMail, name: AgentName, pane: str, backend: str, now: str
) -> ShutdownApprovedMail:
    """Build the shutdown approval in the member's name."""
    return ShutdownApprovedMail(
        request_id=request.request_id, sender=name, timestamp=now, pane_id=pane, backend_type=backend
    )


def infer_backend_from_pane(pane: str) -> BackendType:
    match pane:
        case "in-process":
            return "in-process"
        case "process":
            return "process"
        case "ray":
            return "ray"
        case _ if pane.startswith("%"):
            return "tmux"
        case _:
            return "iterm2"
