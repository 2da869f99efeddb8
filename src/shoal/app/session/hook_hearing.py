"""Routes notices of background hooks to the right agent of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.app.hooks.hooking import SessionHooks
from shoal.core.hooks import HookWord
from shoal.core.ids import LEAD, AgentId
from shoal.runs.crew import AgentCrew
from shoal.team.outpost import Outpost
from shoal.team.teams import SessionTeams

if TYPE_CHECKING:
    from shoal.app.session.session import Session


def let_hear(hooks: SessionHooks, crew: AgentCrew, teams: SessionTeams | Outpost, session: Session) -> None:
    def listener(word: HookWord) -> AgentId | None:
        if word.event == "SubagentStart" and not crew.has_started(word.agent):
            # It may not have started yet: the notice waits in its queue.
            return word.agent
        heir = crew.heir(word.agent)
        # A teammate's process has a lead only nominally.
        return None if heir == LEAD and isinstance(teams, Outpost) else heir

    def rests(agent: AgentId) -> bool:
        if agent == LEAD:
            return not session.busy
        return any(mate.agent == agent and mate.state == "idle" for mate in teams.members())

    assert hooks.news is not None
    hooks.news.listener, hooks.news.rests = listener, rests
    background = hooks.runner.background
    background.changed = teams.changed
    if isinstance(teams, Outpost):
        teams.awaits_hooks = lambda: background.awaited
