"""The composition root: chooses the implementations and connects them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

import shoal
from shoal.agent.agent_runner import AgentEnvironment, AgentRunner
from shoal.agent.conversation import Conversation
from shoal.app.agents.agent_services import SubagentAndTeamServices, create_supervisor_and_teams
from shoal.app.agents.backend_launcher import MemberLaunchServices
from shoal.app.config.assistant_mode import build_appended_system_prompt
from shoal.app.config.coordinator_mode import load_replacement_system_prompt, select_lead_tools
from shoal.app.config.journal_recovery import (
    LeadTranscriptDeliveries,
    RecoveredSessionState,
    SessionRecoveryPaths,
    recover_state_from_journal,
)
from shoal.app.config.session_config import ModelChooser, SessionConfig, load_session_config
from shoal.app.config.session_history import SessionHistory
from shoal.app.config.session_memory import SessionMemory
from shoal.app.config.session_store import SessionFileStores
from shoal.app.config.system_prompt import build_system_prompt
from shoal.app.config.tool_selection import (
    iter_unknown_rule_warnings,
    refuse_misspelled_rules,
    refuse_unknown_rules,
)
from shoal.app.config.undo_history import UndoHistory
from shoal.app.definitions.agent_catalog import AgentCatalog
from shoal.app.definitions.plugin_set import PluginSet
from shoal.app.hooks.agent_hooks import HookRegistry, HookSubject
from shoal.app.isolation.agent_workspace import WorkspaceAllocator
from shoal.app.mcp.mcp_servers import SessionMcpServers
from shoal.app.options import Options
from shoal.app.session.control_handler import handle_control_command
from shoal.app.session.hook_notices import route_hook_notices
from shoal.app.session.lifecycle_hooks import SessionLifecycleHooks
from shoal.app.session.shared_services import SharedSessionServices, open_shared_services
from shoal.app.settings.settings import Settings
from shoal.app.skills.knowledge import SkillsAndInstructions
from shoal.app.teams.team_store import TeamStore
from shoal.core.events import PREVIEW_LENGTH
from shoal.core.ids import LEAD_ID, LEAD_KIND, AgentId
from shoal.core.messages import Message
from shoal.core.ports import Journal
from shoal.core.text_format import to_one_line
from shoal.core.tools import Tool
from shoal.policy.permission_engine import PermissionEngine
from shoal.runs.agent_supervisor import AgentSupervisor
from shoal.runs.clock_scheduler import ClockScheduler
from shoal.runs.control_server import RunControlServer
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.runs.question_broker import FileQuestionBroker
from shoal.stores.files.file_journal import FileJournal
from shoal.stores.files.result_files import FileResultStore
from shoal.team.member_host import MemberHost
from shoal.team.session_teams import SessionTeams
from shoal.tools.shell_supervisor import BackgroundShellSupervisor
from shoal.tools.structured_output_tool import StructuredOutputTool
from shoal.workspaces.local_workspace import LocalWorkspace

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.stores.files.debug_log import DebugLog


class SessionServices(Struct, kw_only=True):
    """Services of a session, for the session and the surfaces."""

    settings: Settings
    definitions: AgentCatalog
    plugins: PluginSet
    agent: AgentRunner
    workspace: LocalWorkspace
    permissions: PermissionEngine
    question_broker: FileQuestionBroker
    queue: SharedInboxQueue
    workspace_allocator: WorkspaceAllocator
    supervisor: AgentSupervisor
    teams: SessionTeams | MemberHost
    shells: BackgroundShellSupervisor
    timetable: ClockScheduler
    servers: SessionMcpServers
    team_store: TeamStore
    knowledge: SkillsAndInstructions
    journal: Journal
    debug_log: DebugLog | None
    control: RunControlServer | None
    hooks: HookRegistry
    lifecycle_hooks: SessionLifecycleHooks
    undo_history: UndoHistory | None
    """Turns that can be undone; None if nothing is stored."""
    choose_model: ModelChooser
    resume_message: Message | None
    """Results for calls that an earlier process of this session left open, and its notes."""
    recovered: RecoveredSessionState | None
    """State that an earlier process of this session left unfinished."""
    assistant: bool
    """True if the session stays open when there is nothing to do."""
    turns_before: int
    notes: tuple[str, ...]
    structured_output: StructuredOutputTool | None
    """Tool that receives the structured answer, if one is required."""
    started_at: float
    find_trace_parent: Callable[[AgentId, str], str] = lambda _agent, _call: ""
    """Returns the trace parent for an agent in another process."""
    version: str = shoal.__version__


async def build_session_services(
    options: Options, session: Session, exit_stack: AsyncExitStack
) -> SessionServices:
    """Build a session; `exit_stack` closes everything in reverse order. Raises `ShoalError`."""
    config = load_session_config(options, exit_stack)
    shared = await open_shared_services(config, session, exit_stack)
    supervisor, teams = create_supervisor_and_teams(
        _build_agent_services(config, shared, session), shared.tools, shared.lead_resources.shells
    )
    await exit_stack.enter_async_context(supervisor)
    await exit_stack.enter_async_context(teams)
    lead = _create_lead(config, shared, session)
    supervisor.set_lead(lead)
    route_hook_notices(shared.hooks, supervisor, teams, session)
    shared.servers.on_tools_changed = lambda: lead.set_tools(_select_lead_tools(config, shared))
    return await _assemble_session_services(config, shared, lead, supervisor, teams, session, exit_stack)


def _build_agent_services(
    config: SessionConfig, services: SharedSessionServices, session: Session
) -> SubagentAndTeamServices:
    """Build the services of the agent supervisor."""
    lead_resources = services.lead_resources
    return SubagentAndTeamServices(
        options=config.options,
        settings=config.settings,
        definitions=config.definitions,
        subagents=config.agent_transcripts_directory if config.options.persist else None,
        directory=services.store.directory,
        loop_limits=services.loop_limits,
        budget=services.budget,
        queue=services.queue,
        ids=config.ids.derive_generator(),
        choose_model=services.choose_model,
        publish_event=session.publish_event,
        emit=session.emit_event,
        team_store=services.team_store,
        workspace_allocator=services.workspace_allocator,
        hooks=services.hooks,
        plan_registry=services.plan_registry,
        coordinator=config.coordinator,
        assistant=config.assistant,
        acceptance=services.acceptance,
        knowledge=services.knowledge,
        launch_services=MemberLaunchServices(
            cwd=config.cwd,
            model=services.model,
            transcript=config.history.transcript,
            processes=lead_resources.processes,
            shells=lead_resources.shells,
            note=session.note,
            on_journal_line=session.publish_remote_journal_line,
            find_trace_parent=lambda agent, call: session.services.find_trace_parent(agent, call),  # noqa: PLW0108 - set later
        ),
        servers=services.servers,
    )


def _create_lead(config: SessionConfig, services: SharedSessionServices, session: Session) -> AgentRunner:
    options, settings, lead_resources, identity = (
        config.options,
        config.settings,
        services.lead_resources,
        services.identity,
    )
    return AgentRunner(
        identity=identity,
        model=services.model,
        system=build_system_prompt(
            cwd=config.cwd,
            clock=options.clock,
            granted_directories=lead_resources.granted_directories,
            replacement=load_replacement_system_prompt(options, coordinator=config.coordinator),
            instructions=services.knowledge.instructions.text,
            appended=build_appended_system_prompt(options, assistant=config.assistant),
        ),
        tools=_select_lead_tools(config, services),
        conversation=Conversation(
            services.store.transcript,
            options.clock,
            config.ids,
            messages=config.history.messages,
            last=config.history.last,
        ),
        environment=AgentEnvironment(
            workspace=lead_resources.workspace,
            processes=lead_resources.processes,
            question_broker=lead_resources.question_broker
            if options.lead_channel is None
            else options.lead_channel.question_broker,
            results=FileResultStore(services.store.directory / "results"),
            env=settings.tool_environment,
        ),
        permissions=lead_resources.permissions,
        hooks=services.hooks.create_agent_hooks(
            HookSubject(
                identity=identity, workspace=lead_resources.workspace, permissions=lead_resources.permissions
            )
        ),
        budget=services.budget.get_or_create_agent_budget(LEAD_ID, LEAD_KIND),
        inbox=services.queue.open_inbox(LEAD_ID),
        save_memory=_create_session_memory(config, services.store, session),
        emit=session.publish_event,
        clock=options.clock,
        ids=config.ids,
        limits=services.loop_limits,
    )


def _select_lead_tools(config: SessionConfig, services: SharedSessionServices) -> dict[str, Tool]:
    return select_lead_tools(config.options, services.tools, coordinator=config.coordinator)


async def _assemble_session_services(
    config: SessionConfig,
    services: SharedSessionServices,
    lead: AgentRunner,
    supervisor: AgentSupervisor,
    teams: SessionTeams | MemberHost,
    session: Session,
    exit_stack: AsyncExitStack,
) -> SessionServices:
    lead_resources = services.lead_resources
    recovered = _recover_session_state(config, services)
    return SessionServices(
        settings=config.settings,
        definitions=config.definitions,
        plugins=config.plugins,
        agent=lead,
        workspace=lead_resources.workspace,
        permissions=lead_resources.permissions,
        question_broker=lead_resources.question_broker,
        queue=services.queue,
        workspace_allocator=services.workspace_allocator,
        supervisor=supervisor,
        teams=teams,
        shells=lead_resources.shells,
        timetable=services.timetable,
        servers=services.servers,
        team_store=services.team_store,
        knowledge=services.knowledge,
        journal=services.store.journal,
        debug_log=_open_debug_log(config, exit_stack),
        control=await _start_control_server(config, session, services.store, exit_stack),
        hooks=services.hooks,
        lifecycle_hooks=await exit_stack.enter_async_context(
            SessionLifecycleHooks(lead, session, config.options)
        ),
        undo_history=_create_undo_history(config),
        choose_model=services.choose_model,
        resume_message=_build_resume_message(lead, config.history),
        recovered=recovered,
        assistant=config.assistant,
        turns_before=max(config.history.turns, recovered.turns if recovered else 0),
        notes=(*_collect_startup_notes(config, services), *_describe_unknown_events(recovered)),
        structured_output=config.structured_output,
        started_at=config.started_at,
    )


def _collect_startup_notes(config: SessionConfig, services: SharedSessionServices) -> tuple[str, ...]:
    """Collect the notes for the person at the start of the session. Raises `SettingsError`."""
    options = config.options
    _refuse_rules_without_tools(config, services)
    return (
        *config.settings.warnings,
        *config.notes,
        *services.hooks.problems,
        *config.plugins.startup_notes,
        *config.definitions.describe_agent_file_problems(),
        *services.knowledge.list_skill_and_instruction_notices(),
        *services.servers.configured.problems,
        *services.servers.describe_missing_channels(),
        *iter_unknown_rule_warnings((*options.allowed_tools, *options.disallowed_tools), services.tools),
        *config.history.notes,
    )


def _refuse_rules_without_tools(config: SessionConfig, services: SharedSessionServices) -> None:
    options, settings, tools = config.options, config.settings, services.tools
    if options.membership is None:
        # The rules of a member come from its lead, which may be another program with other tools.
        refuse_unknown_rules("allowed_tools", options.allowed_tools, tools)
        refuse_unknown_rules("disallowed_tools", options.disallowed_tools, tools)
    for key, rules in (("deny", settings.permissions.deny), ("ask", settings.permissions.ask)):
        refuse_misspelled_rules(settings.find_setting_origin(f"permissions.{key}"), rules, tools)


def _describe_unknown_events(recovered: RecoveredSessionState | None) -> tuple[str, ...]:
    """Return a sentence if the journal has events that another version wrote and this one cannot read."""
    if recovered is None or not recovered.unknown_event_types:
        return ()
    types = to_one_line(", ".join(recovered.unknown_event_types))[:PREVIEW_LENGTH]
    return (f"Cannot read some events of the journal ({types}). The session goes on without them.",)


def _recover_session_state(
    config: SessionConfig, services: SharedSessionServices
) -> RecoveredSessionState | None:
    """Recover the state of an earlier process and continue its counters."""
    if not config.history.turns or not config.options.persist:
        return None
    directory, history = services.store.directory, config.history
    paths = SessionRecoveryPaths(
        journal=directory / "journal.jsonl",
        subagents=config.agent_transcripts_directory,
        outputs=directory / "tasks",
        results=directory / "results",
        report_tokens=config.settings.own.report_tokens,
    )
    deliveries = LeadTranscriptDeliveries(delivered=history.delivered, answered=history.answered)
    recovered = recover_state_from_journal(paths, deliveries, config.ids.derive_generator())
    recovered.restore_agent_and_shell_counters(services.budget, services.lead_resources.shells)
    return recovered


def _open_debug_log(config: SessionConfig, exit_stack: AsyncExitStack) -> DebugLog | None:
    options, settings = config.options, config.settings
    if not options.debug or options.lead_channel is not None:
        return None
    from shoal.stores.files.debug_log import DebugLog

    log = DebugLog(settings.home / "debug", config.history.session, options.clock, settings.secret_redactor)
    exit_stack.callback(log.close)
    return log


async def _start_control_server(
    config: SessionConfig, session: Session, store: SessionFileStores, exit_stack: AsyncExitStack
) -> RunControlServer | None:
    if not config.options.persist or config.options.lead_channel is not None:
        return None
    assert isinstance(store.journal, FileJournal)
    return await exit_stack.enter_async_context(
        RunControlServer(
            store.directory / "control.sock",
            handle=partial(handle_control_command, session),
            steer=lambda message: session.steer(message.text),
            position=store.journal.get_position,
        )
    )


def _create_session_memory(
    config: SessionConfig, store: SessionFileStores, session: Session
) -> SessionMemory | None:
    options = config.options
    if not config.settings.own.session_memory or not options.persist or options.lead_channel is not None:
        return None
    return SessionMemory(store.directory / "memory.md", session.note)


def _build_resume_message(agent: AgentRunner, history: SessionHistory) -> Message | None:
    if not isinstance(agent.save_memory, SessionMemory):
        return history.interrupted
    return agent.save_memory.build_resume_message(history.interrupted, history.messages)


def _create_undo_history(config: SessionConfig) -> UndoHistory | None:
    if not config.options.persist:
        return None
    history = config.history
    return UndoHistory(home=config.settings.home, session=history.session, transcript=history.transcript)
