"""Creates the agent supervisor of a session, its services, and the tools that use it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.app.agents.agent_factory import AgentFactory
from shoal.app.agents.team_factory import create_teams_or_member_host
from shoal.app.run_access.run_handle import RunHandle, list_all_live_runs, send_control_command
from shoal.core.agents.identity import AgentIdentity
from shoal.core.agents.subagents import (
    OTHER_MACHINE_PREFIX,
    OTHER_SESSION_PREFIX,
    AgentMessageDeliveryReceipt,
)
from shoal.core.conversation.tools import Tool
from shoal.core.errors import AgentRequestRefused, ShoalError
from shoal.core.ids import LEAD_ID
from shoal.runs.agent_supervisor import AgentSupervisor
from shoal.runs.spawn_policy import SpawnPolicy
from shoal.team.members.member_host import MemberHost
from shoal.team.session_teams import SessionTeams
from shoal.tools.agent_list import format_agent_list
from shoal.tools.agent_tools import AgentToolOptions, build_agent_tools
from shoal.tools.background_tools import build_background_tools
from shoal.tools.team_tools import build_team_tools
from shoal.wire.control_codec import RelayAgentMessageControlCommand

if TYPE_CHECKING:
    from shoal.app.config.session_config import SessionConfig
    from shoal.app.runtime.runtime import Runtime

_ID_CHARS = 8
_MAX_LISTED = 10


class CrossSessionMessenger:
    def __init__(self, home: Path) -> None:
        self._home = home

    async def send(
        self, to: str, text: str, summary: str, sender: AgentIdentity
    ) -> AgentMessageDeliveryReceipt:
        """Send to another session's lead. Raises `AgentRequestRefused`, naming the live sessions."""
        if to.startswith(OTHER_MACHINE_PREFIX):
            raise AgentRequestRefused(
                "bridge: addresses sessions on other machines, but no bridge is configured. Use "
                "uds:SESSION for a session on this machine."
            )
        run = self._find_recipient_session(to.removeprefix(OTHER_SESSION_PREFIX), sender)
        relay = RelayAgentMessageControlCommand(
            sender=f"{sender.name}@{sender.session[:_ID_CHARS]}", text=text, summary=summary
        )
        try:
            await send_control_command(run, relay)
        except ShoalError as error:
            raise AgentRequestRefused(f"Cannot reach the session {run.session}: {error}") from error
        return AgentMessageDeliveryReceipt(
            to=LEAD_ID, name=f"The lead of session {run.session}", how="queued"
        )

    def _find_recipient_session(self, name: str, sender: AgentIdentity) -> RunHandle:
        if name and sender.session.startswith(name):
            raise AgentRequestRefused("That is your own session. Send the message to `lead`.")
        live = [run for run in list_all_live_runs(self._home) if run.session != sender.session]
        found = [run for run in live if name and run.session.startswith(name)]
        if len(found) == 1:
            return found[0]
        reason = (
            f"{len(found)} live sessions start with {name!r}"
            if found
            else f"there is no live session {name!r}"
        )
        listed = ", ".join(run.session for run in live[:_MAX_LISTED]) or "no other"
        raise AgentRequestRefused(f"The message was not sent: {reason}. Live sessions: {listed}.")


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
