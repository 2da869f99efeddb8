"""Execution of the tool calls of one message: concurrently where allowed, else in order."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import groupby, islice
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.agent_texts import format_notice
from shoal.agent.hook_points import (
    TurnEndingHooks,
    add_path_instructions,
    append_hook_context_to_output,
    run_denial_hooks,
    run_permission_hooks,
    run_post_tool_hooks,
    run_pre_tool_hooks,
    run_tool_batch_hooks,
)
from shoal.agent.repetition_guard import may_change_files
from shoal.agent.work_checkpoints import (
    note_possible_change,
    refuse_before_files_are_stored,
    store_files_of_call,
)
from shoal.core.clock import run_with_deadline
from shoal.core.conversation.messages import (
    MALFORMED_INPUT_KEY,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
    user_message,
)
from shoal.core.conversation.tools import (
    TOOL_ALIASES,
    SelfDescribingTool,
    Tool,
    ToolContext,
    ToolOutput,
    create_tool_error_output,
)
from shoal.core.errors import QuestionUnanswerable, ShoalError, StateFileError
from shoal.core.events import (
    PREVIEW_LENGTH,
    PermissionDenied,
    ToolFinished,
    ToolOutputReturned,
    ToolProgressed,
    ToolStarted,
)
from shoal.core.extensions.hooks import NO_DECISION, NO_HOOKS, HookDecision, HookEvent
from shoal.core.permissions.permission_changes import format_session_permission_rules
from shoal.core.permissions.permission_decisions import (
    AllowDecision,
    AskDecision,
    DenyDecision,
    PermissionDecision,
)
from shoal.core.permissions.questions import AllowAnswer, Answer, DenyAnswer, PermissionQuestion, Question
from shoal.core.ports import ResultStore
from shoal.core.text.control_tags import escape_control_tags
from shoal.wire.json_codec import encode_json

_PREVIEW_KEYS = ("command", "file_path", "pattern", "url", "path", "subject", "description", "prompt", "plan")
"""Input fields that describe a call; the first one present is its preview."""
_MAX_PREVIEW_FIELDS = 8
_FILE_ARGUMENTS = {
    "Read": "file_path",
    "Edit": "file_path",
    "Write": "file_path",
    "NotebookEdit": "notebook_path",
}
"""Tools that use one file, and the argument that names it."""
EMPTY_OUTPUT = "(no output)"


def limit_and_escape_tool_output(
    output: ToolOutput, call: ToolUseBlock, results: ResultStore, limit: int
) -> ToolOutput:
    limited = limit_tool_output_size(output, call, results, limit)
    if isinstance(limited.content, str):
        text = escape_control_tags(limited.content)
        return limited if text is limited.content else msgspec.structs.replace(limited, content=text)
    return msgspec.structs.replace(
        limited,
        content=tuple(
            TextBlock(text=escape_control_tags(block.text)) if isinstance(block, TextBlock) else block
            for block in limited.content
        ),
    )


def limit_tool_output_size(
    output: ToolOutput, call: ToolUseBlock, results: ResultStore, limit: int
) -> ToolOutput:
    if isinstance(output.content, str):
        if len(output.content) <= limit:
            # To a model, an empty result looks like a failure of the tool.
            return output if output.content else msgspec.structs.replace(output, content=EMPTY_OUTPUT)
        return msgspec.structs.replace(
            output, content=_truncate_text_and_save_original(output.content, call, results, limit)
        )
    blocks = tuple(
        TextBlock(text=_truncate_text_and_save_original(block.text, call, results, limit))
        if isinstance(block, TextBlock) and len(block.text) > limit
        else block
        for block in output.content
    )
    return msgspec.structs.replace(output, content=blocks or EMPTY_OUTPUT)


def _truncate_text_and_save_original(text: str, call: ToolUseBlock, results: ResultStore, limit: int) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{call.name}-{call.id}")[:100] + ".txt"
    path = results.save_result(name, text.encode("utf-8", "surrogateescape"))
    head, tail = text[: limit * 3 // 4], text[-limit // 4 :]
    left_out = len(text) - len(head) - len(tail)
    notice = format_notice("result_cut", left_out=f"{left_out:,}", total=f"{len(text):,}", path=path)
    return f"{head}\n\n{notice}\n\n{tail}"


class _FinishedToolCall(Struct, frozen=True):
    result: ToolResultBlock
    milliseconds: int
    may_change_files: bool


class _HaltOnDenialQuestionBroker:
    """Question broker of a call that halts the agent if a denial ends the turn."""

    __slots__ = ("_agent",)

    def __init__(self, agent: AgentRunner) -> None:
        self._agent = agent

    async def ask_person_or_deny(self, question: Question) -> Answer:
        answer = await self._agent.environment.question_broker.ask_person_or_deny(question)
        if isinstance(answer, DenyAnswer) and answer.ends_turn and not self._agent.state.halt_reason:
            self._agent.state.halt_reason = format_notice("told_to_stop", reason=answer.reason)
        return answer


async def execute_tool_calls(agent: AgentRunner, calls: tuple[ToolUseBlock, ...]) -> None:
    """Execute every call and add its result.

    Results enter the conversation in the order of the calls, each as soon as the earlier ones are there:
    the transcript does not depend on which of two reads was faster.
    """
    # Most replies have one call, which needs no generator.
    for group in (calls,) if len(calls) == 1 else _group_concurrent_calls(agent, calls):
        for call in group:
            await agent.environment.emit(
                ToolStarted(
                    agent=agent.identity.agent, call=call.id, tool=call.name, preview=preview_tool_call(call)
                )
            )
        if len(group) == 1:
            await _add_tool_result(agent, group[0], await _run_tool_call(agent, group[0], calls))
            continue
        await _run_tool_calls_concurrently(agent, group, calls)
    if agent.hooks.has_hooks_for("PostToolBatch"):
        await run_tool_batch_hooks(agent, calls)
    await add_path_instructions(agent)
    if agent.state.tool_restriction is not None:
        # After all results: providers accept no text between them.
        await agent.add_message(user_message(agent.state.tool_restriction.reminder), meta=True)


async def _run_tool_calls_concurrently(
    agent: AgentRunner, group: Sequence[ToolUseBlock], calls: tuple[ToolUseBlock, ...]
) -> None:
    try:
        async with asyncio.TaskGroup() as task_group:
            tasks = [task_group.create_task(_run_tool_call(agent, call, calls)) for call in group]
            for call, task in zip(group, tasks, strict=True):
                await _add_tool_result(agent, call, await task)
    except ExceptionGroup as errors:
        # An error that ends a call like this ends the turn, and callers expect it unwrapped.
        raise errors.exceptions[0] from errors


async def run_unrecorded_tool_call(
    agent: AgentRunner, call: ToolUseBlock, tool: Tool, *, is_requested: bool = False
) -> ToolOutput:
    """Run a call on behalf of the agent: with its permissions, outside its conversation.

    `is_requested` is True if a person requested exactly this call: only rules and hooks can still ask.
    """
    return await _run_tool_call_with_hooks(agent, call, tool, (call,), is_requested=is_requested)


async def run_tool_for_hook(
    agent: AgentRunner, call: ToolUseBlock, tool: Tool, seconds: float | None = None
) -> ToolOutput:
    """Run a call made by a hook: hooks run with the user's permissions, and no hook runs for them.

    `seconds` replaces the tool's default time limit.
    """
    context = replace(_build_tool_context(agent, call, (call,)), call_timeout=seconds)
    return await _run_tool_within_deadline(tool, call, context)


async def run_tool_for_host(agent: AgentRunner, call: ToolUseBlock, tool: Tool) -> ToolOutput:
    """Run a call that the program itself makes: no permission is needed, and no hook runs."""
    return await tool.run(call.input, _build_tool_context(agent, call, (call,)))


def _group_concurrent_calls(
    agent: AgentRunner, calls: Sequence[ToolUseBlock]
) -> Iterator[Sequence[ToolUseBlock]]:
    def can_run_concurrently(call: ToolUseBlock) -> bool:
        tool = _find_tool_by_name_or_alias(agent, call.name)
        return tool is not None and tool.is_concurrent

    for is_concurrent, group in groupby(calls, key=can_run_concurrently):
        if is_concurrent:
            yield list(group)
        else:
            yield from ([call] for call in group)


async def _add_tool_result(agent: AgentRunner, call: ToolUseBlock, finished: _FinishedToolCall) -> None:
    await agent.add_message(Message(role="user", content=(finished.result,)))
    agent.state.repetition.add_call(call, finished.result, finished.milliseconds)
    text = extract_tool_result_text(finished.result)
    await agent.environment.emit(
        ToolFinished(
            agent=agent.identity.agent,
            call=call.id,
            tool=call.name,
            is_error=finished.result.is_error,
            size=len(text),
            duration_ms=finished.milliseconds,
            preview=text[:PREVIEW_LENGTH],
            may_change_files=finished.may_change_files,
        )
    )


async def _run_tool_call(
    agent: AgentRunner, call: ToolUseBlock, calls: tuple[ToolUseBlock, ...]
) -> _FinishedToolCall:
    clock = agent.environment.clock
    started_at = clock.monotonic()
    output = limit_and_escape_tool_output(
        await _dispatch_tool_call(agent, call, calls),
        call,
        agent.environment.results,
        agent.limits.get_result_limit(call.name),
    )
    result = ToolResultBlock(tool_use_id=call.id, content=output.content, is_error=output.is_error)
    instructions = agent.context.path_instructions
    if instructions is not None and call.name in _FILE_ARGUMENTS and not output.is_error:
        instructions.add_used_file(str(call.input.get(_FILE_ARGUMENTS[call.name], "")))
    await agent.environment.emit(
        ToolOutputReturned(
            agent=agent.identity.agent, call=call.id, tool=call.name, result=result, data=output.data
        )
    )
    milliseconds = round((clock.monotonic() - started_at) * 1000)
    return _FinishedToolCall(result, milliseconds, may_change_files(call, output))


async def _dispatch_tool_call(
    agent: AgentRunner, call: ToolUseBlock, calls: tuple[ToolUseBlock, ...]
) -> ToolOutput:
    tool = _find_tool_by_name_or_alias(agent, call.name)
    if tool is None:
        explain = agent.context.explain_missing_tool
        explanation = "" if explain is None else explain(agent, call.name)
        return create_tool_error_output(explanation or _explain_unknown_tool(call.name, list(agent.tools)))
    if MALFORMED_INPUT_KEY in call.input:
        arguments = repr(str(call.input[MALFORMED_INPUT_KEY])[:PREVIEW_LENGTH])
        return create_tool_error_output(format_notice("invalid_json", tool=call.name, arguments=arguments))
    if (
        agent.state.tool_restriction is not None
        and tool.schema.name not in agent.state.tool_restriction.tools
    ):
        return await _refuse_tool_call(agent, call, agent.state.tool_restriction.refusal_reason)
    return await _run_tool_call_with_hooks(agent, call, tool, calls)


async def _run_tool_call_with_hooks(
    agent: AgentRunner,
    call: ToolUseBlock,
    tool: Tool,
    calls: tuple[ToolUseBlock, ...],
    *,
    is_requested: bool = False,
) -> ToolOutput:
    """Run a call with its hooks. Permissions apply to the input that hooks return."""
    hook_decision = NO_DECISION
    if agent.hooks.has_hooks_for("PreToolUse") and not agent.state.halt_reason:
        hook_decision = await run_pre_tool_hooks(agent, call)
        if hook_decision.updated_input is not None:
            call = ToolUseBlock(id=call.id, name=call.name, input=hook_decision.updated_input)
            is_requested = False
    if agent.state.halt_reason:
        return _create_not_run_output(call, agent.state.halt_reason)
    if (refusal := hook_decision.refusal) is not None:
        return _create_not_run_output(call, format_notice("hook_blocked_call", reason=refusal))
    permitted_call = await _check_tool_call_permission(
        agent, call, tool, hook_decision, is_requested=is_requested
    )
    if not isinstance(permitted_call, ToolUseBlock):
        return permitted_call
    if (refused := await refuse_before_files_are_stored(agent, permitted_call)) is not None:
        return refused
    try:
        output = await _run_tool_within_deadline(
            tool, permitted_call, _build_tool_context(agent, permitted_call, calls)
        )
    finally:
        note_possible_change(agent, permitted_call, tool)
    event: HookEvent = "PostToolUseFailure" if output.is_error else "PostToolUse"
    if agent.hooks.has_hooks_for(event):
        output = await run_post_tool_hooks(agent, event, permitted_call, output)
    output = await store_files_of_call(agent, permitted_call, tool, output)
    return append_hook_context_to_output(output, "PreToolUse", hook_decision)


async def _check_tool_call_permission(
    agent: AgentRunner,
    call: ToolUseBlock,
    tool: Tool,
    hook_decision: HookDecision,
    *,
    is_requested: bool,
) -> ToolUseBlock | ToolOutput:
    """Return the permitted call (a hook or a person may have changed its input), or the refusal."""
    decision = agent.permissions.decide_tool_call(call, tool, agent.identity)
    if is_requested and isinstance(decision, AskDecision) and decision.rule is None:
        decision = decision if decision.needs_person else AllowDecision("the user requested it")
    match _apply_hook_permission_decision(decision, hook_decision):
        case AllowDecision():
            return call
        case DenyDecision(reason=reason):
            return await _refuse_tool_call(agent, call, reason)
        case AskDecision() as ask_decision:
            if agent.hooks.has_hooks_for("PermissionRequest"):
                permission_hook_decision = await run_permission_hooks(agent, call)
                if agent.state.halt_reason or permission_hook_decision.refusal is not None:
                    refusal = agent.state.halt_reason or format_notice(
                        "hook_denied_call", reason=permission_hook_decision.refusal
                    )
                    return _create_not_run_output(call, refusal)
                if permission_hook_decision.decision == "allow" and not ask_decision.needs_person:
                    return await _accept_call_allowed_by_hook(agent, call, tool, permission_hook_decision)
            return await _ask_person_for_permission(agent, call, tool, ask_decision)


async def _accept_call_allowed_by_hook(
    agent: AgentRunner, call: ToolUseBlock, tool: Tool, hook_decision: HookDecision
) -> ToolUseBlock | ToolOutput:
    permitted_call = await _recheck_call_with_changed_input(agent, call, tool, hook_decision.updated_input)
    if hook_decision.permission_updates and isinstance(permitted_call, ToolUseBlock):
        answer = AllowAnswer(updates=hook_decision.permission_updates)
        agent.permissions.remember_permission_answer(permitted_call, answer)
    return permitted_call


async def _ask_person_for_permission(
    agent: AgentRunner, call: ToolUseBlock, tool: Tool, ask_decision: AskDecision
) -> ToolUseBlock | ToolOutput:
    question = PermissionQuestion(
        id=agent.ids.new_short_id(),
        agent=agent.identity.agent,
        tool_use_id=call.id,
        tool=call.name,
        input=tool.expand_call(call.input) if isinstance(tool, SelfDescribingTool) else call.input,
        reason=_explain_question(tool, call, ask_decision),
        rule=format_session_permission_rules(ask_decision.suggestions),
        suggestions=ask_decision.suggestions,
    )
    try:
        answer = await _HaltOnDenialQuestionBroker(agent).ask_person_or_deny(question)
    except QuestionUnanswerable as error:
        return await _refuse_tool_call(agent, call, str(error))
    match answer:
        case AllowAnswer(input=changed_input):
            permitted_call = await _recheck_call_with_changed_input(agent, call, tool, changed_input)
            if isinstance(permitted_call, ToolUseBlock):
                agent.permissions.remember_permission_answer(permitted_call, answer)
            return permitted_call
        case DenyAnswer(reason=reason):
            return await _refuse_tool_call(agent, call, reason)
        case _:
            return await _refuse_tool_call(agent, call, format_notice("no_permission_decision"))


def _explain_question(tool: Tool, call: ToolUseBlock, ask_decision: AskDecision) -> str:
    """Return why a person is asked, with the tool's own description of the call."""
    about = tool.describe_call(call.input) if isinstance(tool, SelfDescribingTool) else ""
    return f"{ask_decision.reason}; {about}" if about else ask_decision.reason


