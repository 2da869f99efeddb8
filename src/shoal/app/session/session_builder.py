"""The composition root: chooses the implementations and connects them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from shoal.agent.agent_runner import AgentContextSources, AgentEnvironment, AgentRunner, SentToolSchemas
from shoal.agent.conversation import Conversation
from shoal.app.agent_permissions import get_permission_engine
from shoal.app.agents.agent_factory import AgentFactory
from shoal.app.agents.backend_launcher import BackendMemberLauncher
from shoal.app.agents.program_agents import ProgramAgents
from shoal.app.agents.remote_agents import RemoteAgents
from shoal.app.config.assistant_mode import build_appended_system_prompt
from shoal.app.config.coordinator_mode import (
    find_missing_lead_tools,
    load_replacement_system_prompt,
    select_lead_tools,
)
from shoal.app.config.journal_recovery import (
    LeadTranscriptDeliveries,
    RecoveredSessionState,
    RecoverySources,
    recover_state_from_journal,
)
from shoal.app.config.lead_agent import describe_lead_agent_origin
from shoal.app.config.session_config import SessionConfig, load_session_config
from shoal.app.config.session_memory import SessionMemory
from shoal.app.config.system_prompt import build_system_prompt, load_prompt_without_manner
from shoal.app.config.tool_selection import (
    iter_missing_tool_notes,
    iter_unknown_rule_warnings,
    split_permission_rule_flags,
)
from shoal.app.config.undo_history import SessionUndoHistory, create_undo_history
from shoal.app.hooks.agent_hooks import HookSubjectAgent
from shoal.app.mcp.mcp_channels import McpChannelMessageQueue
from shoal.app.model_notices import format_session_notice
from shoal.app.options import Options
from shoal.app.run_access.run_handle import CrossSessionMessenger
from shoal.app.run_access.stored_runs import list_reachable_runs
from shoal.app.runtime.runtime import Runtime, open_runtime
from shoal.app.session.control_handler import handle_control_command
from shoal.app.session.lifecycle_hooks import SessionLifecycleHookRunner
from shoal.app.settings.configured_rules import find_skipped_flag_rules
from shoal.app.workflows.workflow_supervisor import WorkflowSupervisor
from shoal.core.agents.agent_definitions import AgentCapabilities
from shoal.core.conversation.model_requests import ToolSchema
from shoal.core.conversation.tools import Tool, ToolRegistry
from shoal.core.errors import AgentRequestRefused, SettingsError, ShoalError
from shoal.core.events import AgentEnded, AgentStarted, JournaledEvent
from shoal.core.extensions.hooks import BackgroundHookNotice
from shoal.core.ids import LEAD_ID, LEAD_KIND, AgentId
from shoal.core.permissions.permission_changes import PermissionMode, PermissionSuggestion
from shoal.core.unused_items import summarize_unused_items
from shoal.policy.rule_names import refuse_misspelled_rules
from shoal.runs.agent_supervisor import AgentSupervisor
from shoal.runs.control_server import RunControlServer
from shoal.runs.hook_notifier import HookNotifier
from shoal.runs.prepared_agent import AgentPreparer
from shoal.runs.running_agents import RunningAgents
from shoal.runs.spawn_policy import SpawnPolicy
from shoal.team.nested_teams import NestedTeams
from shoal.team.session_teams import SessionTeams
from shoal.team.team_services import TeamPolicy, TeamServices
from shoal.tools.agent_tools import AgentToolOptions, build_agent_tools, format_agent_list
from shoal.tools.background_tools import build_background_tools
from shoal.tools.plan_tools import PlanApprover
from shoal.tools.team_tools import build_team_tools
from shoal.tools.workflow_tool import build_workflow_tool

if TYPE_CHECKING:
    from shoal.app.agents.agent import Agent
    from shoal.app.session.session import Session
    from shoal.team.members.member_host import MemberHost


_WHOLE_REPORT_TOKENS = 10_000_000
"""Limit for the report of an agent on another machine, which its lead shortens."""


def route_hook_notices(session: Session) -> None:
    """Route the notices of background hooks to agents of the session, or to those that replace them."""
    runtime, supervisor, teams = session.runtime, session.supervisor, session.teams

    def find_notice_recipient(notice: BackgroundHookNotice) -> AgentId | None:
        if notice.event == "SubagentStart" and not supervisor.has_agent_started(notice.agent):
            # It may not have started yet: the notice waits in its queue.
            return notice.agent
        recipient = supervisor.find_inbox_item_recipient(notice.agent)
        # A teammate's process has a lead only nominally.
        return None if recipient == LEAD_ID and runtime.options.membership is not None else recipient

    def is_agent_idle(agent: AgentId) -> bool:
        if agent == LEAD_ID:
            return not session.is_busy
        return any(member.agent == agent and member.state == "idle" for member in teams.list_members())

    notifier = HookNotifier(
        runtime.inbox.queue,
        runtime.inbox.notice_ids,
        runtime.events.emit_event,
        find_recipient=find_notice_recipient,
        is_idle=is_agent_idle,
    )
    runtime.hooks.runner.subscribe_to_notices(notifier.deliver_notice)
    runtime.hooks.subscribe_to_prompts(notifier.reset_wake_count)
    runtime.inbox.queue.add_delivery_listener(notifier.on_item_delivered)
    runtime.hooks.runner.background.add_change_listener(teams.notify_changed)


class SessionTeamPermissions:
    """Permissions of the lead and its teammates; permissions of the session are the lead's."""

    def __init__(self, running_agents: RunningAgents) -> None:
        self._running_agents = running_agents

    def get_mode(self, agent: AgentRunner) -> PermissionMode:
        return get_permission_engine(agent).mode

    @property
    def session_permissions(self) -> tuple[PermissionSuggestion, ...]:
        return get_permission_engine(self._running_agents.lead).answers.updates

    def apply_session_permission(self, update: PermissionSuggestion) -> None:
        with suppress(ShoalError):  # the user who answered has seen the error
            get_permission_engine(self._running_agents.lead).answers.add_answer(update)


