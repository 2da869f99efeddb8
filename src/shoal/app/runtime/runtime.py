"""Runtime of a session: the services that its agents, its teams and the session itself are made from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.agent_runner import BYTES_PER_TOKEN, AgentRunner, LoopLimits
from shoal.agent.tool_calls import run_unrecorded_tool_call
from shoal.app.config.lead_agent import describe_lead_agent_origin, parse_disallowed_tools
from shoal.app.config.session_config import (
    OpenedSessionStore,
    SessionConfig,
    create_model_chooser,
    open_session_store,
)
from shoal.app.config.tool_selection import build_session_tools, split_permission_rule_flags
from shoal.app.config.web_search import create_web_search_tools
from shoal.app.definitions.bundled_docs import find_bundled_docs_directory
from shoal.app.hooks.agent_hooks import (
    VARIABLES_DIRECTORY,
    HookRegistry,
    create_hook_runner,
    read_trusted_agent_hooks,
)
from shoal.app.hooks.hook_sources import load_configured_hooks
from shoal.app.isolation.agent_workspace import WorkspaceAllocator
from shoal.app.isolation.lead_worktree import build_lead_worktree_tools
from shoal.app.isolation.sandbox_policies import (
    create_sandbox_selection,
    create_worktree_sandbox_selection,
    remove_leftover_git_marks,
)
from shoal.app.mcp.deferred_tools import ToolDeferral
from shoal.app.mcp.mcp_servers import SessionMcpServerManager
from shoal.app.models.child_model import SubagentModelResolver
from shoal.app.options import AgentExtras, Options
from shoal.app.runtime.event_bus import EventBus, EventCallback
from shoal.app.runtime.hook_services import SessionHookServices
from shoal.app.runtime.plan_registry import AgentPlanRegistry
from shoal.app.runtime.session_budget import open_session_budget
from shoal.app.runtime.session_knowledge import load_skills_and_instructions
from shoal.app.runtime.session_servers import create_mcp_servers
from shoal.app.runtime.session_telemetry import open_telemetry
from shoal.app.runtime.session_workspace import (
    create_lead_workspace,
    create_workspace_allocator,
    open_member_checkout,
)
from shoal.app.settings.configured_rules import add_permission_flag_rules
from shoal.app.settings.live_settings import AutoReloadingSettings
from shoal.app.settings.mcp_files import select_permitted_mcp_tools
from shoal.app.settings.settings import Settings
from shoal.app.settings.settings_writer import save_permission_answer
from shoal.app.skills.knowledge import SkillsAndInstructions
from shoal.app.teams.team_store import TeamStore
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.backends.guardian import end_leftover_processes
from shoal.backends.sandbox.sandbox_selection import DriverSelectingSandbox
from shoal.core.agents.agent_definitions import THINKING_TOKENS_BY_EFFORT, AgentDefinition
from shoal.core.agents.background_shells import BackgroundShellObserver
from shoal.core.agents.identity import AgentIdentity
from shoal.core.agents.subagents import ShellCommandResult
from shoal.core.budgets.budget import Budget
from shoal.core.clock import Clock
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.tools import Tool
from shoal.core.errors import AgentRequestRefused, SettingsError, ShoalError
from shoal.core.extensions.hooks import Hook, ShellCommandHookAction
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator
from shoal.core.permissions.permission_changes import PermissionSuggestion, resolve_permission_mode
from shoal.core.permissions.permission_decisions import AllowDecision
from shoal.core.permissions.questions import PermissionQuestion, Question
from shoal.core.permissions.sandbox import Sandbox, SandboxStatus
from shoal.core.ports import Model, Workspace
from shoal.core.text.text_format import format_count_with_noun
from shoal.policy.permission_answers import RememberedPermissionAnswers
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.permission_rules import (
    AgentDenialRuleProvider,
    PermissionRuleSet,
    parse_permission_rule,
)
from shoal.runs.clock_scheduler import CronPromptScheduler
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.runs.question_broker import SessionQuestionBroker
from shoal.runs.running_agents import RunningAgents
from shoal.runs.shell_notifier import BackgroundShellNotifier
from shoal.stores.files.home.home_paths import get_process_records_directory
from shoal.team.nested_teams import TeamsByLeader
from shoal.tools.command_launcher import ShellEnvironment, build_process_mark
from shoal.tools.plan_tools import build_plan_tools
from shoal.tools.schedule_tools import build_schedule_tools
from shoal.tools.shell_supervisor import BackgroundShellSupervisor
from shoal.workspaces.local_workspace import LocalWorkspace

if TYPE_CHECKING:
    from shoal.app.telemetry.span_recorder import TelemetrySpanRecorder
    from shoal.core.ids import AgentId
    from shoal.tools.bash_tools import BashToolLimits

COMMAND_TIMEOUT_MS = 600_000
"""Milliseconds that an acceptance command may take."""
_TAIL_LENGTH = 2_000
_EARLY_HOOK_EVENTS = frozenset(("InstructionsLoaded", "SessionStart", "Setup", "UserPromptSubmit"))
"""Events before the first request, whose commands need the guardian."""


class TaskAcceptanceCommandRunner:
    """Runs acceptance commands with the tools of the session; `find_agent` returns a working agent."""

    def __init__(self, find_agent: Callable[[AgentId], AgentRunner]) -> None:
        self._find_agent = find_agent

    async def run_for_task_owner(self, command: str, owner: AgentIdentity) -> tuple[ShellCommandResult, str]:
        return await self.run_command(command, self._find_agent(owner.agent))

    async def run_command(self, command: str, agent: AgentRunner) -> tuple[ShellCommandResult, str]:
        """Run the command; return its exit status and the end of its output."""
        call = ToolUseBlock(
            id=f"accept-{agent.ids.new_short_id()}",
            name="Bash",
            input={"command": command, "timeout": COMMAND_TIMEOUT_MS},
        )
        output = await run_unrecorded_tool_call(agent, call, agent.environment.session_tools["Bash"])
        exit_code = (output.data or {}).get("exit_code", 126)
        return ShellCommandResult(command=command, exit_code=exit_code), output.text[-_TAIL_LENGTH:]


def create_unattended_permission_check(
    settings: Settings, workspace: Workspace, agent: AgentIdentity
) -> Callable[[Question], bool]:
    """Return a check of the rules in `unattendedAllow`, for questions that no person can answer."""
    no_rules = PermissionRuleSet(is_closed=settings.permissions.rules.is_closed)
    rules = add_permission_flag_rules(no_rules, allow=settings.own.unattended_allow, deny=())
    engine = PermissionEngine(workspace, mode="dontAsk", rules=rules, home=settings.home)

    def is_allowed_unattended(question: Question) -> bool:
        if not isinstance(question, PermissionQuestion) or not rules.allow:
            return False
        call = ToolUseBlock(id=question.tool_use_id, name=question.tool, input=question.input)
        # In this mode only the rules decide, whatever the tool is.
        return isinstance(engine.decide_tool_call(call, None, agent), AllowDecision)

    return is_allowed_unattended


def create_default_loop_limits(options: Options, settings: Settings) -> LoopLimits:
    """Create the default limits of each agent, unless its definition overrides them."""
    own, foreign = settings.own, settings.foreign
    mcp_tokens = foreign.tools.mcp_output_tokens
    thinking_tokens = resolve_thinking_tokens(options, settings)
    return LoopLimits(
        max_turns=options.max_turns or own.max_turns,
        result_limit=own.output_limit,
        compact_at=own.compact_at,
        max_tokens=own.max_output_tokens,
        thinking_tokens=thinking_tokens or 0,
        adaptive_thinking=thinking_tokens is None,
        has_fixed_thinking=foreign.thinking.max_tokens is not None,
        auto_compact=not foreign.is_compaction_disabled,
        bash_result_limit=foreign.tools.bash_output_length,
        mcp_result_limit=None if mcp_tokens is None else mcp_tokens * BYTES_PER_TOKEN,
        max_repeated_calls=own.max_repeated_calls,
        max_unproductive_messages=own.max_unproductive_messages,
    )


def _limit_lead_turns(limits: LoopLimits, definition: AgentDefinition | None) -> LoopLimits:
    own = None if definition is None else definition.run.max_turns
    return limits if own is None else replace(limits, max_turns=min(own, limits.max_turns or own))


def resolve_thinking_tokens(options: Options, settings: Settings) -> int | None:
    """Return the thinking tokens of the lead: from options, variables, or settings, in this order.

    None leaves the decision to models that can decide.

    An effort from the environment overrides one from a flag.
    """
    own, foreign = settings.own, settings.foreign
    if options.thinking_tokens is not None and options.effort is None:
        return options.thinking_tokens
    if foreign.thinking.max_tokens is not None:
        return foreign.thinking.max_tokens
    if effort := foreign.thinking.effort or options.effort:
        return THINKING_TOKENS_BY_EFFORT[effort]
    if foreign.thinking.is_always_on is False:
        return 0
    if foreign.thinking.effort_level is not None:
        return THINKING_TOKENS_BY_EFFORT[foreign.thinking.effort_level]
    if foreign.thinking.is_always_on:
        return own.thinking_tokens or THINKING_TOKENS_BY_EFFORT["high"]
    return own.thinking_tokens


class LeadServices(Struct, frozen=True, kw_only=True):
    """Parts of the lead."""

    identity: AgentIdentity
    model: Model
    """Model when the session is opened."""
    workspace: LocalWorkspace
    granted_directories: tuple[Path, ...]
    permissions: PermissionEngine
    loop_limits: LoopLimits


class AgentServices(Struct, frozen=True, kw_only=True):
    """Services shared by all agents of the session."""

    running: RunningAgents
    teams_by_leader: TeamsByLeader
    """Nested teams; empty if teammates cannot lead teams."""
    plans: AgentPlanRegistry
    workspaces: WorkspaceAllocator
    acceptance: TaskAcceptanceCommandRunner
    telemetry: TelemetrySpanRecorder | None
    deferral: ToolDeferral
    """MCP tools that an agent has to search for."""
    ids: IdGenerator
    """Source of the ids of agents other than the lead."""
    extras: dict[str, AgentExtras]
    """Python tools and output types of the program's agents, by the name of the definition."""