def _apply_hook_permission_decision(
    decision: PermissionDecision, hook_decision: HookDecision
) -> PermissionDecision:
    """Apply a hook's decision: it may require a question, or answer one that no rule requires, but nothing
    else."""
    if hook_decision is NO_DECISION:
        return decision
    if isinstance(decision, AllowDecision) and hook_decision.decision == "ask":
        return AskDecision(hook_decision.decision_reason or format_notice("hook_asks"))
    if (
        isinstance(decision, AskDecision)
        and decision.rule is None
        and not decision.needs_person
        and hook_decision.decision == "allow"
    ):
        return AllowDecision(hook_decision.decision_reason or "a hook allows it")
    return decision


async def _recheck_call_with_changed_input(
    agent: AgentRunner, call: ToolUseBlock, tool: Tool, changed_input: dict[str, Any] | None
) -> ToolUseBlock | ToolOutput:
    if changed_input is None:
        return call
    call = ToolUseBlock(id=call.id, name=call.name, input=changed_input)
    # A rule's denial also applies to changed input.
    if isinstance(
        new_decision := agent.permissions.decide_tool_call(call, tool, agent.identity), DenyDecision
    ):
        return await _refuse_tool_call(agent, call, new_decision.reason)
    return call


async def _refuse_tool_call(agent: AgentRunner, call: ToolUseBlock, reason: str) -> ToolOutput:
    await agent.environment.emit(
        PermissionDenied(agent=agent.identity.agent, call=call.id, tool=call.name, reason=reason)
    )
    output = _create_not_run_output(call, reason)
    return await run_denial_hooks(agent, call, reason, output)


