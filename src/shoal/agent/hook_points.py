"""Hook points of one agent: before and after tool calls, on prompts, and when it stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.agent_texts import format_notice
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import Message, TextBlock, ToolUseBlock, user_message
from shoal.core.conversation.tools import ToolOutput
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import (
    BadRequest,
    ContextTooLong,
    ModelError,
    Overloaded,
    RateLimited,
    StateFileError,
    TransientModelError,
    Unauthorized,
    UnknownModel,
)
from shoal.core.events import MessageAuthor, NoteAdded, QueueItemWithdrawn
from shoal.core.extensions.hooks import MAX_WAKES_IN_A_ROW, NO_DECISION, HookDecision, HookEvent
from shoal.core.text.control_tags import escape_control_tags
from shoal.wire.tool_response_codec import build_tool_response

_FAILURE_KINDS: tuple[tuple[tuple[type[ModelError], ...], str], ...] = (
    ((RateLimited,), "rate_limit"),
    ((Overloaded,), "overloaded"),
    ((Unauthorized,), "authentication_failed"),
    ((BadRequest, ContextTooLong, UnknownModel), "invalid_request"),
    ((TransientModelError,), "server_error"),
)


async def run_agent_hooks(agent: AgentRunner, event: HookEvent, **fields: Any) -> HookDecision:
    if agent.limits.thinking_tokens or agent.limits.adaptive_thinking:
        fields["effort"] = {"level": agent.effort_level}
    decision = await agent.hooks.run_hooks(event, fields)
    if decision.stop is not None and not agent.state.halt_reason:
        agent.state.halt_reason = format_end_reason("hook_stopped", event=event, reason=decision.stop)
    return decision


class TurnEndingHooks:
    """Hooks of an agent for its tools: an answer that ends the turn ends it after the call."""

    __slots__ = ("_agent",)

    def __init__(self, agent: AgentRunner) -> None:
        self._agent = agent

    def has_hooks_for(self, event: HookEvent) -> bool:
        return self._agent.hooks.has_hooks_for(event)

    async def run_hooks(self, event: HookEvent, fields: Mapping[str, Any]) -> HookDecision:
        return await run_agent_hooks(self._agent, event, **fields)


async def run_pre_tool_hooks(agent: AgentRunner, call: ToolUseBlock) -> HookDecision:
    return await run_agent_hooks(agent, "PreToolUse", **_build_tool_call_hook_fields(call))


async def run_permission_hooks(agent: AgentRunner, call: ToolUseBlock) -> HookDecision:
    return await run_agent_hooks(agent, "PermissionRequest", **_build_tool_call_hook_fields(call))


async def run_denial_hooks(
    agent: AgentRunner, call: ToolUseBlock, reason: str, output: ToolOutput
) -> ToolOutput:
    """Return the output of a denied call, with the hint that the model may try it again."""
    if not agent.hooks.has_hooks_for("PermissionDenied"):
        return output
    fields = _build_tool_call_hook_fields(call)
    decision = await run_agent_hooks(agent, "PermissionDenied", **fields, reason=reason)
    return append_text_to_tool_output(output, format_notice("hook_retry")) if decision.retry else output


async def run_tool_batch_hooks(agent: AgentRunner, calls: Sequence[ToolUseBlock]) -> None:
    """Run the hooks after all calls of a reply; a block ends the turn."""
    tool_calls = [_build_tool_call_hook_fields(call) for call in calls]
    decision = await run_agent_hooks(agent, "PostToolBatch", tool_calls=tool_calls)
    if decision.blocked is not None and not agent.state.halt_reason:
        agent.state.halt_reason = format_end_reason(
            "hook_stopped", event="PostToolBatch", reason=decision.blocked
        )
    await add_hook_context_message(agent, "PostToolBatch", decision)


async def run_stop_failure_hooks(agent: AgentRunner, error: ModelError) -> None:
    """Tell the hooks that the turn ends because the model cannot answer."""
    if not agent.hooks.has_hooks_for("StopFailure"):
        return
    kind = next((name for kinds, name in _FAILURE_KINDS if isinstance(error, kinds)), "unknown")
    await run_agent_hooks(agent, "StopFailure", error=kind, error_details=str(error))


async def run_post_tool_hooks(
    agent: AgentRunner, event: HookEvent, call: ToolUseBlock, output: ToolOutput
) -> ToolOutput:
    """Return the output with the hooks' objections and context appended."""
    text = output.text
    if output.is_error:
        decision = await run_agent_hooks(agent, event, **_build_tool_call_hook_fields(call), error=text)
    else:
        response = build_tool_response(call.name, call.input, text, output.data)
        decision = await run_agent_hooks(
            agent, event, **_build_tool_call_hook_fields(call), tool_response=response
        )
    if decision.updated_output is not None:
        output = replace(output, content=decision.updated_output, data=None)
    if decision.blocked is not None:
        output = append_text_to_tool_output(
            output, format_notice("hook_objection", event=event, text=decision.blocked)
        )
    return append_hook_context_to_output(output, event, decision)


async def add_path_instructions(agent: AgentRunner) -> None:
    """Add the instructions about files that the agent has used since the last time."""
    if agent.context.path_instructions is None:
        return
    text, files = agent.context.path_instructions.take_new_text()
    if not text:
        return
    await agent.add_message(user_message(text), meta=True)
    if agent.hooks.has_hooks_for("InstructionsLoaded"):
        for file in files:
            await run_agent_hooks(agent, "InstructionsLoaded", **to_builtins(file))