class ProcessServices(Struct, frozen=True, kw_only=True):
    launcher: GuardedProcessLauncher
    shells: BackgroundShellSupervisor
    sandbox: Sandbox
    startup_notes: tuple[str, ...] = ()
    """Notes about programs that killed runs left behind."""


class InboxServices(Struct, frozen=True, kw_only=True):
    queue: SharedInboxQueue
    scheduler: CronPromptScheduler
    notice_ids: IdGenerator
    """Source of the ids of notices from shells and hooks."""


class Runtime(Struct, frozen=True, kw_only=True):
    """Services of a session, opened by `open_runtime` and closed in reverse order."""

    config: SessionConfig
    events: EventBus
    store: OpenedSessionStore
    team_store: TeamStore
    models: SubagentModelResolver
    budget: Budget
    question_broker: SessionQuestionBroker
    hooks: HookRegistry
    tools: tuple[Tool, ...]
    """Tools that need no supervisor; the session builder adds the others."""
    servers: SessionMcpServerManager
    knowledge: SkillsAndInstructions
    lead: LeadServices
    agents: AgentServices
    processes: ProcessServices
    inbox: InboxServices

    @property
    def options(self) -> Options:
        return self.config.options

    @property
    def settings(self) -> Settings:
        return self.config.settings

    @property
    def clock(self) -> Clock:
        return self.config.options.clock


