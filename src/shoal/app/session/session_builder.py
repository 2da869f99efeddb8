"""The composition root: chooses the implementations and connects them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.agent.agent_runner import AgentEnvironment, AgentRunner
from shoal.agent.conversation import Conversation
from shoal.app.agents.agent_services import create_supervisor_and_teams
from shoal.app.config.assistant_mode import build_appended_system_prompt
from shoal.app.config.coordinator_mode import load_replacement_system_prompt, select_lead_tools
from shoal.app.config.journal_recovery import (
    LeadTranscriptDeliveries,
    RecoveredSessionState,
    SessionRecoveryPaths,
    recover_state_from_journal,
)
from shoal.app.config.session_config import SessionConfig, load_session_config
from shoal.app.config.session_memory import SessionMemory
from shoal.app.config.system_prompt import build_system_prompt
from shoal.app.config.tool_selection import (
    iter_unknown_rule_warnings,
    refuse_misspelled_rules,
    refuse_unknown_rules,
)
from shoal.app.config.undo_history import SessionUndoHistory, create_undo_history
from shoal.app.hooks.agent_hooks import HookSubjectAgent
from shoal.app.mcp.mcp_channels import McpChannelMessageQueue, parse_mcp_channel_names
from shoal.app.options import Options
from shoal.app.runtime.runtime import Runtime, open_runtime
from shoal.app.session.control_handler import handle_control_command
from shoal.app.session.lifecycle_hooks import SessionLifecycleHookRunner
from shoal.core.conversation.tools import Tool
from shoal.core.events import PREVIEW_LENGTH
from shoal.core.extensions.hooks import BackgroundHookNotice
from shoal.core.ids import LEAD_ID, LEAD_KIND, AgentId
from shoal.core.text.text_format import to_one_line
from shoal.runs.agent_supervisor import AgentSupervisor
from shoal.runs.control_server import RunControlServer
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.stores.files.sessions.result_files import FileResultStore
from shoal.team.members.member_host import MemberHost
from shoal.team.session_teams import SessionTeams

if TYPE_CHECKING:
    from shoal.app.session.session import Session


def route_hook_notices(session: Session) -> None:
    """Route the notices of background hooks to agents of the session, or to those that replace them."""
    hooks, supervisor, teams = session.runtime.hooks, session.supervisor, session.teams

    def find_notice_recipient(notice: BackgroundHookNotice) -> AgentId | None:
        if notice.event == "SubagentStart" and not supervisor.has_agent_started(notice.agent):
            # It may not have started yet: the notice waits in its queue.
            return notice.agent
        recipient = supervisor.find_inbox_item_recipient(notice.agent)
        # A teammate's process has a lead only nominally.
        return None if recipient == LEAD_ID and isinstance(teams, MemberHost) else recipient

    def is_agent_idle(agent: AgentId) -> bool:
        if agent == LEAD_ID:
            return not session.is_busy
        return any(member.agent == agent and member.state == "idle" for member in teams.list_members())

    assert hooks.notifier is not None
    hooks.notifier.find_recipient, hooks.notifier.is_idle = find_notice_recipient, is_agent_idle
    background = hooks.runner.background
    background.on_change = teams.notify_changed
    if isinstance(teams, MemberHost):
        teams.has_pending_hooks = lambda: background.has_waking_hooks


class SessionParts(Struct, frozen=True, kw_only=True):
    """Parts of a session."""

    runtime: Runtime
    lead: AgentRunner
    supervisor: AgentSupervisor
    teams: SessionTeams | MemberHost
    lifecycle_hooks: SessionLifecycleHookRunner
    recovered: RecoveredSessionState | None
    undo_history: SessionUndoHistory | None


async def build_session_parts(options: Options, exit_stack: AsyncExitStack) -> SessionParts:
    """Build the parts of a session; `exit_stack` closes them in reverse order. Raises `ShoalError`."""
    config = load_session_config(options, exit_stack)
    runtime = await open_runtime(config, exit_stack)
    supervisor, teams = create_supervisor_and_teams(runtime)
    await exit_stack.enter_async_context(supervisor)
    await exit_stack.enter_async_context(teams)
    lead = _create_lead(runtime)
    supervisor.set_lead(lead)
    runtime.servers.on_tools_changed = lambda: lead.set_tools(_select_lead_tools(runtime))
    return SessionParts(
        runtime=runtime,
        lead=lead,
        supervisor=supervisor,
        teams=teams,
        lifecycle_hooks=await exit_stack.enter_async_context(SessionLifecycleHookRunner(lead, runtime)),
        recovered=_recover_session_state(runtime),
        undo_history=create_undo_history(config),
    )


async def connect_session(session: Session, exit_stack: AsyncExitStack) -> None:
    """Connect a session with what calls it: the inbox queue, hooks, MCP channels and the control socket."""
    runtime = session.runtime
    _refuse_rules_without_tools(runtime)
    runtime.queue.add_delivery_listener(session.on_item_delivered)
    runtime.servers.channels = _create_mcp_channels(runtime.config, session)
    route_hook_notices(session)
    if (control := await _start_control_server(session, exit_stack)) is not None:
        runtime.events.add_observer(control.publish_event, remote_events=True)
    if runtime.options.lead_channel is None:
        session.notes.extend(_collect_startup_notes(runtime))
        session.notes.extend(_describe_unknown_events(session.recovered))


def _create_lead(runtime: Runtime) -> AgentRunner:
    config, options = runtime.config, runtime.options
    return AgentRunner(
        identity=runtime.identity,
        model=runtime.model,
        system=build_system_prompt(
            cwd=config.cwd,
            clock=options.clock,
            granted_directories=runtime.granted_directories,
            replacement=load_replacement_system_prompt(options, coordinator=config.coordinator),
            instructions=runtime.knowledge.instructions.text,
            appended=build_appended_system_prompt(options, assistant=config.assistant),
        ),
        tools=_select_lead_tools(runtime),
        conversation=Conversation(
            runtime.store.transcript,
            options.clock,
            config.ids,
            messages=config.history.messages,
            last=config.history.last,
        ),
        environment=AgentEnvironment(
            workspace=runtime.workspace,
            processes=runtime.processes,
            question_broker=runtime.question_broker
            if options.lead_channel is None
            else options.lead_channel.question_broker,
            results=FileResultStore(runtime.store.directory / "results"),
            env=runtime.settings.tool_environment,
        ),
        permissions=runtime.permissions,
        hooks=runtime.hooks.create_agent_hooks(
            HookSubjectAgent(
                identity=runtime.identity, workspace=runtime.workspace, permissions=runtime.permissions
            )
        ),
        budget=runtime.budget.get_or_create_agent_budget(LEAD_ID, LEAD_KIND),
        inbox=runtime.queue.open_inbox(LEAD_ID),
        save_memory=_create_session_memory(runtime),
        emit=runtime.events.publish_event,
        clock=options.clock,
        ids=config.ids,
        limits=runtime.loop_limits,
    )


def _select_lead_tools(runtime: Runtime) -> dict[str, Tool]:
    return select_lead_tools(runtime.options, runtime.tools, coordinator=runtime.config.coordinator)


def _create_mcp_channels(config: SessionConfig, session: Session) -> McpChannelMessageQueue | None:
    """Create the queue of pushed messages. Raises `SettingsError` for an unusable flag."""
    options = config.options
    names = parse_mcp_channel_names(options.channels, "--channels")
    names |= parse_mcp_channel_names(config.settings.own.channels, "shoal.channels")
    # A teammate's process has no lead that could receive them.
    return McpChannelMessageQueue(session, names) if names and options.lead_channel is None else None


def _collect_startup_notes(runtime: Runtime) -> tuple[str, ...]:
    """Collect the notes for the person at the start of the session. Raises `SettingsError`."""
    config, options = runtime.config, runtime.options
    return (
        *config.settings.warnings,
        *config.notes,
        *runtime.hooks.problems,
        *config.plugins.startup_notes,
        *config.definitions.describe_agent_file_problems(),
        *runtime.knowledge.list_skill_and_instruction_notices(),
        *runtime.servers.configured.problems,
        *runtime.servers.describe_missing_channels(),
        *iter_unknown_rule_warnings((*options.allowed_tools, *options.disallowed_tools), runtime.tools),
        *config.history.notes,
    )


def _refuse_rules_without_tools(runtime: Runtime) -> None:
    options, settings, tools = runtime.options, runtime.settings, runtime.tools
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
    return (f"Cannot read some events of the journal ({types}). The session continues without them.",)


def _recover_session_state(runtime: Runtime) -> RecoveredSessionState | None:
    """Recover the state of an earlier process and continue its counters."""
    config = runtime.config
    if not config.history.turns or not config.options.persist:
        return None
    directory, history = runtime.store.directory, config.history
    paths = SessionRecoveryPaths(
        journal=directory / "journal.jsonl",
        subagents=config.agent_transcripts_directory,
        outputs=directory / "tasks",
        results=directory / "results",
        report_tokens=config.settings.own.report_tokens,
    )
    deliveries = LeadTranscriptDeliveries(delivered=history.delivered, answered=history.answered)
    recovered = recover_state_from_journal(paths, deliveries, config.ids.derive_generator())
    recovered.restore_agent_and_shell_counters(runtime.budget, runtime.shells)
    return recovered


async def _start_control_server(session: Session, exit_stack: AsyncExitStack) -> RunControlServer | None:
    options, store = session.runtime.options, session.runtime.store
    if not options.persist or options.lead_channel is not None:
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


def _create_session_memory(runtime: Runtime) -> SessionMemory | None:
    options = runtime.options
    if not runtime.settings.own.session_memory or not options.persist or options.lead_channel is not None:
        return None
    return SessionMemory(runtime.store.directory / "memory.md", runtime.events.note)
