"""Creates the agent supervisor of a session, its services, and the tools that use it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.app.agents.agent_factory import AgentFactory
from shoal.app.agents.team_factory import create_teams_or_member_host
from shoal.app.run_access.session_messenger import CrossSessionMessenger
from shoal.core.tools import Tool
from shoal.runs.agent_supervisor import AgentSupervisor
from shoal.runs.spawn_policy import SpawnPolicy
from shoal.team.member_host import MemberHost
from shoal.team.session_teams import SessionTeams
from shoal.tools.agent_list import format_agent_list
from shoal.tools.agent_tools import AgentToolOptions, build_agent_tools
from shoal.tools.background_tools import build_background_tools
from shoal.tools.team_tools import build_team_tools

if TYPE_CHECKING:
    from shoal.app.config.session_config import SessionConfig
    from shoal.app.runtime.runtime import Runtime


def create_supervisor_and_teams(runtime: Runtime) -> tuple[AgentSupervisor, SessionTeams | MemberHost]:
    """Create the supervisor and the teams; their tools are added to the tools of the runtime."""
    agent_factory = AgentFactory(runtime)
    supervisor = AgentSupervisor(
        factory=agent_factory,
        queue=runtime.queue,
        policy=_build_spawn_policy(runtime.config),
        budget=runtime.budget,
        clock=runtime.clock,
        ids=runtime.agent_ids.derive_generator(),
        emit=runtime.events.emit_event,
    )
    runtime.plan_registry.supervisor = runtime.knowledge.invoker.supervisor = supervisor
    runtime.plan_registry.on_approved = agent_factory.transcripts.save_approved_plan_mode
    teams = create_teams_or_member_host(runtime, supervisor, agent_factory)
    agent_tools = (
        *_build_agent_tools(runtime.config, supervisor, teams),
        *build_team_tools(teams),
        *build_background_tools(supervisor, runtime.shells, teams),
        runtime.knowledge.create_skill_tool(),
    )
    runtime.tools.update({tool.schema.name: tool for tool in agent_tools})
    return supervisor, teams


def _build_spawn_policy(config: SessionConfig) -> SpawnPolicy:
    settings, attended = config.settings.own, config.options.attended
    # No forks unattended, where they would multiply unseen work, nor for a coordinator.
    forks = config.settings.are_forks_enabled and attended and not config.coordinator
    return SpawnPolicy(
        background=settings.background_agents,
        always_background=forks or config.coordinator or config.assistant,
        model_by_call=not config.coordinator,
        fork_by_default=forks,
        auto_background=settings.auto_background,
        report_tokens=settings.report_tokens,
        # Unattended, nobody can be asked: only caps and budgets apply.
        approval_threshold=settings.fan_out_preview if attended else None,
    )


def _build_agent_tools(
    config: SessionConfig, supervisor: AgentSupervisor, teams: SessionTeams | MemberHost
) -> Iterable[Tool]:
    policy = supervisor.policy
    options = AgentToolOptions(
        background=policy.background and not policy.always_background,
        model=policy.model_by_call,
        forks=policy.fork_by_default,
        cwd=config.settings.own.agent_cwd,
        teams=True,
    )
    send_to_session = CrossSessionMessenger(config.settings.home).send
    return build_agent_tools(
        supervisor,
        teams,
        listing=format_agent_list(config.definitions.all()),
        options=options,
        send_to_session=send_to_session,
    )