async def open_runtime(config: SessionConfig, exit_stack: AsyncExitStack) -> Runtime:
    """Open the services; `exit_stack` closes them in reverse order. Raises `ShoalError`."""
    options, settings, ids = config.options, config.settings, config.ids
    models = SubagentModelResolver(
        settings, create_model_chooser(config, exit_stack, (model_notes := list[str]()).append)
    )
    model = await models.choose_model(options.model)
    store = open_session_store(config, exit_stack)
    events = EventBus(store.journal, _open_debug_log(config, exit_stack))
    identity = AgentIdentity(session=config.history.session, name=options.name, team=options.team)
    granted = (*options.add_dirs, *settings.permissions.rules.directories)
    checkout = open_member_checkout(config)
    workspaces = create_workspace_allocator(config, store, events, exit_stack, checkout)
    workspace = create_lead_workspace(config, store, granted, events, workspaces.leases, checkout)
    question_broker = SessionQuestionBroker(
        store.questions,
        clock=options.clock,
        emit=events.emit_event,
        attended=options.attended or options.on_question is not None,
        answer_timeout=settings.own.question_patience,
        is_preapproved=create_unattended_permission_check(settings, workspace, identity),
    )
    processes, process_notes = _create_process_launcher(config)
    exit_stack.push_async_callback(processes.aclose)
    live_settings = _create_live_settings(config, workspace, events)
    selection = (
        create_sandbox_selection(settings, workspace, store.directory, events.note)
        if checkout is None
        else await create_worktree_sandbox_selection(
            settings, checkout, workspace, store.directory, events.note
        )
    )
    permissions = _create_lead_permissions(
        config, workspace, store.directory, live_settings, events, selection
    )
    sandbox = DriverSelectingSandbox(selection, permissions.list_denied_paths)
    queue, notice_ids = SharedInboxQueue(), ids.derive_generator()
    shells = await _open_shell_supervisor(
        config,
        store,
        processes,
        sandbox,
        exit_stack,
        BackgroundShellNotifier(queue, notice_ids, events.emit_event),
        events.note,
    )
    running_agents, teams_by_leader = RunningAgents(), TeamsByLeader()
    servers = create_mcp_servers(config, workspace, processes, store.directory, events)
    budget = open_session_budget(config, model, store, events)
    hooks = _create_hook_registry(
        config,
        workspace,
        processes,
        events,
        store.directory,
        SessionHookServices(models, servers, running_agents),
        live_settings,
    )
    team_store = _open_team_store(config, events, exit_stack)
    plan_registry = AgentPlanRegistry(settings, ids.derive_generator(), running_agents, events.emit_event)
    scheduler = await _open_scheduler(config, queue, hooks, events, exit_stack)
    acceptance = TaskAcceptanceCommandRunner(running_agents.require_agent)
    find_lead_identity = teams_by_leader.find_lead_identity if settings.own.team_depth > 1 else None
    tools = (
        *build_session_tools(
            shells,
            team_store,
            acceptance.run_for_task_owner,
            find_lead_identity,
            _create_bash_limits(settings),
        ),
        *build_plan_tools(plan_registry.get_plan),
        *build_schedule_tools(scheduler, attended=options.attended or config.assistant),
        *select_permitted_mcp_tools(options.tools, settings),
        *_build_lead_worktree_tools(config, workspace, permissions),
        *create_web_search_tools(
            settings, model.card, running_agents.require_agent, servers.wait_until_settled
        ),
    )
    await exit_stack.enter_async_context(servers)
    knowledge = load_skills_and_instructions(
        config, permissions, hooks, servers, running_agents, model.card.window, events
    )
    deferral = ToolDeferral(settings, model.card.window, servers, running_agents.require_agent)
    telemetry, telemetry_notes = open_telemetry(config, events, running_agents, identity, exit_stack)
    return Runtime(
        config=config,
        events=events,
        store=store,
        team_store=team_store,
        models=models,
        budget=budget,
        question_broker=question_broker,
        hooks=hooks,
        tools=tools,
        servers=servers,
        knowledge=knowledge,
        lead=LeadServices(
            identity=identity,
            model=model,
            workspace=workspace,
            granted_directories=granted,
            permissions=permissions,
            loop_limits=_limit_lead_turns(create_default_loop_limits(options, settings), config.lead_agent),
        ),
        agents=AgentServices(
            running=running_agents,
            teams_by_leader=teams_by_leader,
            plans=plan_registry,
            workspaces=workspaces,
            acceptance=acceptance,
            telemetry=telemetry,
            deferral=deferral,
            ids=ids.derive_generator(),
            extras=dict(options.agent_extras),
        ),
        processes=ProcessServices(
            launcher=processes,
            shells=shells,
            sandbox=sandbox,
            startup_notes=(*process_notes, *model_notes, *telemetry_notes),
        ),
        inbox=InboxServices(queue=queue, scheduler=scheduler, notice_ids=notice_ids),
    )