class SessionParts(Struct, frozen=True, kw_only=True):
    """Parts of a session."""

    runtime: Runtime
    tools: ToolRegistry
    """Tools from which agents get their own."""
    lead: AgentRunner
    supervisor: AgentSupervisor
    teams: SessionTeams | MemberHost
    lifecycle_hooks: SessionLifecycleHookRunner
    recovered: RecoveredSessionState | None
    """State that an earlier process of this session left unfinished."""
    undo_history: SessionUndoHistory | None
    """Turns that can be undone; None if nothing is stored."""
    workflows: WorkflowSupervisor
    first_texts: list[str]
    """Texts that a new session's lead gets before the first prompt; empty after that."""


async def build_session_parts(
    options: Options, exit_stack: AsyncExitStack, agents: Sequence[Agent[Any]] = (), *, names_options: bool
) -> SessionParts:
    """Build the parts of a session; `exit_stack` closes them in reverse order. Raises `ShoalError`."""
    config = load_session_config(options, exit_stack)
    runtime = await open_runtime(config, exit_stack)
    supervisor, teams = _create_supervisor_and_teams(runtime)
    workflows = WorkflowSupervisor(ProgramAgents(runtime, supervisor, agents, names_options=names_options))
    await exit_stack.enter_async_context(supervisor)
    await exit_stack.enter_async_context(teams)
    await exit_stack.enter_async_context(workflows)
    tools = _create_tool_registry(runtime, supervisor, teams, workflows)
    lead = _create_lead(runtime, teams, tools)
    runtime.agents.running.register_agent(lead)
    runtime.servers.subscribe_to_tool_changes(
        lambda _: lead.set_tools(*_select_lead_tools(runtime, tools, lead.schemas.requested))
    )
    return SessionParts(
        runtime=runtime,
        tools=tools,
        lead=lead,
        supervisor=supervisor,
        teams=teams,
        lifecycle_hooks=await exit_stack.enter_async_context(SessionLifecycleHookRunner(lead, runtime)),
        recovered=_recover_session_state(runtime),
        undo_history=create_undo_history(config),
        workflows=workflows,
        first_texts=_load_first_texts(runtime),
    )


