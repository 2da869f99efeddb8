"""Creates the agent supervisor of a session, its services, and the tools that use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import cache, lru_cache, partial
from pathlib import Path

from msgspec import Struct

from shoal.agent.agent_runner import AgentRunner, LoopLimits
from shoal.app.agent_permissions import get_permission_engine
from shoal.app.agents.acceptance import TaskAcceptanceCommandRunner
from shoal.app.agents.agent_factory import AgentFactory
from shoal.app.agents.agent_factory_services import AgentFactoryServices
from shoal.app.agents.agent_memory import resolve_agent_memory
from shoal.app.agents.agent_transcripts import AgentTranscriptStore
from shoal.app.agents.backend_launcher import MemberLaunchServices
from shoal.app.agents.spawn_requests import FORK_DEFINITION, format_qualified_model_name
from shoal.app.agents.team_factory import create_teams_or_member_host
from shoal.app.config.system_prompt import build_system_prompt
from shoal.app.definitions.agent_catalog import AgentCatalog
from shoal.app.hooks.agent_hooks import HookRegistry
from shoal.app.isolation.agent_workspace import WorkspaceAllocator
from shoal.app.mcp.mcp_servers import SessionMcpServerManager
from shoal.app.models.child_model import choose_subagent_model
from shoal.app.options import Options
from shoal.app.run_access.session_messenger import CrossSessionMessenger
from shoal.app.settings.settings import Settings
from shoal.app.skills.knowledge import SkillsAndInstructions
from shoal.app.teams.team_store import TeamStore
from shoal.core.agent_definitions import AgentDefinition
from shoal.core.agents import SpawnRequest
from shoal.core.budget import Budget
from shoal.core.events import Event, JournaledEvent, PermissionModeChanged
from shoal.core.identity import AgentIdentity
from shoal.core.ids import AgentId, IdGenerator
from shoal.core.permissions import PermissionMode
from shoal.core.ports import Model
from shoal.core.tools import Tool
from shoal.core.usage import ModelCard
from shoal.policy.permission_engine import PermissionEngine
from shoal.runs.agent_supervisor import AgentSupervisor
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.runs.spawn_policy import SpawnPolicy
from shoal.stores.files.home_paths import write_file_atomically
from shoal.team.member_host import MemberHost
from shoal.team.session_teams import SessionTeams
from shoal.tools.agent_list import format_agent_list
from shoal.tools.agent_tools import AgentToolOptions, build_agent_tools
from shoal.tools.background_tools import build_background_tools
from shoal.tools.plan_tools import AgentPlan
from shoal.tools.schedule_tools import SCHEDULE_TOOLS
from shoal.tools.shell_supervisor import BackgroundShellSupervisor
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT
from shoal.tools.team_tools import TEAM_TOOLS, build_team_tools


class SubagentAndTeamServices(Struct, frozen=True, kw_only=True):
    """Session services that the agent supervisor and the team use."""

    options: Options
    settings: Settings
    definitions: AgentCatalog
    subagents: Path | None
    directory: Path
    """Directory of the run."""
    loop_limits: LoopLimits
    budget: Budget
    queue: SharedInboxQueue
    ids: IdGenerator
    choose_model: Callable[[str], Awaitable[Model]]
    publish_event: Callable[[Event], Awaitable[None]]
    emit: Callable[[JournaledEvent], None]
    team_store: TeamStore
    workspace_allocator: WorkspaceAllocator
    hooks: HookRegistry
    plan_registry: AgentPlanRegistry
    acceptance: TaskAcceptanceCommandRunner
    launch_services: MemberLaunchServices
    knowledge: SkillsAndInstructions
    servers: SessionMcpServerManager
    coordinator: bool = False
    assistant: bool = False


def create_supervisor_and_teams(
    services: SubagentAndTeamServices, tools: dict[str, Tool], shells: BackgroundShellSupervisor
) -> tuple[AgentSupervisor, SessionTeams | MemberHost]:
    """Create the supervisor and the teams; their tools are added to `tools`."""
    factory_services = _build_factory_services(services, tools, shells)
    agent_factory = AgentFactory(factory_services)
    supervisor = AgentSupervisor(
        factory=agent_factory,
        queue=services.queue,
        policy=_build_spawn_policy(services),
        budget=services.budget,
        clock=services.options.clock,
        ids=services.ids.derive_generator(),
        emit=services.emit,
    )
    services.plan_registry.supervisor = services.knowledge.invoker.supervisor = supervisor
    services.plan_registry.on_approved = factory_services.transcripts.save_approved_plan_mode
    services.plan_registry.emit = services.emit
    teams = create_teams_or_member_host(services, supervisor, agent_factory)
    agent_tools = (
        *_build_agent_tools(services, supervisor, teams),
        *build_team_tools(teams),
        *build_background_tools(supervisor, shells, teams),
        services.knowledge.create_skill_tool(),
    )
    tools |= {tool.schema.name: tool for tool in agent_tools}
    return supervisor, teams


def _build_factory_services(
    services: SubagentAndTeamServices, tools: dict[str, Tool], shells: BackgroundShellSupervisor
) -> AgentFactoryServices:
    options, settings = services.options, services.settings
    return AgentFactoryServices(
        transcripts=AgentTranscriptStore(
            services.subagents, durable=settings.own.durable, clock=options.clock, ids=services.ids
        ),
        output_directory=services.directory / "tasks",
        find_definition=services.definitions.find,
        resolve_model=_create_agent_model_resolver(services),
        build_system_prompt=cache(_create_system_prompt_builder(services)),
        preload_skills=services.knowledge.preload_agent_skills,
        resolve_memory=partial(
            resolve_agent_memory, home=settings.home, project=services.launch_services.cwd
        ),
        tools=tools,
        open_tools=services.servers.prepare_agent_tools,
        # An agent ends with its job, so a schedule of it would have no recipient.
        lead_only_tools=(*SCHEDULE_TOOLS, *TEAM_TOOLS, STRUCTURED_OUTPUT),
        workspace_allocator=services.workspace_allocator,
        hooks=services.hooks,
        loop_limits=services.loop_limits,
        budget=services.budget,
        queue=services.queue,
        run_acceptance=services.acceptance.run_command,
        clean_up_agent=_create_agent_cleanup(services, shells),
        publish_event=services.publish_event,
        clock=options.clock,
        ids=services.ids,
    )


def _build_spawn_policy(services: SubagentAndTeamServices) -> SpawnPolicy:
    settings, attended = services.settings.own, services.options.attended
    # No forks unattended, where they would multiply unseen work, nor for a coordinator.
    forks = services.settings.are_forks_enabled and attended and not services.coordinator
    return SpawnPolicy(
        background=settings.background_agents,
        always_background=forks or services.coordinator or services.assistant,
        model_by_call=not services.coordinator,
        fork_by_default=forks,
        auto_background=settings.auto_background,
        report_tokens=settings.report_tokens,
        # Unattended, nobody can be asked: only caps and budgets apply.
        approval_threshold=settings.fan_out_preview if attended else None,
    )


def _build_agent_tools(
    services: SubagentAndTeamServices, supervisor: AgentSupervisor, teams: SessionTeams | MemberHost
) -> Iterable[Tool]:
    policy = supervisor.policy
    options = AgentToolOptions(
        background=policy.background and not policy.always_background,
        model=policy.model_by_call,
        forks=policy.fork_by_default,
        cwd=services.settings.own.agent_cwd,
        teams=True,
    )
    send_to_session = CrossSessionMessenger(services.settings.home).send
    return build_agent_tools(
        supervisor,
        teams,
        listing=format_agent_list(services.definitions.all()),
        options=options,
        send_to_session=send_to_session,
    )


def _create_system_prompt_builder(services: SubagentAndTeamServices) -> Callable[[str, Path, bool], str]:
    def build_system_prompt_for_agent(prompt: str, cwd: Path, with_instructions: bool) -> str:  # noqa: FBT001 - the port's shape
        instructions = services.knowledge.instructions.text if with_instructions else ""
        return build_system_prompt(
            cwd=cwd, clock=services.options.clock, replacement=prompt, instructions=instructions
        )

    return build_system_prompt_for_agent


class AgentPlanRegistry:
    """Planning state of each agent of a session; that of the lead is never dropped."""

    def __init__(self, create_planning: Callable[[PermissionEngine], AgentPlan]) -> None:
        self._create_plan = create_planning
        self._plans: dict[AgentId, AgentPlan] = {}
        self.supervisor: AgentSupervisor | None = None
        self.on_approved: Callable[[AgentId, PermissionMode], None] = lambda _, __: None
        """Called with the mode in which an agent other than the lead executes its plan."""
        self.emit: Callable[[JournaledEvent], None] = lambda _: None

    def get_working_agent(self, agent: AgentId) -> AgentRunner:
        """Return a working agent."""
        assert self.supervisor is not None
        return self.supervisor.require_running_agent(agent)

    def get_plan(self, agent: AgentIdentity) -> AgentPlan:
        if agent.agent not in self._plans:
            plan = self._plans[agent.agent] = self._create_plan(
                get_permission_engine(self.get_working_agent(agent.agent))
            )
            plan.on_mode_changed = lambda mode: self.emit(PermissionModeChanged(agent=agent.agent, mode=mode))
            if not agent.is_lead:
                plan.on_approved = partial(self.on_approved, agent.agent)
            if agent.is_teammate:
                # The lead's side decides who approves: the plan is sent there in any case.
                plan.get_approver = lambda: "user"
        return self._plans[agent.agent]

    def forget_plan(self, agent: AgentId) -> None:
        self._plans.pop(agent, None)


def create_plan_registry(settings: Settings, ids: IdGenerator) -> AgentPlanRegistry:
    return AgentPlanRegistry(
        lambda permissions: AgentPlan(
            permissions,
            directory=settings.home / "plans",
            ids=ids,
            get_approver=lambda: settings.own.plan_approver,
            write_file=write_file_atomically,
        )
    )


def _create_agent_cleanup(
    services: SubagentAndTeamServices, shells: BackgroundShellSupervisor
) -> Callable[[AgentId], Awaitable[None]]:
    async def clean_up_agent(agent: AgentId) -> None:
        services.plan_registry.forget_plan(agent)
        services.workspace_allocator.leases.release_agent_leases(agent)
        await shells.stop_agent_shells(agent)

    return clean_up_agent


def _create_agent_model_resolver(
    services: SubagentAndTeamServices,
) -> Callable[[AgentRunner, SpawnRequest, AgentDefinition], Awaitable[Model]]:
    models: dict[str, Model] = {}

    @lru_cache(maxsize=64)
    def resolve_subagent_model_name(
        parent: ModelCard, call: str | None, definition: str | None
    ) -> str | None:
        return choose_subagent_model(services.settings, parent, call=call, definition=definition)

    async def resolve_agent_model(
        parent: AgentRunner, request: SpawnRequest, definition: AgentDefinition
    ) -> Model:
        if definition is FORK_DEFINITION:
            # A resumed fork keeps the model that it started with, whatever others get now.
            name = request.model
        else:
            name = resolve_subagent_model_name(parent.model.card, request.model, definition.model)
        if name in (None, parent.model.card.id, format_qualified_model_name(parent.model)):
            return parent.model
        if name not in models:
            models[name] = await services.choose_model(name)
        return models[name]

    return resolve_agent_model