def _build_lead_worktree_tools(
    config: SessionConfig, workspace: LocalWorkspace, permissions: PermissionEngine
) -> tuple[Tool, ...]:
    if config.options.lead_channel is not None:
        return ()
    is_hidden = permissions.build_unreadable_file_filter("Read", str(workspace.root))
    return build_lead_worktree_tools(
        workspace,
        config.settings,
        config.options.clock,
        config.ids,
        is_hidden,
        on_entered=permissions.add_checkout,
    )


def _create_live_settings(
    config: SessionConfig, workspace: LocalWorkspace, events: EventBus
) -> AutoReloadingSettings:
    options = config.options
    return AutoReloadingSettings(
        config.settings,
        cwd=workspace.root,
        given=options.settings,
        sources=options.setting_sources,
        add_rules=partial(
            add_permission_flag_rules,
            allow=split_permission_rule_flags(options.allowed_tools),
            deny=split_permission_rule_flags(options.disallowed_tools),
            lead_deny=() if config.lead_agent is None else parse_disallowed_tools(config.lead_agent),
        ),
        note=events.note,
    )


def _create_lead_permissions(
    config: SessionConfig,
    workspace: LocalWorkspace,
    directory: Path,
    live_settings: AutoReloadingSettings,
    events: EventBus,
    sandbox: SandboxStatus,
) -> PermissionEngine:
    options, settings = config.options, config.settings
    mode = resolve_permission_mode(options.mode) or settings.permissions.entries.default_mode or "default"
    if options.skip_permissions and options.lead_channel is None:
        # A member gets the current mode of its lead, which may have become stricter.
        mode = "bypassPermissions"
    if options.skip_permissions or options.allow_bypass or mode == "bypassPermissions":
        from shoal.app.isolation.machine_checks import check_permission_bypass

        check_permission_bypass(settings)
    membership = options.membership
    # Not only for a turn: what its lead may not use now, it may never use.
    denied = () if membership is None else membership.denied_tools
    denied_rules = tuple(parse_permission_rule(entry, "its lead") for entry in denied)
    engine = PermissionEngine(
        workspace,
        mode=mode,
        rules=AgentDenialRuleProvider(live_settings, denied_rules) if denied_rules else live_settings,
        home=settings.home,
        answers=_create_permission_answers(settings, workspace.root, events),
        can_bypass=settings.permissions.bypass_ban is None
        and (
            options.skip_permissions
            or options.allow_bypass
            or settings.permissions.entries.default_mode == "bypassPermissions"
        ),
        sandbox=sandbox,
    )
    engine.allow_reading(directory / "results", find_bundled_docs_directory())
    for tools in () if membership is None else membership.only_tools:
        engine.restrict_to_tool_patterns(tools)
    lead_tools = () if config.lead_agent is None else config.lead_agent.capabilities.tools or ()
    if any("(" in entry for entry in lead_tools):
        engine.restrict_to_tool_patterns(lead_tools)
    return engine