def _load_first_texts(runtime: Runtime) -> list[str]:
    """Return the initial prompt and the skills of the lead's agent. Raises `SettingsError`."""
    definition = runtime.config.lead_agent
    if definition is None:
        return []
    try:
        skills = runtime.knowledge.invoker.preload_skills(definition.capabilities.skills, definition.name)
    except AgentRequestRefused as error:
        origin = describe_lead_agent_origin(runtime.options, runtime.settings)
        raise SettingsError(f"{origin}: {error}") from error
    runtime.lead.permissions.allow_reading(*skills.directories)
    # A resumed conversation already contains them.
    is_new = runtime.config.history.last is None
    return [*filter(None, (definition.run.initial_prompt, *skills.texts))] if is_new else []


async def connect_session(session: Session, exit_stack: AsyncExitStack) -> RunControlServer | None:
    """Connect a session with what calls it: the inbox queue, hooks, MCP channels and the control socket.

    Return the server of the control socket, if there is one; it serves nobody yet.
    """
    runtime = session.runtime
    named_tools = {*session.parts.tools, *_iter_tools_of_given_agents(runtime)}
    _refuse_rules_without_tools(runtime, named_tools)
    runtime.inbox.queue.add_delivery_listener(session.on_item_delivered)
    channel_messages = McpChannelMessageQueue(session)
    runtime.servers.subscribe_to_channel_messages(channel_messages.receive_pushed_message)
    runtime.inbox.queue.add_delivery_listener(channel_messages.on_item_delivered)
    route_hook_notices(session)
    if (control := await _start_control_server(session, exit_stack)) is not None:
        runtime.events.add_observer(control.publish_event, remote_events=True)
    if runtime.options.lead_channel is None:
        session.notes.extend(_collect_startup_notes(runtime, session.parts.tools, named_tools))
    return control


def _create_supervisor_and_teams(runtime: Runtime) -> tuple[AgentSupervisor, SessionTeams | MemberHost]:
    agent_factory = AgentFactory(runtime)
    launcher = BackendMemberLauncher(runtime)
    supervisor = AgentSupervisor(
        factory=agent_factory,
        queue=runtime.inbox.queue,
        policy=_build_spawn_policy(runtime.config),
        budget=runtime.budget,
        clock=runtime.clock,
        ids=runtime.agents.ids.derive_generator(),
        emit=_choose_supervisor_emit(runtime),
        running_agents=runtime.agents.running,
        remote_launcher=RemoteAgents(runtime, launcher),
    )
    runtime.agents.plans.add_approval_listener(agent_factory.transcripts.save_approved_plan_mode)
    teams = _create_teams_or_member_host(runtime, supervisor, agent_factory, launcher)
    runtime.agents.running.add_source(teams)
    return supervisor, teams


def _choose_supervisor_emit(runtime: Runtime) -> Callable[[JournaledEvent], None]:
    """Leave out the start and the end of an agent from another machine, which its lead journals."""
    membership = runtime.options.membership
    if membership is None or not membership.agent:
        return runtime.events.emit_event

    def emit_others(event: JournaledEvent) -> None:
        if not (isinstance(event, AgentStarted | AgentEnded) and event.agent == membership.agent):
            runtime.events.emit_event(event)

    return emit_others


