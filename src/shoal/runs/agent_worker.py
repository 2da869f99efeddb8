"""Agent worker: runs an agent until it and its children are done and its work is accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from shoal.agent.loop import run_agent_loop
from shoal.core.agents.identity import assume_identity
from shoal.core.agents.subagents import ShellCommandResult
from shoal.core.conversation.messages import Message, user_message
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import ShoalError, StateFileError
from shoal.core.events import MessageAuthor
from shoal.core.task_groups import uncancel_current_task
from shoal.core.text.control_tags import escape_control_tags
from shoal.runs.agent_run import AgentRun
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.runs.prepared_agent import AcceptanceCheck, PreparedAgent
from shoal.runs.run_outcome import (
    AgentRunOutcome,
    find_last_assistant_text,
    join_outcome_details,
    outcome_from_loop_result,
)
from shoal.runs.run_texts import format_run_notice
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT

_PARENT: MessageAuthor = "agent"
_RUNTIME: MessageAuthor = "runtime"
MAX_ACCEPTANCE_FAILURES = 3
"""Consecutive failures allowed for the acceptance command."""
MAX_ANSWER_REMINDERS = 3
"""Maximum number of reminders for an agent that ends without its required structured answer."""
_CHECKED_REASONS = ("done", "max_turns")


class AgentWorker:
    """Runs one agent's job. `has_pending_children` is True while the end of a child is unreported."""

    def __init__(self, queue: SharedInboxQueue, has_pending_children: Callable[[], bool]) -> None:
        self._queue = queue
        self._has_pending_children = has_pending_children
        self.acceptance: ShellCommandResult | None = None
        self.interrupted_results: Message | None = None
        """Results for calls that its end interrupted."""
        self._failures = self._reminders = 0

    async def run_job(self, agent_run: AgentRun, prepared: PreparedAgent) -> AgentRunOutcome:
        """Run the job. Expected ends and crashes are both returned as values for the parent to read."""
        agent = prepared.agent
        assume_identity(agent.identity, agent.environment.workspace)
        try:
            return await self._run_until_done(agent_run, prepared)
        except asyncio.CancelledError:
            if not agent_run.stop_reason:
                raise
            uncancel_current_task()
            self._make_conversation_resumable(prepared)
            return AgentRunOutcome(
                status="killed",
                text=find_last_assistant_text(agent.conversation.messages),
                detail=agent_run.stop_reason,
            )
        except ShoalError as error:
            self._make_conversation_resumable(prepared)
            return AgentRunOutcome(
                status="failed", text=find_last_assistant_text(agent.conversation.messages), detail=str(error)
            )
        except Exception as error:  # noqa: BLE001 - boundary around agents: a crash becomes a readable failure
            self._make_conversation_resumable(prepared)
            detail = f"{type(error).__name__}: {error}"
            return AgentRunOutcome(
                status="failed", text=find_last_assistant_text(agent.conversation.messages), detail=detail
            )

    async def _run_until_done(self, agent_run: AgentRun, prepared: PreparedAgent) -> AgentRunOutcome:
        agent = prepared.agent
        prompt, by = prepared.prompt, _PARENT
        max_turns, used_turns = agent.limits.max_turns, 0
        while True:
            if max_turns is not None:
                # Limits the whole job: new input does not reset the count.
                agent.limits = replace(agent.limits, max_turns=max_turns - used_turns)
            result = await run_agent_loop(agent, prompt, by=by)
            used_turns += result.requests
            result, self.interrupted_results = (
                replace(result, requests=used_turns),
                result.interrupted_results,
            )
            prompt, by = None, _RUNTIME
            if result.reason == "done" and await self._wait_for_child_items(prepared):
                continue
            if prepared.acceptance_check is not None and result.reason in _CHECKED_REASONS:
                prompt = await self._run_acceptance_command(prepared.acceptance_check)
            if prompt is None and result.reason == "done":
                prompt = self._remind_of_answer(prepared)
            if agent_run.monitor is not None and agent_run.monitor.used_shell:
                agent_run.monitor.set_commits(await prepared.list_commits())
            # Items that arrived meanwhile are processed before the end.
            is_finished = prompt is None and not self._queue.count_waking_items(agent.identity.agent)
            if result.reason != "done" or is_finished or used_turns == max_turns:
                outcome = outcome_from_loop_result(result, agent.conversation.messages)
                return self._fail_missing_answer(prepared, self._fail_unaccepted_outcome(outcome))

    async def _run_acceptance_command(self, check: AcceptanceCheck) -> Message | None:
        """Run the acceptance command; return a message for the agent if it fails and may be retried."""
        self.acceptance, output = await check()
        if self.acceptance.exit_code == 0:
            self._failures = 0
            return None
        self._failures += 1
        return (
            user_message(_format_acceptance_failure(self.acceptance, output))
            if self._failures < MAX_ACCEPTANCE_FAILURES
            else None
        )

    def _fail_unaccepted_outcome(self, outcome: AgentRunOutcome) -> AgentRunOutcome:
        if outcome.status != "completed" or self.acceptance is None or self.acceptance.exit_code == 0:
            return outcome
        command = self.acceptance.command
        failure = (
            format_end_reason("not_accepted", command=command)
            if self._failures == 1
            else format_end_reason("not_accepted_repeatedly", times=self._failures, command=command)
        )
        return AgentRunOutcome(
            status="failed", text=outcome.text, detail="; ".join(filter(None, (outcome.detail, failure)))
        )

    def _remind_of_answer(self, prepared: PreparedAgent) -> Message | None:
        """Return a reminder for an agent that must give a structured answer; None after too many."""
        tool = prepared.output_tool
        if tool is None or tool.has_answer or self._reminders == MAX_ANSWER_REMINDERS:
            return None
        self._reminders += 1
        return user_message(format_run_notice("answer_missing", tool=STRUCTURED_OUTPUT))

    def _fail_missing_answer(self, prepared: PreparedAgent, outcome: AgentRunOutcome) -> AgentRunOutcome:
        tool = prepared.output_tool
        if tool is None or outcome.status != "completed":
            return outcome
        if tool.has_answer:
            text = outcome.text or msgspec.json.encode(tool.answer).decode()
            return AgentRunOutcome(status="completed", text=text, detail=outcome.detail)
        detail = join_outcome_details(outcome.detail, format_end_reason("no_formatted_answer"))
        return AgentRunOutcome(status="failed", text=outcome.text, detail=detail)

    async def _wait_for_child_items(self, prepared: PreparedAgent) -> bool:
        """Wait for items while children run; return True if something arrived for the agent."""
        agent_id = prepared.agent.identity.agent
        while not self._queue.count_waking_items(agent_id):
            if not self._has_pending_children():
                return False
            await self._queue.wait_for_waking_item(agent_id)
        return True

    def _make_conversation_resumable(self, prepared: PreparedAgent) -> None:
        """Leave the conversation in a resumable state; resuming repairs it if this fails."""
        try:
            self.interrupted_results = prepared.agent.conversation.add_interrupted_call_results()
        except StateFileError:
            return


def _format_acceptance_failure(command: ShellCommandResult, output: str) -> str:
    exit_text = (
        format_end_reason("command_timed_out")
        if command.exit_code is None
        else format_end_reason("command_exited", status=command.exit_code)
    )
    return format_run_notice(
        "acceptance_failed",
        command=command.command,
        outcome=exit_text,
        output=escape_control_tags(output),
    )