def _create_permission_answers(
    settings: Settings, cwd: Path, events: EventBus
) -> RememberedPermissionAnswers:
    def store_permission_answer(update: PermissionSuggestion) -> None:
        try:
            if save_permission_answer(update, settings, cwd):
                return
            reason = "this project's settings are not trusted. See `shoal trust --show`."
        except ShoalError as error:
            reason = str(error)
        events.note(f"Your answer could not be saved, so it applies only to this session: {reason}")
        answers.add_answer(update)

    answers = RememberedPermissionAnswers(store_permission_answer, events.note, settings.user)
    return answers


async def _open_shell_supervisor(
    config: SessionConfig,
    store: OpenedSessionStore,
    processes: GuardedProcessLauncher,
    sandbox: Sandbox,
    exit_stack: AsyncExitStack,
    observer: BackgroundShellObserver,
    note: Callable[[str], None],
) -> BackgroundShellSupervisor:
    options, settings, membership = config.options, config.settings, config.options.membership
    shells = BackgroundShellSupervisor(
        processes=processes,
        clock=options.clock,
        environment=ShellEnvironment(
            home=settings.home,
            variables=settings.command_environment,
            mark=_build_process_owner_mark(options, store),
            sandbox=sandbox,
            variables_directory=store.directory / VARIABLES_DIRECTORY,
            shared_snapshot=Path(membership.snapshot)
            if membership is not None and membership.snapshot
            else None,
        ),
        stuck_after=settings.own.stuck_after,
        note=note,
        observer=observer,
    )
    await exit_stack.enter_async_context(shells)
    if options.attended:
        # Prepared while the user types; an unattended run starts a shell only when needed.
        shells.prepare_snapshot()
    return shells


def _create_bash_limits(settings: Settings) -> BashToolLimits:
    from shoal.tools.bash_tools import BashToolLimits

    foreign, defaults = settings.foreign, BashToolLimits()
    return BashToolLimits(
        default_timeout=foreign.tools.bash_timeout or defaults.default_timeout,
        max_timeout=foreign.tools.bash_max_timeout or defaults.max_timeout,
        allows_background=not foreign.tools.is_background_disabled,
    )


def _build_process_owner_mark(options: Options, store: OpenedSessionStore) -> str:
    """Build a mark that successive processes of a session or teammate share, but no two at once."""
    membership = options.membership
    names = () if membership is None else (f"{membership.name}@{membership.team}",)
    return build_process_mark(str(store.directory), *names)