def _create_tool_registry(
    runtime: Runtime,
    supervisor: AgentSupervisor,
    teams: SessionTeams | MemberHost,
    workflows: WorkflowSupervisor,
) -> ToolRegistry:
    settings = runtime.settings
    tools = ToolRegistry(
        (
            *runtime.tools,
            *_build_agent_tools(runtime, supervisor, teams),
            *build_team_tools(teams),
            *build_background_tools(
                supervisor,
                runtime.processes.shells,
                teams,
                workflows.scripts,
                has_output=not settings.foreign.tools.is_background_disabled or settings.own.workflow_tool,
            ),
            *([build_workflow_tool(workflows.scripts)] if settings.own.workflow_tool else ()),
            runtime.knowledge.create_skill_tool(supervisor),
        )
    )
    runtime.servers.subscribe_to_tool_changes(tools.replace_server_tools)
    return tools


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
        report_tokens=settings.report_tokens if not _is_for_one_agent(config) else _WHOLE_REPORT_TOKENS,
        # Unattended, nobody can be asked: only caps and budgets apply.
        approval_threshold=settings.fan_out_preview if attended else None,
    )


def _is_for_one_agent(config: SessionConfig) -> bool:
    membership = config.options.membership
    return membership is not None and bool(membership.agent)


def _build_agent_tools(
    runtime: Runtime, supervisor: AgentSupervisor, teams: SessionTeams | MemberHost
) -> Iterable[Tool]:
    config, policy = runtime.config, supervisor.policy
    is_denied = runtime.lead.permissions.check_agent_start
    is_remote_possible = config.settings.own.cluster.address is not None and policy.background
    options = AgentToolOptions(
        remote=is_remote_possible,
        background=policy.background and not policy.always_background,
        has_background=policy.background,
        model=policy.model_by_call,
        forks=policy.fork_by_default,
        cwd=config.settings.own.agent_cwd,
        teams=True,
        resources=config.settings.own.teammate_mode == "ray" or is_remote_possible,
    )
    send_to_session = CrossSessionMessenger(
        partial(list_reachable_runs, config.store, config.settings.home)
    ).send
    return build_agent_tools(
        supervisor,
        teams,
        listing=format_agent_list(each for each in config.definitions.all() if not is_denied(each.name)),
        options=options,
        send_to_session=send_to_session,
    )


def _create_teams_or_member_host(
    runtime: Runtime,
    supervisor: AgentSupervisor,
    agent_factory: AgentPreparer,
    launcher: BackendMemberLauncher,
) -> SessionTeams | MemberHost:
    """Create the teams that the session leads or, in a teammate's process, the member host."""
    settings, membership = runtime.settings.own, runtime.options.membership
    team_services = TeamServices(
        runtime=runtime,
        policy=TeamPolicy(
            default_kind=supervisor.policy.default_kind,
            plan_approver=_choose_plan_approver(runtime),
            implicit_teams=settings.implicit_team,
            grace=settings.shutdown_grace,
            stall_after=settings.stall_after,
            report_tokens=settings.report_tokens,
            trust_unsigned=settings.trust_unsigned_mail,
            max_restarts=settings.teammate_restarts,
            form="in-process" if membership is None else "process",
        ),
        agent_factory=agent_factory,
        ids=runtime.agents.ids.derive_generator(),
        lead=lambda: runtime.agents.running.lead,
        permissions=SessionTeamPermissions(runtime.agents.running),
        agents=supervisor,
        launcher=launcher,
    )
    teams: SessionTeams | MemberHost
    if membership is None or membership.agent:
        depth = settings.team_depth
        teams = (
            SessionTeams(team_services)
            if depth == 1
            else NestedTeams(team_services, depth, runtime.agents.teams_by_leader)
        )
    else:
        from shoal.team.members.member_host import MemberHost

        background_hooks = runtime.hooks.runner.background
        teams = MemberHost(team_services, membership, lambda: background_hooks.has_waking_hooks)
    return teams


def _choose_plan_approver(runtime: Runtime) -> PlanApprover:
    """Return who approves required plans of teammates: the lead, if no person is available."""
    approver = runtime.settings.own.plan_approver
    can_ask = runtime.question_broker.can_wait_for_person
    return "lead" if approver == "user" and not can_ask else approver


