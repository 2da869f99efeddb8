"""Routes notices of background hooks to the right agent of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.app.hooks.agent_hooks import HookRegistry
from shoal.core.hooks import BackgroundHookNotice
from shoal.core.ids import LEAD_ID, AgentId
from shoal.runs.agent_supervisor import AgentSupervisor
from shoal.team.member_host import MemberHost
from shoal.team.session_teams import SessionTeams

if TYPE_CHECKING:
    from shoal.app.session.session import Session


def route_hook_notices(
    hooks: HookRegistry, supervisor: AgentSupervisor, teams: SessionTeams | MemberHost, session: Session
) -> None:
    def find_notice_recipient(notice: BackgroundHookNotice) -> AgentId | None:
        if notice.event == "SubagentStart" and not supervisor.has_agent_started(notice.agent):
            # It may not have started yet: the notice waits in its queue.
            return notice.agent
        recipient = supervisor.find_inbox_item_recipient(notice.agent)
        # A teammate's process has a lead only nominally.
        return None if recipient == LEAD_ID and isinstance(teams, MemberHost) else recipient

    def is_agent_idle(agent: AgentId) -> bool:
        if agent == LEAD_ID:
            return not session.is_busy
        return any(member.agent == agent and member.state == "idle" for member in teams.list_members())

    assert hooks.notifier is not None
    hooks.notifier.find_recipient, hooks.notifier.is_idle = find_notice_recipient, is_agent_idle
    background = hooks.runner.background
    background.on_change = teams.notify_changed
    if isinstance(teams, MemberHost):
        teams.has_pending_hooks = lambda: background.has_waking_hooks