def _create_hook_registry(
    config: SessionConfig,
    workspace: LocalWorkspace,
    processes: GuardedProcessLauncher,
    events: EventBus,
    directory: Path,
    services: SessionHookServices,
    live_settings: AutoReloadingSettings,
) -> HookRegistry:
    options, settings, history = config.options, config.settings, config.history
    own_tools = (*options.tools, *(tool for each in options.agent_extras.values() for tool in each.tools))
    configured = load_configured_hooks(
        settings,
        options.hooks,
        config.plugins.build_hook_documents(),
        program_tools=[tool.schema.name for tool in own_tools],
        agent_types=config.list_agent_types() if options.hooks else (),
    )
    hooks = HookRegistry(
        create_hook_runner(
            settings,
            workspace.root,
            processes,
            options.clock,
            events.emit_event,
            directory / VARIABLES_DIRECTORY,
            services,
        ),
        settings,
        session=history.session,
        transcript=str(history.store.get_transcript_path(LEAD_ID) or ""),
        project=workspace.root,
        configured=configured,
        live_settings=live_settings,
    )
    if options.begun is not None:
        hooks.add(configured.hooks)
        hooks.add(_load_lead_agent_hooks(config, workspace.root))
        if any(
            hook.event in _EARLY_HOOK_EVENTS and isinstance(hook.action, ShellCommandHookAction)
            for hook in configured.hooks
        ):
            processes.start_guardian_early()
    hooks.start_settings_review()
    return hooks


def _load_lead_agent_hooks(config: SessionConfig, project: Path) -> tuple[Hook, ...]:
    """Return the hooks of the lead's agent. Raises `SettingsError` for untrusted or bad ones."""
    if config.lead_agent is None:
        return ()
    try:
        return read_trusted_agent_hooks(config.lead_agent, config.settings, project).hooks
    except AgentRequestRefused as error:
        origin = describe_lead_agent_origin(config.options, config.settings)
        raise SettingsError(f"{origin}: {error}") from error


def _open_team_store(config: SessionConfig, events: EventBus, exit_stack: AsyncExitStack) -> TeamStore:
    options = config.options
    team_store = TeamStore(
        config.store,
        clock=options.clock,
        ids=config.ids.derive_generator(),
        report=events.note,
        emit_all=events.emit_events,
        journals_tasks=options.lead_channel is None,
        shared_list=config.settings.foreign.task_list,
    )
    exit_stack.push_async_callback(team_store.aclose)
    return team_store


async def _open_scheduler(
    config: SessionConfig,
    queue: SharedInboxQueue,
    hooks: HookRegistry,
    events: EventBus,
    exit_stack: AsyncExitStack,
) -> CronPromptScheduler:
    await exit_stack.enter_async_context(hooks.runner.background)
    scheduler = CronPromptScheduler(
        queue=queue,
        clock=config.options.clock,
        ids=config.ids.derive_generator(),
        emit=events.emit_event,
    )
    return await exit_stack.enter_async_context(scheduler)


def _create_process_launcher(config: SessionConfig) -> tuple[GuardedProcessLauncher, tuple[str, ...]]:
    """Create the launcher, and clean up what killed runs of this home left behind; return notes about it."""
    records = get_process_records_directory(config.settings.home)
    # A store in memory leaves no files in the home.
    if not records.parent.is_dir():
        return GuardedProcessLauncher(config.options.clock), ()
    notes: tuple[str, ...] = ()
    if leftovers := end_leftover_processes(str(records)):
        programs = format_count_with_noun(len(leftovers), "program")
        notes = (f"Stopped {programs} that a killed run had left running.",)
    notes += remove_leftover_git_marks(config.settings.home)
    return GuardedProcessLauncher(config.options.clock, records), notes


def _open_debug_log(config: SessionConfig, exit_stack: AsyncExitStack) -> EventCallback | None:
    options, settings = config.options, config.settings
    if not options.debug or options.lead_channel is not None:
        return None
    from shoal.stores.files.sessions.debug_log import DebugLog

    log = DebugLog(
        settings.home / "debug",
        config.history.session,
        options.clock,
        settings.secret_redactor,
        path=options.debug_file,
        event_filter=options.debug_filter,
    )
    exit_stack.callback(log.close)
    return log.write_event