def _create_lead(
    runtime: Runtime, teams: SessionTeams | MemberHost, session_tools: ToolRegistry
) -> AgentRunner:
    config, options = runtime.config, runtime.options
    tools, deferred = _select_lead_tools(runtime, session_tools)
    replacement = load_replacement_system_prompt(options, coordinator=config.coordinator)
    appended = build_appended_system_prompt(options, config.settings, assistant=config.assistant)
    if (style := runtime.knowledge.output_style.style) is not None and replacement is None:
        replacement = None if style.keeps_coding_instructions else load_prompt_without_manner()
        appended = "\n\n".join(filter(None, (appended, style.format_prompt_section())))
    if missing := find_missing_lead_tools(session_tools, config.lead_agent):
        notice = format_session_notice("missing_tools", names=", ".join(missing))
        appended = "\n\n".join(filter(None, (appended, notice)))
    return AgentRunner(
        identity=runtime.lead.identity,
        model=runtime.lead.model,
        system=build_system_prompt(
            cwd=config.cwd,
            clock=options.clock,
            granted_directories=runtime.lead.granted_directories,
            replacement=replacement,
            instructions="\n\n".join(
                filter(None, (runtime.knowledge.instructions.text, runtime.knowledge.memory))
            ),
            appended=appended,
        ),
        tools=tools,
        schemas=SentToolSchemas(deferred=deferred),
        conversation=Conversation(
            runtime.store.transcript,
            options.clock,
            config.ids,
            messages=config.history.messages,
            last=config.history.last,
        ),
        environment=AgentEnvironment(
            workspace=runtime.lead.workspace,
            processes=runtime.processes.launcher,
            question_broker=runtime.question_broker
            if options.lead_channel is None
            else options.lead_channel.question_broker,
            results=runtime.store.results,
            env=runtime.settings.command_environment,
            clock=options.clock,
            ids=config.ids,
            emit=runtime.events.publish_event,
            session_tools=session_tools,
            journal=runtime.store.journal,
            checkpoints=None if options.membership is None else options.membership.checkpoints,
        ),
        permissions=runtime.lead.permissions,
        hooks=runtime.hooks.create_agent_hooks(
            HookSubjectAgent(
                identity=runtime.lead.identity,
                workspace=runtime.lead.workspace,
                permissions=runtime.lead.permissions,
            )
        ),
        budget=runtime.budget.get_or_create_agent_budget(LEAD_ID, LEAD_KIND),
        inbox=runtime.inbox.queue.open_inbox(LEAD_ID),
        context=AgentContextSources(
            build_briefing=teams.build_lead_briefing,
            save_memory=_create_session_memory(runtime),
            read_mentions=runtime.knowledge.mentions.read_mentions,
            explain_missing_tool=runtime.agents.deferral.explain_missing_tool,
            server_instructions=runtime.servers.create_agent_instructions(),
            path_instructions=runtime.knowledge.create_path_instructions(
                runtime.lead.workspace, runtime.lead.permissions
            ),
        ),
        limits=runtime.lead.loop_limits,
    )


def _select_lead_tools(
    runtime: Runtime, session_tools: ToolRegistry, requested: Sequence[ToolSchema] = ()
) -> tuple[Mapping[str, Tool], frozenset[str]]:
    """Return the tools of the lead, and the names of those that it has to search for.

    `requested` are the schemas in its last request.
    """
    tools = select_lead_tools(
        runtime.options,
        runtime.settings,
        session_tools,
        coordinator=runtime.config.coordinator,
        definition=runtime.config.lead_agent,
    )
    definition, available = runtime.config.lead_agent, runtime.options.available_tools
    of_definition = None if definition is None else definition.capabilities.tools
    is_limited = available is not None or of_definition is not None
    named = (*(available or ()), *(of_definition or ()))
    return runtime.agents.deferral.select_tools(
        tools,
        AgentCapabilities(tools=named if is_limited else None),
        rules=runtime.lead.permissions.get_active_rules(),
        lead_tools=[schema.name for schema in requested],
    )


def _iter_tools_of_given_agents(runtime: Runtime) -> Iterator[str]:
    """Yield the names of tools that only agents of the program have: rules may name them too."""
    return (tool.schema.name for extras in runtime.options.agent_extras.values() for tool in extras.tools)


