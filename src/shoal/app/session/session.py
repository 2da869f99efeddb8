"""A session: the lead agent and everything it owns, from the first prompt to the last cleanup."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.agent import compaction
from shoal.agent.agent_texts import load_prompt
from shoal.agent.forks import ask_model_outside_conversation, suggest_next_prompt
from shoal.app.config.session_memory import SessionMemory
from shoal.app.options import Options
from shoal.app.session import (
    person_notifier,
    session_cleanup,
    snapshot_update,
    typed_commands,
)
from shoal.app.session.recovery import start_or_recover_session
from shoal.app.session.turn import (
    LastWorkingPermissionModeTracker,
    StoppedAgentsAndCommands,
    Turn,
    TurnRunner,
)
from shoal.app.session.typed_commands import SlashCommandInvocation
from shoal.core.agents.subagents import AgentMessageDeliveryReceipt, AgentStatusSnapshot
from shoal.core.budgets.usage import SessionSpending
from shoal.core.compact_event import CompactEvent
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import Message, TextBlock, user_message
from shoal.core.core_texts import format_end_reason
from shoal.core.events import (
    Event,
    InboxItemMode,
    JournaledEvent,
    MessageAuthor,
    NotificationDelivered,
    PermissionModeChanged,
    QueueItemAdded,
    QueueItemWithdrawn,
    SessionEnded,
)
from shoal.core.ids import LEAD_ID, AgentId, EntryId, SessionId
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.task_groups import (
    exit_task_group_unwrapping_one_error,
    race_coroutines,
)
from shoal.runs.agent_registry import LEAD_NAMES
from shoal.team.session_teams import SessionTeams
from shoal.wire.json_codec import encode_json
from shoal.wire.notification_text import format_mail_message

if TYPE_CHECKING:
    from shoal.agent.agent_runner import AgentRunner
    from shoal.app.agents.agent import Agent
    from shoal.app.config.journal_recovery import RecoveredSessionState
    from shoal.app.config.session_config import SessionConfig
    from shoal.app.config.undo_history import UndoableTurn
    from shoal.app.definitions.instructions import LoadedInstructionFiles
    from shoal.app.runtime.runtime import Runtime
    from shoal.app.session.session_builder import SessionParts
    from shoal.app.settings.settings import Settings
    from shoal.app.skills.knowledge import SkillsAndInstructions
    from shoal.app.skills.skill_catalog import SkillAndCommandLibrary
    from shoal.app.workflows.workflow_supervisor import WorkflowSupervisor
    from shoal.core.agents.agent_definitions import AgentDefinition
    from shoal.core.budgets.budget import Budget
    from shoal.core.budgets.limits import BudgetLimits
    from shoal.core.budgets.usage import ModelCard
    from shoal.core.clock import Clock
    from shoal.core.extensions.hooks import Hook
    from shoal.core.extensions.mcp_servers import McpServerStatus
    from shoal.core.extensions.plugins import Plugin
    from shoal.core.extensions.skills import TypedCommand
    from shoal.core.ports import Journal
    from shoal.core.store import Store
    from shoal.core.teams.team_operations import TeammateStatusSnapshot
    from shoal.core.teams.team_storage import TaskBoard
    from shoal.runs.agent_supervisor import AgentSupervisor
    from shoal.runs.question_broker import AnswerableQuestions
    from shoal.team.members.member_host import MemberHost
    from shoal.tools.shell_supervisor import BackgroundShellProcess
    from shoal.workspaces.checkpoints import FileUndoReport

GATHER_INTERVAL = 0.05
"""Maximum seconds between two messages that share one turn."""
GATHER_TIMEOUT = 0.2


class Session:
    """A session, opened with `async with`; leaving the block ends everything it started."""

    parts: SessionParts
    """Parts of the open session."""

    def __init__(
        self, options: Options, agents: Sequence[Agent[Any]] = (), *, names_options: bool = False
    ) -> None:
        """`agents` are those of a program; with `names_options`, errors name its options and not flags."""
        self._options, self._exit = options, AsyncExitStack()
        self._agents, self._names_options = tuple(agents), names_options
        self._last_mode = LastWorkingPermissionModeTracker()
        self._entry_ids: set[str] | None = None
        self.chosen_model: str | None = None
        """Model that the user chose in the session; None if it is the one that the session started with."""
        self.stop_requested = CompactEvent()
        """Set when a program asked the run to end; the surface ends it."""
        self.interrupted_agents: tuple[AgentStatusSnapshot, ...] = ()
        """Agents that were working when the deadline passed."""
        self._stop_lock = asyncio.Lock()
        self.expects_input = options.attended
        """True if a person or a driving program may still send input."""
        self.notes: list[str] = []
        """Notes for the user about the start of the session."""

    @property
    def runtime(self) -> Runtime:
        return self.parts.runtime

    @property
    def agent(self) -> AgentRunner:
        """The lead."""
        return self.parts.lead

    @property
    def supervisor(self) -> AgentSupervisor:
        return self.parts.supervisor

    @property
    def teams(self) -> SessionTeams | MemberHost:
        return self.parts.teams

    @property
    def led_teams(self) -> SessionTeams | None:
        """Teams that the session leads; None in a teammate's process."""
        return self.teams.led_teams

    @property
    def workflows(self) -> WorkflowSupervisor:
        return self.parts.workflows

    @property
    def recovered(self) -> RecoveredSessionState | None:
        """State that an earlier process of this session left unfinished."""
        return self.parts.recovered

    @property
    def id(self) -> SessionId:
        return self.agent.identity.session

    @property
    def turn(self) -> int:
        """Number of the running turn, or of the last one."""
        return self.runtime.events.turn

    @property
    def is_busy(self) -> bool:
        return self._turns.running is not None

    @property
    def clock(self) -> Clock:
        return self._options.clock

    @property
    def cwd(self) -> Path:
        """Root of the lead's workspace."""
        return self.runtime.lead.workspace.root

    @property
    def config(self) -> SessionConfig:
        return self.runtime.config

    @property
    def knowledge(self) -> SkillsAndInstructions:
        return self.runtime.knowledge

    @property
    def budget(self) -> Budget:
        return self.runtime.budget

    @property
    def settings(self) -> Settings:
        return self.runtime.settings

    @property
    def store(self) -> Store:
        """Store of the session and of others in its home."""
        return self.config.store

    @property
    def questions(self) -> AnswerableQuestions:
        """Open questions for a person, and the way to answer them."""
        return self.runtime.question_broker

    @property
    def is_assistant(self) -> bool:
        """True in assistant mode: the session waits for messages until it is stopped."""
        return self.config.assistant

    @property
    def spending(self) -> SessionSpending:
        """Tokens and cost of all agents so far."""
        budget = self.runtime.budget
        return SessionSpending(
            usd=budget.usd if budget.is_priced else None,
            usage=budget.usage,
            by_model=budget.spending_by_model,
        )

    def find_agent_cost(self, agent: AgentId) -> float | None:
        """Return the dollars that an agent spent; None if the price of a model is unknown."""
        return self.runtime.budget.find_agent_cost(agent)

    @property
    def budget_seconds_left(self) -> float | None:
        """Seconds until the time limit of the budget is reached; None without such a limit."""
        budget = self.runtime.budget
        return None if budget.deadline is None else budget.deadline - budget.clock.monotonic()

    @property
    def budget_limits(self) -> BudgetLimits:
        return self.runtime.budget.limits

    def open_resumable_store(self) -> Store:
        """Return the store with earlier sessions."""
        from shoal.app.config.session_history import open_resumable_store

        return open_resumable_store(self._options, self.store, self.settings)

    def list_agent_definitions(self) -> tuple[AgentDefinition, ...]:
        return self.config.definitions.all()

    def list_plugins(self) -> tuple[Plugin, ...]:
        return self.config.plugins.all

    def list_slash_commands(self) -> tuple[TypedCommand, ...]:
        """Return everything the user can type as a slash command."""
        return self.knowledge.list_slash_commands()

    @property
    def skills(self) -> SkillAndCommandLibrary:
        return self.knowledge.skills

    @property
    def instructions(self) -> LoadedInstructionFiles:
        """Instruction files that the lead got at the start."""
        return self.knowledge.instructions

    @property
    def output_style(self) -> str:
        return self.knowledge.output_style.name

    def list_output_styles(self) -> list[str]:
        from shoal.app.definitions.output_styles import list_output_style_names

        return list_output_style_names(self.settings, self.config.cwd, self.config.plugins.list_style_dirs())

    @property
    def messages(self) -> Sequence[Message]:
        """Messages of the lead's conversation."""
        return self.agent.conversation.messages

    @property
    def model_card(self) -> ModelCard:
        return self.agent.current_model.card

    @property
    def permission_mode(self) -> PermissionMode:
        return self.runtime.lead.permissions.mode

    @property
    def can_bypass_permissions(self) -> bool:
        return self.runtime.lead.permissions.can_bypass

    @property
    def led_team_name(self) -> str:
        """Name of the team that the lead leads; empty if there is none."""
        return "" if self.led_teams is None else self.led_teams.led_team_name

    def list_hooks(self) -> tuple[Hook, ...]:
        """Return the hooks shared by all agents."""
        return tuple(hook for hooks in self.runtime.hooks.by_event.values() for hook in hooks)

    @property
    def key_source(self) -> str:
        """Variable with the key of the lead's provider, `apiKeyHelper`, or `none`."""
        return self.settings.find_key_source(self.model_card.provider)

    def list_mcp_servers(self) -> Sequence[McpServerStatus]:
        return self.runtime.servers.list_statuses()

    async def list_resource_mentions(self) -> Sequence[tuple[str, str]]:
        """Return `server:uri` and a description of each resource of the connected MCP servers."""
        return await self.runtime.servers.list_resource_mentions()

    async def wait_for_mcp_servers(self) -> None:
        await self.runtime.servers.wait_until_ready()

    def is_slash_command(self, prompt: str | Message) -> bool:
        return typed_commands.is_slash_command(self.runtime, prompt)

    def parse_slash_command(self, prompt: str | Message) -> str | Message | SlashCommandInvocation:
        """Return the prompt, or the invocation of its command.

        Raises `UnknownSkill` or `InvalidAgentDefinition`.
        """
        return typed_commands.parse_slash_command(self.runtime, prompt)

    async def parse_slash_command_when_ready(
        self, prompt: str | Message
    ) -> str | Message | SlashCommandInvocation:
        """Parse a prompt, waiting first for the servers if it names a command of one."""
        return await typed_commands.parse_slash_command_when_ready(self.runtime, prompt)

    def list_subagents(self) -> tuple[AgentStatusSnapshot, ...]:
        """Return the sub-agents of the session, ended ones too."""
        return self.supervisor.list_agents()

    def list_running_subagents(self) -> tuple[AgentStatusSnapshot, ...]:
        now = self.clock.monotonic()
        return tuple(run.take_snapshot(now) for run in self.supervisor.list_running_agents())

    def list_members(self) -> Sequence[TeammateStatusSnapshot]:
        """Return the running members of the team, except the lead."""
        return self.teams.list_members()

    def list_shells(self) -> Sequence[BackgroundShellProcess]:
        return self.runtime.processes.shells.list_shells()

    def open_board(self, name: str) -> TaskBoard:
        """Open the board of a team, or of the session with that id."""
        return self.runtime.team_store.open_board(name)

    @property
    def journal(self) -> Journal:
        return self.runtime.store.journal

    @property
    def has_running_subagents(self) -> bool:
        """True if any sub-agent is running or its end is not reported yet."""
        return self.supervisor.has_running_agents

    def count_waking_items(self) -> int:
        """Return how many queued items would wake the lead."""
        return self.runtime.inbox.queue.count_waking_items(LEAD_ID)

    async def wait_for_waking_item(self) -> None:
        await self.runtime.inbox.queue.wait_for_waking_item(LEAD_ID)

    def expect_input(self) -> None:
        """Wait for further input when all agents are idle, and leave questions open for a person."""
        self.expects_input = True

    def expect_no_input(self) -> None:
        self.expects_input = False

    def set_end_reason(self, reason: str) -> None:
        """Set the reason that the SessionEnd hooks get."""
        self.parts.lifecycle_hooks.set_end_reason(reason)

    @property
    def memory(self) -> SessionMemory | None:
        """Notes of the session; None if it keeps none."""
        memory = self.agent.context.save_memory
        return memory if isinstance(memory, SessionMemory) else None

    async def __aenter__(self) -> Session:
        from shoal.app.session.session_builder import build_session_parts, connect_session

        try:
            self.parts = await build_session_parts(
                self._options, self._exit, self._agents, names_options=self._names_options
            )
            self._options = self.runtime.options
            self._ids = self.agent.ids.derive_generator()
            self._tasks = await asyncio.TaskGroup().__aenter__()
            self._turns = TurnRunner(self, self._tasks)
            control = await connect_session(self, self._exit)
            self._exit.push_async_exit(partial(exit_task_group_unwrapping_one_error, self._tasks))
            self._exit.callback(self.runtime.question_broker.late_answers.close)
            await start_or_recover_session(self)
            if control is not None:
                control.start_serving()
            if self._options.lead_channel is None:
                person_notifier.attach_person_notifier(self, self._tasks)
                self.runtime.servers.start()
                if self._options.persist and self._options.store is None:
                    session_cleanup.start_old_session_cleanup(self, self._tasks, self._exit)
                    snapshot_update.start_snapshot_updates(self, self._tasks, self._exit)
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(self, *exc: Any) -> None:
        reason = format_end_reason("session_ended")
        try:
            await self.interrupt()
            await self.workflows.stop_all(reason)
            await self.teams.close()
            await self.supervisor.stop_all_agents(reason)
            await self.runtime.processes.shells.stop_all(reason)
            await self.runtime.hooks.runner.stop_background_hooks(reason)
            await self.parts.lifecycle_hooks.run_session_end_hooks()
            if self._options.lead_channel is None:
                await self.publish_event(SessionEnded(agent=LEAD_ID))
        finally:
            await self._exit.__aexit__(*exc)

    def subscribe(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Subscribe to all events, in turns and between them; return a function that unsubscribes.

        The callback must not block. A callback that raises is removed, and the session continues.
        """
        return self.runtime.events.subscribe(callback)

    def emit_event(self, event: JournaledEvent) -> None:
        """Publish an event from code that cannot await."""
        self.runtime.events.emit_event(event)

    async def publish_event(self, event: Event) -> None:
        await self.runtime.events.publish_event(event)

    def note(self, text: str) -> None:
        """Publish a note for the user."""
        self.runtime.events.note(text)

    def run(self, prompt: str | Message | SlashCommandInvocation | None) -> Turn[Any]:
        """Start a turn and return its events. Without a prompt it handles the queued items."""
        return self._turns.start_turn(prompt)

    async def next_turn(self, *, wait_for_input: bool = False) -> Turn[Any] | None:
        """Return the next turn triggered by a queued item, waiting while agents and hooks work; None if none.

        At the session's deadline working agents are stopped and listed in `interrupted_agents`. With
        `wait_for_input` the wait continues after the agents end; in assistant mode it never ends.
        """
        queue, is_assistant = self.runtime.inbox.queue, self.runtime.config.assistant
        self.expects_input = self.expects_input or wait_for_input
        if wait_for_input and not is_assistant and not self._has_running_agents:
            # No agent is working that the deadline could cut off.
            await queue.wait_for_waking_item(LEAD_ID)
        try:
            async with self.agent.clock.deadline(self.seconds_until_deadline):
                if not queue.count_waking_items(LEAD_ID):
                    idle_waits = (
                        () if is_assistant and wait_for_input else (self._wait_until_agents_and_hooks_idle(),)
                    )
                    await race_coroutines(self._tasks, *idle_waits, queue.wait_for_waking_item(LEAD_ID))
                await self._wait_briefly_for_more_results()
        except TimeoutError:
            await session_cleanup.stop_all_work(self, self._stop_lock, format_end_reason("deadline_passed"))
            return None
        return self.run(None) if queue.count_waking_items(LEAD_ID) else None

    @property
    def _has_running_agents(self) -> bool:
        supervisor, workflows = self.supervisor, self.workflows
        return supervisor.has_running_agents or self.teams.is_working or workflows.has_background_work

    async def _wait_until_agents_and_hooks_idle(self) -> None:
        background = self.runtime.hooks.runner.background
        while True:
            await self.wait_agents_idle()
            await background.wait_until_no_waking_hooks()
            if not self._has_running_agents:
                return

    @property
    def can_be_woken(self) -> bool:
        """True if external input may start a turn: it must not keep a finished run alive."""
        return self.expects_input or self.runtime.config.assistant or self._has_running_agents

    async def _wait_briefly_for_more_results(self) -> None:
        """Wait briefly so that agents that end together are reported in one turn."""
        queue, clock = self.runtime.inbox.queue, self.agent.clock
        deadline, seen_count = clock.monotonic() + GATHER_TIMEOUT, 0
        while (
            self._has_running_agents
            and queue.count_waking_items(LEAD_ID) > seen_count
            and clock.monotonic() < deadline
        ):
            seen_count = queue.count_waking_items(LEAD_ID)
            await race_coroutines(self._tasks, self.wait_agents_idle(), clock.sleep(GATHER_INTERVAL))

    def steer(self, message: str | Message) -> None:
        """Send a message to the working lead; it receives it at the next tool-round boundary."""
        self.queue_message(user_message(message) if isinstance(message, str) else message, by="person")

    def queue_message_from_other_session(self, sender: str, text: str, summary: str) -> None:
        """Queue a message from an agent of another session; it wakes the lead like its own agents do."""
        self.queue_message(user_message(format_mail_message(sender, text, summary=summary)), by="agent")

    def queue_message(
        self,
        message: Message,
        *,
        by: MessageAuthor,
        mode: InboxItemMode = "prompt",
        identity: str = "",
        wakes: bool = True,
    ) -> str:
        """Journal and queue a message for the lead; return its item id."""
        item = InboxItem(
            id=identity or self._ids.new_short_id(),
            to=LEAD_ID,
            content=message.content,
            by=by,
            mode=mode,
            wakes=wakes,
        )
        self.emit_event(
            QueueItemAdded(
                agent=LEAD_ID,
                item=item.id,
                by=by,
                text=message.text,
                mode=mode,
                quiet=not wakes,
                content_file=self._store_content_beyond_text(item),
            )
        )
        self.runtime.inbox.queue.put(item)
        return item.id

    def _store_content_beyond_text(self, item: InboxItem) -> str:
        """Store content that is more than text, such as images; return its file, or an empty string."""
        if all(isinstance(block, TextBlock) for block in item.content):
            return ""
        results = self.agent.environment.results
        return str(results.save_result(f"queued-{item.id}.json", encode_json(item.content)))

    def assign_prompt_id(self, prompt: Message, wanted: str = "") -> str:
        """Choose the id of the transcript entry of the next prompt: `wanted`, unless the session has it."""
        from shoal.app.session.session_changes import read_entry_ids

        if self._entry_ids is None:
            self._entry_ids = read_entry_ids(self)
        entry = wanted if wanted and wanted not in self._entry_ids else self.config.ids.new_entry_id()
        self._entry_ids.add(entry)
        self.agent.conversation.set_entry_id(prompt, EntryId(entry))
        return entry

    def withdraw_queued_prompts(self) -> tuple[Message, ...]:
        """Take back prompts that came too late for the lead; the caller owns them now."""
        prompts = self.runtime.inbox.queue.take_user_prompts(LEAD_ID)
        for item in prompts:
            self.emit_event(QueueItemWithdrawn(agent=LEAD_ID, item=item.id))
        return tuple(Message(role="user", content=item.content) for item in prompts)

    def on_item_delivered(self, item: InboxItem) -> None:
        """Handle an item that has entered an agent's conversation."""
        if item.mode == "task-notification":
            self.emit_event(NotificationDelivered(agent=item.to, completion=item.id))
        self.runtime.hooks.on_item_delivered(item)
        self.teams.on_item_entered(item)

    async def interrupt(self) -> bool:
        """End the running turn but not the session; False if none is running."""
        return await self._turns.interrupt()

    async def compact(self, instructions: str = "") -> None:
        """Replace the conversation with a summary of itself."""
        self._turns.require_no_running_turn()
        await compaction.compact_conversation(self.agent, "manual", instructions=instructions)

    async def ask_side_question(self, question: str) -> str:
        """Return the lead's answer to a question that never enters its conversation, even while it works."""
        return await ask_model_outside_conversation(self.agent, f"{load_prompt('aside')}\n{question}")

    async def suggest_prompt(self) -> str:
        """Suggest the user's next prompt in one line; empty if there is no suggestion."""
        return await suggest_next_prompt(self.agent) if self.agent.conversation.messages else ""

    async def set_model(self, name: str | None) -> None:
        """Use another model from the next request on; None means the model that the session started with."""
        model = await self.runtime.models.choose_model(name or self._options.model)
        self.agent.budget.require_priced_model(model.card)
        self.agent.set_model(model)
        mode = self.runtime.lead.permissions.mode
        self.emit_event(PermissionModeChanged(agent=LEAD_ID, mode=mode, model=model.card.id))
        self.chosen_model = name

    def set_mode(self, mode: PermissionMode) -> None:
        """Set the permission mode. Raises `SettingsError` if skipping permissions is not enabled."""
        permissions = self.runtime.lead.permissions
        permissions.set_mode(
            mode,
            return_mode=self._last_mode.resolve_mode_before_plan(
                permissions.mode, self.agent.state.reply_count
            ),
        )
        model = self.agent.current_model.card.id
        self.emit_event(PermissionModeChanged(agent=LEAD_ID, mode=mode, model=model))

    def set_delegate_mode(self, *, enabled: bool) -> None:
        """Restrict the lead to delegation, or restore all its tools, from its next call on."""
        from shoal.app.session.delegate_mode import set_delegate_mode

        set_delegate_mode(self, enabled=enabled)

    def list_undoable_turns(self) -> tuple[UndoableTurn, ...]:
        """Return the turns that can be undone, oldest first; none if nothing is stored."""
        undo_history = self.parts.undo_history
        return () if undo_history is None else undo_history.list_undoable_turns()

    async def undo(self, turn: int | None = None, *, conversation: bool = False) -> FileUndoReport:
        """Restore files, optionally the conversation, to before a turn (default: the last with changes)."""
        from shoal.app.session.session_changes import undo_turn

        if conversation:
            self._turns.require_no_running_turn()
        return await undo_turn(self, turn, conversation=conversation)

    def move_to_background(self, agent: str | None = None) -> tuple[AgentId, ...]:
        """Move an agent, or all, to the background; the same run continues. Return the moved agents."""
        return self.supervisor.move_to_background(None if agent is None else AgentId(agent))

    async def stop_task(self, task: str) -> str:
        """Stop an agent, a shell or a workflow; return its description. Raises `AgentRequestRefused`."""
        reason = format_end_reason("stopped_by_user")
        shell = self.runtime.processes.shells.find_shell(task)
        if shell is not None and shell.status == "running":
            await shell.stop(reason)
            return shell.command
        if await self.teams.end_member(task, reason):
            return task
        if await self.workflows.stop(task, reason):
            return f"workflow {task}"
        return (await self.supervisor.stop_running_agent(task, reason)).description

    async def stop_agents(
        self, reason: str = "it was stopped by the user"
    ) -> tuple[AgentStatusSnapshot, ...]:
        """Stop every agent except the lead; return those that were working."""
        return await self.supervisor.stop_all_agents(reason)

    async def stop_shells(self) -> tuple[BackgroundShellProcess, ...]:
        """Stop every background command and return them."""
        return await self.runtime.processes.shells.stop_all()

    async def stop_all(self) -> StoppedAgentsAndCommands:
        """Stop every agent except the lead and every background command; the lead continues."""
        agents = await self.stop_agents()
        shells = await self.runtime.processes.shells.stop_all(format_end_reason("stopped_by_user"))
        return StoppedAgentsAndCommands(agents=agents, commands=tuple(shell.facts for shell in shells))

    async def send(self, to: str, text: str) -> AgentMessageDeliveryReceipt:
        """Send a person's text to any agent. The lead receives it as steering, or in a new turn."""
        if to in LEAD_NAMES:
            self.steer(text)
            return AgentMessageDeliveryReceipt(to=LEAD_ID, name="lead", how="queued")
        return await self.teams.send_user_message(to, text) or await self.supervisor.send_user_message(
            to, text
        )

    @property
    def has_working_agents(self) -> bool:
        """True if an agent other than the lead is working."""
        runs = self.supervisor.list_running_agents()
        return self.teams.is_working or any(run.completion is None for run in runs)

    @property
    def has_live_agents(self) -> bool:
        """True if an agent other than the lead works, is idle in a team, or is not cleaned up yet."""
        return self.supervisor.has_running_agents or bool(self.teams.list_members())

    async def wait_agents_idle(self) -> None:
        """Wait until no agent other than the lead is working. An agent that awaits this itself deadlocks."""
        while True:
            await self.supervisor.wait_until_idle()
            await self.teams.wait_until_idle()
            await self.workflows.wait_until_idle()
            if not self._has_running_agents:
                return

    @property
    def is_past_deadline(self) -> bool:
        """True if the deadline has passed."""
        return self.seconds_until_deadline <= 0

    @property
    def seconds_until_deadline(self) -> float:
        if self._options.deadline is None:
            return float("inf")
        return self.runtime.config.started_at + self._options.deadline - self.agent.clock.monotonic()