def _create_not_run_output(call: ToolUseBlock, reason: str) -> ToolOutput:
    return create_tool_error_output(format_notice("not_run", tool=call.name, reason=reason))


async def _run_tool_within_deadline(tool: Tool, call: ToolUseBlock, context: ToolContext) -> ToolOutput:
    seconds = tool.deadline
    try:
        if seconds is None:
            return await tool.run(call.input, context)
        seconds = context.call_timeout or seconds
        return await run_with_deadline(context.clock, seconds, tool.run(call.input, context))
    except TimeoutError:
        text = format_notice("timed_out", tool=call.name, seconds=f"{seconds or 0:g}")
        return create_tool_error_output(text)
    except StateFileError:
        raise  # the transcript cannot be written: stop this turn, not the next one
    except ShoalError as error:
        return create_tool_error_output(str(error))
    except Exception as error:  # noqa: BLE001 - boundary around tools: a crash becomes a result for the model
        details = f"{type(error).__name__}: {error}"
        return create_tool_error_output(format_notice("failed", tool=call.name, error=details))


def _build_tool_context(
    agent: AgentRunner, call: ToolUseBlock, calls: tuple[ToolUseBlock, ...]
) -> ToolContext:
    async def report_progress(text: str) -> None:
        await agent.environment.emit(ToolProgressed(agent=agent.identity.agent, call=call.id, text=text))

    environment = agent.environment
    return ToolContext(
        call_id=call.id,
        calls=calls,
        agent=agent.identity,
        workspace=environment.workspace,
        processes=environment.processes,
        question_broker=_HaltOnDenialQuestionBroker(agent),
        results=environment.results,
        clock=environment.clock,
        ids=environment.ids,
        report_progress=report_progress,
        env=environment.env,
        unreadable_filter=partial(agent.permissions.build_unreadable_file_filter, call.name),
        sandbox=environment.sandbox,
        hooks=TurnEndingHooks(agent) if agent.hooks is not NO_HOOKS else NO_HOOKS,
    )


