"""Creates the teams of a session and their services."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.agent.agent_runner import AgentRunner
from shoal.app.agent_permissions import get_permission_engine
from shoal.app.agents.backend_launcher import BackendMemberLauncher
from shoal.app.teams.team_store import TeamStore
from shoal.core.errors import ShoalError
from shoal.core.permissions.permission_changes import PermissionMode, PermissionSuggestion
from shoal.runs.agent_supervisor import AgentSupervisor
from shoal.runs.prepared_agent import AgentPreparer
from shoal.team.members.member_host import MemberHost
from shoal.team.nested_teams import NestedTeams
from shoal.team.session_teams import SessionTeams
from shoal.team.team_services import TeamPolicy, TeamServices

if TYPE_CHECKING:
    from shoal.app.runtime.runtime import Runtime


def create_teams_or_member_host(
    runtime: Runtime, supervisor: AgentSupervisor, agent_factory: AgentPreparer
) -> SessionTeams | MemberHost:
    """Create the teams that the session leads or, in a teammate's process, the member host."""
    settings, membership = runtime.settings.own, runtime.options.membership
    team_services = TeamServices(
        policy=TeamPolicy(
            default_kind=supervisor.policy.default_kind,
            plan_approver=settings.plan_approver,
            implicit_teams=settings.implicit_team,
            grace=settings.shutdown_grace,
            stall_after=settings.stall_after,
            report_tokens=settings.report_tokens,
            trust_unsigned=settings.trust_unsigned_mail,
            max_restarts=settings.teammate_restarts,
            form="in-process" if membership is None else "process",
        ),
        store=runtime.team_store,
        agent_factory=agent_factory,
        queue=runtime.queue,
        budget=runtime.budget,
        clock=runtime.clock,
        ids=runtime.agent_ids.derive_generator(),
        events=runtime.events,
        lead=supervisor.get_lead,
        permissions=SessionTeamPermissions(supervisor),
        agents=supervisor,
        launcher=BackendMemberLauncher(runtime, supervisor.get_lead),
    )
    teams: SessionTeams | MemberHost
    if membership is None:
        teams = _create_led_teams(team_services, settings.team_depth, runtime.team_store)
    else:
        teams = MemberHost(
            team_services,
            membership,
            has_working_agents=lambda: supervisor.has_running_agents,
            has_pending_hooks=lambda: runtime.hooks.runner.background.has_waking_hooks,
        )
    supervisor.find_teammate = teams.find_agent
    return teams


class SessionTeamPermissions:
    """Permissions of the lead and its teammates; permissions of the session are the lead's."""

    def __init__(self, supervisor: AgentSupervisor) -> None:
        self._supervisor = supervisor

    def get_mode(self, agent: AgentRunner) -> PermissionMode:
        return get_permission_engine(agent).mode

    def apply_session_permission(self, update: PermissionSuggestion) -> None:
        with suppress(ShoalError):  # the person who answered has seen the error
            get_permission_engine(self._supervisor.get_lead()).answers.add_answer(update)


def _create_led_teams(services: TeamServices, depth: int, team_store: TeamStore) -> SessionTeams:
    if depth == 1:
        return SessionTeams(services)
    teams = NestedTeams(services, depth)
    team_store.resolve_lead = teams.find_lead_identity
    return teams
