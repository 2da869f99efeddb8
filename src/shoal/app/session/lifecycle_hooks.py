"""Hooks of the session lifecycle: its start, its end, and waiting for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from shoal.agent.hook_points import add_hook_context_message
from shoal.agent.loop import LoopResult
from shoal.app.definitions.path_instructions import describe_instruction_file
from shoal.core.conversation.messages import user_message
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import StateFileError
from shoal.core.events import Event, QuestionAsked, RunFinished, TurnStarted
from shoal.core.extensions.hooks import NO_DECISION, HookDecision, HookEvent, merge_hook_decisions
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import PermissionQuestion, PlanApprovalQuestion, Question
from shoal.core.task_groups import exit_task_group_without_wrapping

if TYPE_CHECKING:
    from shoal.agent.agent_runner import AgentRunner
    from shoal.app.runtime.runtime import Runtime

IDLE_DELAY = 60.0
"""Seconds after a turn until an attending person is notified that the session is idle."""

END_GRACE = 2.0
"""Seconds that hooks of loaded instructions have at the end of a session: they are for logs, and a session
may be shorter than they are."""


class SessionLifecycleHookRunner:
    """Runs lifecycle hooks; entered while the session is open, leaving it cancels running hooks."""

    def __init__(self, lead: AgentRunner, runtime: Runtime) -> None:
        self._lead = lead
        self._runtime = runtime
        self._options = runtime.options
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[HookDecision]] = set()
        self._instruction_tasks: list[asyncio.Task[HookDecision]] = []
        self._start_task: asyncio.Task[HookDecision] | None = None
        self._idle_task: asyncio.Task[HookDecision] | None = None
        self._has_started = False
        self._is_turn_waiting = self._is_message_sent = False
        self._end_reason = "other"
        """Reason of the session end that hooks receive."""

    async def __aenter__(self) -> SessionLifecycleHookRunner:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._running:
            task.cancel()
        await exit_task_group_without_wrapping(self._tasks, kind, error, trace)

    def launch_session_start_hooks(self, *, resumed: bool, send_message: Callable[[str], None]) -> None:
        """Start the Setup and SessionStart hooks; nobody waits for them before the first turn.

        `send_message` sends a message as the user: an attended session without a prompt starts with the
        message of a hook.
        """
        self._has_started = True
        hooks = self._lead.hooks
        setup = self._options.setup if hooks.has_hooks_for("Setup") else None
        if setup is not None or hooks.has_hooks_for("SessionStart"):
            source: str | None = self._options.begun
            if resumed:
                source = "fork" if self._options.fork else "resume"
            self._start_task = self._tasks.create_task(self._run_start_hooks(setup, source))
            self._running.add(self._start_task)
            self._start_task.add_done_callback(partial(self._on_start_hooks_done, send_message))
        if hooks.has_hooks_for("InstructionsLoaded"):
            for file in self._runtime.knowledge.instructions.files:
                fields = to_builtins(describe_instruction_file(file))
                self._instruction_tasks.append(self._schedule_event_hooks("InstructionsLoaded", fields))
        if hooks.has_hooks_for("Notification"):
            self._runtime.events.subscribe(self._on_event)

    async def add_start_hook_context(self) -> LoopResult | None:
        """Add the output of the SessionStart hooks to the conversation before a turn.

        Return the result of the turn if a hook stops the run: the turn does not start.
        """
        if self._start_task is None:
            return None
        self._is_turn_waiting = True
        # An interrupt here does not cancel the hooks: the next turn gets their output.
        decision = await asyncio.shield(self._start_task)
        self._start_task = None
        if decision.session_title and not self._options.title:
            self._runtime.store.transcript.set_title(decision.session_title)
        await add_hook_context_message(self._lead, "SessionStart", decision)
        if decision.initial_message and not self._is_message_sent:
            await self._lead.receive_message(user_message(decision.initial_message), by="person")
        if decision.stop is None:
            return None
        return LoopResult(
            reason="blocked",
            detail=format_end_reason("hook_stopped", event="SessionStart", reason=decision.stop),
        )

    async def wait_for_start_hooks(self) -> None:
        """Wait until the hooks of the start have ended."""
        if self._start_task is not None:
            await asyncio.shield(self._start_task)

    async def _run_start_hooks(self, setup: str | None, source: str | None) -> HookDecision:
        decisions = []
        if setup is not None:
            decisions.append(await self._run_event_hooks("Setup", {"trigger": setup}, delay=0))
        if self._lead.hooks.has_hooks_for("SessionStart"):
            fields = {"source": source, "model": self._lead.model.card.id}
            decisions.append(await self._run_event_hooks("SessionStart", fields, delay=0))
        return merge_hook_decisions(decisions)

    def _on_start_hooks_done(
        self, send_message: Callable[[str], None], task: asyncio.Task[HookDecision]
    ) -> None:
        self._running.discard(task)
        if task.cancelled() or task.exception() is not None or self._is_turn_waiting:
            return
        message = task.result().initial_message
        if message and self._options.attended:
            self._is_message_sent = True
            send_message(message)

    def set_end_reason(self, reason: str) -> None:
        """Set the reason that the SessionEnd hooks get."""
        self._end_reason = reason

    async def run_session_end_hooks(self) -> None:
        if self._instruction_tasks:
            with suppress(TimeoutError):
                async with self._lead.clock.deadline(END_GRACE):
                    await asyncio.wait(self._instruction_tasks)
        for task in self._running:
            task.cancel()
        if self._has_started and self._lead.hooks.has_hooks_for("SessionEnd"):
            await self._run_event_hooks("SessionEnd", {"reason": self._end_reason}, delay=0)

    def _on_event(self, event: Event) -> None:
        match event:
            case QuestionAsked(question=question) if self._runtime.question_broker.can_wait_for_person:
                self._schedule_event_hooks("Notification", _build_question_hook_fields(question))
            case TurnStarted() if self._idle_task is not None:
                self._idle_task.cancel()
                self._idle_task = None
            case RunFinished() if self._options.attended:
                fields = {
                    "message": "Shoal is waiting for your input",
                    "title": "Shoal",
                    "notification_type": "idle_prompt",
                }
                self._idle_task = self._schedule_event_hooks("Notification", fields, delay=IDLE_DELAY)

    def _schedule_event_hooks(
        self, event: HookEvent, fields: Mapping[str, Any], delay: float = 0.0
    ) -> asyncio.Task[HookDecision]:
        task = self._tasks.create_task(self._run_event_hooks(event, fields, delay))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _run_event_hooks(
        self, event: HookEvent, fields: Mapping[str, Any], delay: float
    ) -> HookDecision:
        if delay:
            await self._lead.clock.sleep(delay)
        try:
            return await self._lead.hooks.run_hooks(event, fields)
        except StateFileError:
            # The journal is what failed: the next turn that writes to it reports that.
            return NO_DECISION


def _build_question_hook_fields(question: Question) -> dict[str, str]:
    kind = "permission_prompt"
    match question:
        case PermissionQuestion(tool=tool):
            message = f"Shoal needs your permission to use {tool}"
        case PlanApprovalQuestion():
            message = "A plan is waiting for your approval"
        case _:
            message, kind = "An agent has a question for you", "elicitation_dialog"
    fields = {"message": message, "title": "Shoal", "notification_type": kind}
    return fields if question.agent == LEAD_ID else {**fields, "agent_id": question.agent}