def _find_tool_by_name_or_alias(agent: AgentRunner, name: str) -> Tool | None:
    tool = agent.tools.get(name)
    return agent.tools.get(TOOL_ALIASES.get(name, "")) if tool is None else tool


def _explain_unknown_tool(name: str, available: list[str]) -> str:
    matches = get_close_matches(name, available, n=1)
    suggestion = f" {format_notice('tool_suggestion', name=matches[0])}" if matches else ""
    return format_notice("unknown_tool", name=repr(name), suggestion=suggestion, tools=", ".join(available))


def preview_tool_call(call: ToolUseBlock) -> str:
    """Return a short description of a call."""
    arguments = call.input
    for key in _PREVIEW_KEYS:
        if key in arguments and isinstance(value := arguments[key], str):
            return value[:PREVIEW_LENGTH]
    match arguments:
        case {"questions": [{"question": str(question)}, *_]}:
            return question[:PREVIEW_LENGTH]
    parts = [
        f"{key}: {_preview_argument_value(value)}"
        for key, value in islice(arguments.items(), _MAX_PREVIEW_FIELDS)
    ]
    return ", ".join(parts)[:PREVIEW_LENGTH]


def _preview_argument_value(value: Any) -> str:
    if type(value) is int:
        return str(value)
    return (
        value[:PREVIEW_LENGTH]
        if isinstance(value, str)
        else encode_json(value)[: 4 * PREVIEW_LENGTH].decode(errors="ignore")
    )
