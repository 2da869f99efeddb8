"""Creates the teams of a session and their services."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from shoal.agent.agent_runner import AgentRunner
from shoal.app.agent_permissions import get_permission_engine
from shoal.app.agents.backend_launcher import BackendMemberLauncher
from shoal.app.teams.team_store import TeamStore
from shoal.core.errors import ShoalError, StateFileError
from shoal.core.events import NoteAdded
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.permission_changes import PermissionSuggestion
from shoal.runs.agent_supervisor import AgentSupervisor
from shoal.runs.prepared_agent import AgentPreparer
from shoal.runs.running_agents import RunningAgents
from shoal.team.members.member_host import MemberHost
from shoal.team.nested_teams import NestedTeams
from shoal.team.session_teams import SessionTeams
from shoal.team.team_services import TeamServices

if TYPE_CHECKING:
    from shoal.app.runtime.runtime import Runtime


def create_teams_or_member_host(
    runtime: Runtime, supervisor: AgentSupervisor, agent_factory: AgentPreparer
) -> SessionTeams | MemberHost:
    """Create the teams that the session leads or, in a teammate's process, the member host."""
    settings, membership = runtime.settings.own, runtime.options.membership
    running_agents = runtime.agents.running

    def get_lead() -> AgentRunner:
        return running_agents.lead

    team_services = TeamServices(
        store=runtime.team_store,
        agent_factory=agent_factory,
        queue=runtime.inbox.queue,
        budget=runtime.budget,
        clock=runtime.clock,
        ids=runtime.agents.ids.derive_generator(),
        emit=runtime.events.emit_event,
        note=partial(_emit_lead_note, runtime),
        lead=get_lead,
        mode=lambda: get_permission_engine(running_agents.lead).mode,
        approver=lambda: settings.plan_approver,
        default_kind=supervisor.policy.default_kind,
        creates_implicit_teams=lambda: settings.implicit_team and "TeamCreate" in running_agents.lead.tools,
        grace=settings.shutdown_grace,
        stall_after=settings.stall_after,
        report_tokens=settings.report_tokens,
        trust_unsigned=settings.trust_unsigned_mail,
        stop_agents_of=supervisor.stop_child_agents,
        announce_missed_results=supervisor.announce_missed_results,
        form="in-process" if membership is None else "process",
        launcher=BackendMemberLauncher(runtime, get_lead),
        on_journal_line=runtime.events.publish_remote_journal_line,
        apply_permission_update=partial(_apply_permission_to_lead, running_agents),
        max_restarts=settings.teammate_restarts,
    )
    teams: SessionTeams | MemberHost
    if membership is None:
        teams = _create_led_teams(team_services, settings.team_depth, runtime.team_store)
    else:
        teams = MemberHost(team_services, membership, lambda: supervisor.has_running_agents)
    running_agents.add_source(teams)
    return teams


def _emit_lead_note(runtime: Runtime, text: str) -> None:
    with suppress(StateFileError):  # a full disk must not end the caller over a note
        runtime.events.emit_event(NoteAdded(agent=LEAD_ID, text=text))


def _apply_permission_to_lead(running_agents: RunningAgents, update: PermissionSuggestion) -> None:
    with suppress(ShoalError):  # the person who answered has seen the error
        get_permission_engine(running_agents.lead).answers.add_answer(update)


def _create_led_teams(services: TeamServices, depth: int, team_store: TeamStore) -> SessionTeams:
    if depth == 1:
        return SessionTeams(services)
    teams = NestedTeams(services, depth, lambda agent: get_permission_engine(agent).mode)
    team_store.resolve_lead = teams.find_lead_identity
    return teams
