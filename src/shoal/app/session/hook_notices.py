"""Routes notices of background hooks to the right agent of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.hooks import BackgroundHookNotice
from shoal.core.ids import LEAD_ID, AgentId
from shoal.team.member_host import MemberHost

if TYPE_CHECKING:
    from shoal.app.session.session import Session


def route_hook_notices(session: Session) -> None:
    """Route the notices of background hooks to agents of the session, or to those that replace them."""
    hooks, supervisor, teams = session.runtime.hooks, session.supervisor, session.teams

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