async def add_server_instructions(agent: AgentRunner) -> None:
    """Add the instructions of MCP servers that have connected since the last request."""
    source = agent.context.server_instructions
    if source is None:
        return
    texts = source.take_new_texts(agent.tools, agent.conversation.messages)
    if texts:
        blocks = tuple(TextBlock(text=text) for text in texts)
        await agent.add_message(Message(role="user", content=blocks), meta=True)


def append_hook_context_to_output(output: ToolOutput, event: HookEvent, decision: HookDecision) -> ToolOutput:
    if not decision.context:
        return output
    return append_text_to_tool_output(
        output, format_notice("hook_context", event=event, text=decision.context)
    )


def append_text_to_tool_output(output: ToolOutput, text: str) -> ToolOutput:
    if isinstance(output.content, str):
        joined = f"{output.content}\n\n{text}" if output.content else text
        return replace(output, content=joined)
    return replace(output, content=(*output.content, TextBlock(text=text)))


async def add_prompt_after_hooks(agent: AgentRunner, prompt: Message, *, by: MessageAuthor) -> str | None:
    """Add a prompt to the conversation; return the reason if a hook blocks a person's prompt."""
    if by != "person" or not agent.hooks.has_hooks_for("UserPromptSubmit"):
        await agent.receive_message(prompt, by=by)
        await _add_mentions(agent, prompt, by)
        return None
    decision = await run_agent_hooks(agent, "UserPromptSubmit", prompt=prompt.text)
    if decision.blocked is not None:
        return await _note_prompt_erased_by_hook(agent, decision.blocked)
    await agent.receive_message(prompt, by=by)
    await _add_mentions(agent, prompt, by)
    await add_hook_context_message(agent, "UserPromptSubmit", decision)
    return None


async def _add_mentions(agent: AgentRunner, message: Message, by: MessageAuthor) -> None:
    """Add the files that a person's message mentions, and the instructions about all files in it."""
    if by != "person":
        return
    read_mentions = agent.context.read_mentions
    if read_mentions is not None and (mentioned := await read_mentions(agent, message)) is not None:
        await agent.receive_message(mentioned, by="runtime")
    # The text of a typed command already contains files.
    await add_path_instructions(agent)


async def add_inbox_item_after_hooks(agent: AgentRunner, item: InboxItem) -> str | None:
    """Add an inbox item in the same way; an item that could not be added goes back to the inbox."""
    message = Message(role="user", content=item.content)
    decision = NO_DECISION
    if item.by == "person" and agent.hooks.has_hooks_for("UserPromptSubmit"):
        try:
            decision = await run_agent_hooks(agent, "UserPromptSubmit", prompt=message.text)
        except BaseException:
            agent.inbox.put_back(item)
            raise
    if decision.blocked is not None:
        await agent.environment.emit(QueueItemWithdrawn(agent=agent.identity.agent, item=item.id))
        agent.inbox.mark_delivered(item)
        return await _note_prompt_erased_by_hook(agent, decision.blocked)
    entry_before = agent.conversation.last_entry
    try:
        await agent.receive_message(message, by=item.by, delivered=item.id)
    except BaseException:
        # An item in the conversation counts as delivered, even if the event could not be emitted.
        if agent.conversation.last_entry == entry_before:
            agent.inbox.put_back(item)
        else:
            with suppress(StateFileError):
                agent.inbox.mark_delivered(item)
        raise
    agent.inbox.mark_delivered(item)
    await _add_mentions(agent, message, item.by)
    await add_hook_context_message(agent, "UserPromptSubmit", decision)
    return None


async def _note_prompt_erased_by_hook(agent: AgentRunner, reason: str) -> str:
    explanation = format_end_reason("prompt_erased", reason=reason)
    await emit_note(agent, f"{explanation[0].upper()}{explanation[1:]}")
    return explanation


async def add_hook_context_message(agent: AgentRunner, event: HookEvent, decision: HookDecision) -> None:
    if decision.context:
        await agent.receive_message(user_message(format_hook_context(event, decision)), by="runtime")


def format_hook_context(event: HookEvent, decision: HookDecision) -> str:
    return format_notice("hook_message", event=event, text=escape_control_tags(decision.context))


async def run_stop_hooks(agent: AgentRunner, last_text: str, return_count: int) -> bool:
    """Run the stop hooks; return True if one sends the agent back to work. `times` counts earlier returns."""
    event: HookEvent = "Stop" if agent.identity.is_lead else "SubagentStop"
    if not agent.hooks.has_hooks_for(event):
        return False
    decision = await run_agent_hooks(
        agent, event, stop_hook_active=return_count > 0, last_assistant_message=last_text
    )
    if decision.blocked is None or agent.state.halt_reason:
        return False
    if return_count >= MAX_WAKES_IN_A_ROW:
        await emit_note(
            agent, f"The {event} hooks made the agent continue {return_count} times in a row. It stops now."
        )
        return False
    text = format_notice("hook_sends_back", event=event, text=escape_control_tags(decision.blocked))
    await agent.receive_message(user_message(text), by="runtime")
    return True


async def emit_note(agent: AgentRunner, text: str) -> None:
    await agent.environment.emit(NoteAdded(agent=agent.identity.agent, text=text))


def _build_tool_call_hook_fields(call: ToolUseBlock) -> dict[str, Any]:
    return {"tool_name": call.name, "tool_input": call.input, "tool_use_id": call.id}
