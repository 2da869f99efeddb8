"""Services shared by all agents of a session: store, lead resources, tools and budget."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.agent.agent_runner import LoopLimits
from shoal.app.agents.acceptance import TaskAcceptanceCommandRunner
from shoal.app.agents.agent_services import AgentPlanRegistry, create_plan_registry
from shoal.app.config.session_budget import (
    create_default_loop_limits,
    create_session_budget,
    restore_spending_from_journal,
)
from shoal.app.config.session_config import ModelChooser, SessionConfig, create_model_chooser
from shoal.app.config.session_store import SessionFileStores, open_session_file_stores
from shoal.app.config.tool_selection import build_session_tools
from shoal.app.config.unattended_rules import create_unattended_permission_check
from shoal.app.hooks.agent_hooks import HookRegistry, create_hook_runner
from shoal.app.hooks.hook_sources import load_configured_hooks
from shoal.app.isolation.agent_workspace import WorkspaceAllocator
from shoal.app.mcp.mcp_prompts import McpPromptCommands
from shoal.app.mcp.mcp_servers import SessionMcpServerManager
from shoal.app.session.lead_resources import LeadResources, open_lead_resources
from shoal.app.session.session_knowledge import load_skills_and_instructions
from shoal.app.session.session_mcp import create_mcp_servers
from shoal.app.session.session_queue import open_inbox_queue_and_scheduler
from shoal.app.skills.knowledge import SkillsAndInstructions
from shoal.app.teams.team_store import TeamStore
from shoal.core.budget import Budget
from shoal.core.identity import AgentIdentity
from shoal.core.ids import LEAD_ID, LEAD_KIND
from shoal.core.ports import Model
from shoal.core.tools import Tool
from shoal.runs.clock_scheduler import CronPromptScheduler
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.stores.files.file_journal import FileJournal
from shoal.tools.plan_tools import build_plan_tools
from shoal.tools.schedule_tools import build_schedule_tools

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class SharedSessionServices(Struct, frozen=True, kw_only=True):
    identity: AgentIdentity
    """Identity of the lead."""
    choose_model: ModelChooser
    model: Model
    """Model of the lead when the session is opened."""
    store: SessionFileStores
    lead_resources: LeadResources
    hooks: HookRegistry
    team_store: TeamStore
    plan_registry: AgentPlanRegistry
    queue: SharedInboxQueue
    timetable: CronPromptScheduler
    tools: dict[str, Tool]
    """Tools from which agents get their own."""
    acceptance: TaskAcceptanceCommandRunner
    servers: SessionMcpServerManager
    knowledge: SkillsAndInstructions
    budget: Budget
    loop_limits: LoopLimits
    workspace_allocator: WorkspaceAllocator


async def open_shared_services(
    config: SessionConfig, session: Session, exit_stack: AsyncExitStack
) -> SharedSessionServices:
    """Open the services; `exit_stack` closes them in reverse order. Raises `ShoalError`."""
    options, settings, ids = config.options, config.settings, config.ids
    choose_model = create_model_chooser(config, exit_stack)
    model = await choose_model(options.model)
    store = open_session_file_stores(config, exit_stack)
    identity = AgentIdentity(session=config.history.session, name=options.name, team=options.team)
    lead_resources = await open_lead_resources(config, store, session, exit_stack)
    hooks = _create_hook_registry(config, lead_resources, session)
    team_store = _open_team_store(config, store, session, exit_stack)
    plan_registry = create_plan_registry(settings, ids.derive_generator())
    queue, scheduler = await open_inbox_queue_and_scheduler(
        session, lead_resources.shells, hooks, options.clock, ids, exit_stack
    )
    tools: dict[str, Tool] = {}
    acceptance = TaskAcceptanceCommandRunner(tools, plan_registry.get_working_agent)
    extra_tools = (
        *build_plan_tools(plan_registry.get_plan),
        *build_schedule_tools(scheduler, attended=options.attended or config.assistant),
        *options.tools,
    )
    nested_teams = settings.own.team_depth > 1
    tools |= build_session_tools(
        lead_resources.shells,
        team_store,
        extra_tools,
        acceptance.run_for_task_owner,
        nested_teams=nested_teams,
    )
    servers = await exit_stack.enter_async_context(
        create_mcp_servers(config, lead_resources, store.directory, session, tools)
    )
    lead_resources.question_broker.is_preapproved = create_unattended_permission_check(
        settings, lead_resources.workspace, tools, identity
    )
    return SharedSessionServices(
        identity=identity,
        choose_model=choose_model,
        model=model,
        store=store,
        lead_resources=lead_resources,
        hooks=hooks,
        team_store=team_store,
        plan_registry=plan_registry,
        queue=queue,
        timetable=scheduler,
        tools=tools,
        acceptance=acceptance,
        servers=servers,
        knowledge=load_skills_and_instructions(
            config,
            lead_resources,
            tools=tools,
            prompts=[McpPromptCommands(servers)],
            window=model.card.window,
            note=session.note,
        ),
        budget=_open_session_budget(config, model, store, session),
        loop_limits=create_default_loop_limits(options, settings.own),
        workspace_allocator=_create_workspace_allocator(config, store, lead_resources, session, exit_stack),
    )


def _create_hook_registry(
    config: SessionConfig, lead_resources: LeadResources, session: Session
) -> HookRegistry:
    options, settings, history = config.options, config.settings, config.history
    project = lead_resources.workspace.root
    configured = load_configured_hooks(settings, options.hooks, config.plugins.build_hook_documents())
    hooks = HookRegistry(
        create_hook_runner(settings, project, lead_resources.processes, options.clock, session.emit_event),
        settings,
        session=history.session,
        transcript=str(history.transcript) if options.persist else "",
        project=project,
    )
    if options.begun is not None:
        hooks.add(configured.hooks)
    hooks.problems = configured.problems
    return hooks


def _open_team_store(
    config: SessionConfig, store: SessionFileStores, session: Session, exit_stack: AsyncExitStack
) -> TeamStore:
    """Open boards and mail; without persistence they are in the session's temporary directory."""
    options = config.options
    team_store = TeamStore(
        config.settings.home if options.persist else store.directory,
        clock=options.clock,
        ids=config.ids.derive_generator(),
        report=session.note,
        stores_keys=options.persist,
        emit=session.emit_event,
        journals_tasks=options.lead_channel is None,
    )
    exit_stack.push_async_callback(team_store.aclose)
    return team_store


def _open_session_budget(
    config: SessionConfig, model: Model, store: SessionFileStores, session: Session
) -> Budget:
    """Open the budget of the whole tree, with the agent budget of its lead."""
    if (lead_channel := config.options.lead_channel) is not None:
        return lead_channel.budget
    budget = create_session_budget(config.options, config.settings.own, session.emit_event)
    if isinstance(store.journal, FileJournal):
        restore_spending_from_journal(budget, store.journal.path)
    budget.get_or_create_agent_budget(LEAD_ID, LEAD_KIND).require_priced_model(model.card)
    return budget


def _create_workspace_allocator(
    config: SessionConfig,
    store: SessionFileStores,
    lead_resources: LeadResources,
    session: Session,
    exit_stack: AsyncExitStack,
) -> WorkspaceAllocator:
    workspace_allocator = WorkspaceAllocator(
        config.settings,
        store.directory,
        config.options.clock,
        emit=session.emit_event,
        note=session.note,
        turn=lambda: session.turn,
    )
    exit_stack.callback(workspace_allocator.close)
    lead_resources.workspace.write_guard = workspace_allocator.leases.create_write_guard(LEAD_ID)
    return workspace_allocator