def _collect_startup_notes(
    runtime: Runtime, tools: ToolRegistry, named_tools: Collection[str]
) -> tuple[str, ...]:
    """Collect the notes for the user at the start of the session. Raises `SettingsError`.

    `named_tools` are the tools that rules can name.
    """
    config, options, problems = runtime.config, runtime.options, runtime.hooks.problems
    return (
        *config.settings.findings.warnings,
        *summarize_unused_items(
            len(runtime.hooks.unused_settings) + len(runtime.knowledge.output_style.unused_items)
        ),
        *config.notes,
        *problems,
        *config.plugins.startup_notes,
        *runtime.processes.startup_notes,
        *_describe_missing_lead_tools(config, tools),
        *config.definitions.describe_agent_file_problems(),
        *runtime.knowledge.list_skill_and_instruction_notices(),
        *runtime.servers.configured.problems,
        *runtime.servers.describe_missing_channels(),
        *find_skipped_flag_rules(
            split_permission_rule_flags(options.allowed_tools),
            is_closed=config.settings.permissions.rules.is_closed,
        ),
        *iter_missing_tool_notes(options.available_tools, named_tools),
        *iter_unknown_rule_warnings((*options.allowed_tools, *options.disallowed_tools), named_tools),
        *config.history.notes,
    )


def _describe_missing_lead_tools(config: SessionConfig, tools: ToolRegistry) -> tuple[str, ...]:
    definition = config.lead_agent
    if definition is None or not (missing := find_missing_lead_tools(tools, definition)):
        return ()
    location = definition.source.locate_field("tools") or str(definition.source)
    names = ", ".join(missing)
    return (f"{location}: the agent {definition.name} names tools that are not available here: {names}.",)


def _refuse_rules_without_tools(runtime: Runtime, tools: Collection[str]) -> None:
    options, settings = runtime.options, runtime.settings
    if options.membership is None:
        # The rules of a member come from its lead, which may be another program with other tools.
        for option in ("allowed_tools", "disallowed_tools"):
            refuse_misspelled_rules(option, split_permission_rule_flags(getattr(options, option)), tools)
    for rule in (*settings.permissions.rules.deny, *settings.permissions.rules.ask):
        refuse_misspelled_rules(rule.source, (str(rule),), tools)


def _recover_session_state(runtime: Runtime) -> RecoveredSessionState | None:
    """Recover the state of an earlier process and continue its counters."""
    config = runtime.config
    # A session without turns may have agents too, which its program started.
    is_resumed = config.options.resume is not None or config.options.continue_last
    has_history = config.history.last is not None or (is_resumed and bool(config.history.damage))
    if not has_history or not config.options.persist:
        return None
    store, history = runtime.store, config.history
    sources = RecoverySources(
        store=history.store,
        journal=store.journal,
        results=store.results,
        outputs=store.directory / "tasks",
        report_tokens=config.settings.own.report_tokens,
    )
    deliveries = LeadTranscriptDeliveries(delivered=history.delivered, answered=history.answered)
    recovered = recover_state_from_journal(sources, deliveries, config.ids.derive_generator())
    runtime.team_store.restore_journaled_tasks(recovered.journaled_tasks)
    recovered.restore_agent_and_shell_counters(runtime.budget, runtime.processes.shells)
    return recovered


async def _start_control_server(session: Session, exit_stack: AsyncExitStack) -> RunControlServer | None:
    options, store = session.runtime.options, session.runtime.store
    # A socket that no other process can find needs no server.
    if session.runtime.config.store.url is None or options.lead_channel is not None:
        return None
    return await exit_stack.enter_async_context(
        RunControlServer(
            store.directory / "control.sock",
            handle=partial(handle_control_command, session),
            steer=lambda message: session.steer(message.text),
            position=store.journal.get_position,
        )
    )


def _create_session_memory(runtime: Runtime) -> SessionMemory | None:
    options = runtime.options
    if not runtime.settings.own.session_memory or not options.persist or options.lead_channel is not None:
        return None
    return SessionMemory(runtime.store.directory / "memory.md", runtime.events.note)
