"""Compaction: when a conversation nears the model's window, it is replaced by a summary."""

from __future__ import annotations

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.agent_texts import format_notice, load_prompt
from shoal.agent.forks import ask_model_outside_conversation
from shoal.agent.hook_points import add_hook_context_message, emit_note, run_agent_hooks
from shoal.agent.refused_images import drop_refused_images
from shoal.core.conversation.messages import (
    Message,
    TextBlock,
    ToolResultBlock,
    extract_tool_result_text,
    user_message,
)
from shoal.core.errors import BadRequest, CompactionBlockedByHook, ContextTooLong
from shoal.core.events import ConversationCompacted
from shoal.core.text.control_tags import escape_control_tags
from shoal.wire.notification_text import format_system_reminder, is_system_reminder

MAX_REQUEST_CHARS = 4_000
"""Maximum number of characters of the user's last request kept verbatim."""
MAX_FALLBACK_CHARS = 8_000
"""Maximum number of characters of the model's text kept if it writes no summary."""
SUMMARY_OPENING = "The conversation so far was summarised to make room."
LAST_REQUEST_HEADING = "The person's last request, word for word:\n"
SHORTENED_RESULT_CHARS = 400
"""Number of characters kept of each old tool result if even the summary request does not fit."""


def is_compaction_due(agent: AgentRunner) -> bool:
    if not agent.limits.auto_compact:
        return False
    card = agent.current_model.card
    window = card.window
    reserved = min(agent.limits.max_tokens or card.max_output, window // 8)
    return agent.state.context_tokens > (
        window - reserved
    ) * agent.limits.compact_at and _can_compact_further(agent)


def _can_compact_further(agent: AgentRunner) -> bool:
    """Return False for a conversation of only a summary and a prompt: compaction cannot shorten it."""
    return len(agent.conversation.messages) > 2


async def compact_conversation(agent: AgentRunner, trigger: str, *, instructions: str = "") -> None:
    """Replace the conversation with a summary; the transcript keeps all messages."""
    if agent.hooks.has_hooks_for("PreCompact"):
        instructions = await _run_pre_compact_hooks(agent, trigger, instructions)
    tokens_before = agent.state.context_tokens
    messages = agent.conversation.messages
    summary = await _ask_model_for_summary(agent, messages, instructions)
    last_request = _find_last_user_request(messages)
    text = f"{SUMMARY_OPENING}\n\n{summary}"
    if agent.context.save_memory is not None:
        text += await agent.context.save_memory(agent, messages)
    if last_request:
        text += f"\n\n{LAST_REQUEST_HEADING}{last_request}"
    opening = user_message(text)
    if agent.context.build_briefing is not None and (text := await agent.context.build_briefing()):
        briefing = TextBlock(text=format_system_reminder(text))
        opening = Message(role="user", content=(*opening.content, briefing))
    agent.conversation.restart_from_summary(opening, trigger=trigger, tokens_before=tokens_before)
    agent.reestimate_context_tokens()
    agent.state.is_told_to_plan = False
    if agent.context.path_instructions is not None:
        agent.context.path_instructions.forget_delivered()
    await agent.environment.emit(
        ConversationCompacted(agent=agent.identity.agent, trigger=trigger, tokens_before=tokens_before)
    )
    if agent.hooks.has_hooks_for("PostCompact"):
        await run_agent_hooks(
            agent,
            "PostCompact",
            trigger="manual" if trigger == "manual" else "auto",
            compact_summary=summary,
        )
    if agent.identity.is_lead and agent.hooks.has_hooks_for("SessionStart"):
        decision = await run_agent_hooks(agent, "SessionStart", source="compact")
        await add_hook_context_message(agent, "SessionStart", decision)


async def _run_pre_compact_hooks(agent: AgentRunner, trigger: str, instructions: str) -> str:
    """Return the summary instructions. Hooks can block only a manual compaction: else no room is left."""
    is_manual = trigger == "manual"
    decision = await run_agent_hooks(
        agent, "PreCompact", trigger="manual" if is_manual else "auto", custom_instructions=instructions
    )
    if decision.blocked is not None and is_manual:
        raise CompactionBlockedByHook(
            f"The conversation was not compacted because a PreCompact hook blocked it: {decision.blocked}"
        )
    if decision.blocked is not None:
        await emit_note(
            agent, f"A PreCompact hook objected, but the context window is full: {decision.blocked}"
        )
    return "\n".join(filter(None, (instructions, decision.context)))


async def _ask_model_for_summary(agent: AgentRunner, messages: list[Message], instructions: str) -> str:
    request = format_notice("summary_request", instructions=instructions) if instructions else ""
    prompt = load_prompt("compact") + (f"\n\n{request}" if request else "")
    history = messages
    while True:
        try:
            summary = await ask_model_outside_conversation(agent, prompt, history=history)
        except ContextTooLong:
            shorter = shorten_messages(history)
            if shorter == history:
                raise
            history = shorter
            continue
        except BadRequest as error:
            # Else an image that the provider refuses would fail every compaction, and no turn could start.
            if not await drop_refused_images(agent, error):
                raise
            history = messages
            continue
        return escape_control_tags(summary) if summary else _build_fallback_summary(messages)


def _build_fallback_summary(messages: list[Message]) -> str:
    """Build a replacement for a model that calls a tool instead of writing a summary."""
    model_text = "\n\n".join(
        message.text for message in messages if message.role == "assistant" and message.text
    )
    return format_notice("no_summary", text=model_text[-MAX_FALLBACK_CHARS:])


def shorten_messages(messages: list[Message]) -> list[Message]:
    """Return a shorter conversation: first old tool results are cut, then old messages dropped."""
    shortened = [_shorten_tool_results(message) for message in messages]
    if shortened != messages:
        return shortened
    for start in range(max(1, len(messages) // 2), len(messages)):
        if messages[start].role == "user":
            return [_convert_tool_results_to_text(messages[start]), *messages[start + 1 :]]
    return messages


def _shorten_tool_results(message: Message) -> Message:
    def shorten_result(block: ToolResultBlock) -> ToolResultBlock:
        text = extract_tool_result_text(block)
        if len(text) <= SHORTENED_RESULT_CHARS + 100:
            return block
        excerpt = format_notice(
            "result_excerpt", excerpt=text[:SHORTENED_RESULT_CHARS], total=f"{len(text):,}"
        )
        return ToolResultBlock(tool_use_id=block.tool_use_id, content=excerpt, is_error=block.is_error)

    return Message(
        role=message.role,
        content=tuple(shorten_result(b) if isinstance(b, ToolResultBlock) else b for b in message.content),
    )


def _convert_tool_results_to_text(message: Message) -> Message:
    """Turn results into text: a conversation cannot start with the result of a dropped call."""
    return Message(
        role="user",
        content=tuple(
            TextBlock(text=format_notice("earlier_result", result=extract_tool_result_text(block)))
            if isinstance(block, ToolResultBlock)
            else block
            for block in message.content
        ),
    )


def _find_last_user_request(messages: list[Message]) -> str:
    for message in reversed(messages):
        if message.role == "user":
            texts = (b.text for b in message.content if isinstance(b, TextBlock))
            request = "\n".join(
                _extract_request_from_summary(text) for text in texts if not is_system_reminder(text)
            )
            # Text cut by an earlier compaction is not cut again because of its cut marker.
            if len(request) > MAX_REQUEST_CHARS + 100:
                return f"{request[:MAX_REQUEST_CHARS]} [… cut, {len(request):,} characters in total]"
            if request:
                return request
    return ""


def _extract_request_from_summary(text: str) -> str:
    """Return the user's request, also from inside an earlier summary, which would be kept in its place."""
    return (
        text.rpartition(LAST_REQUEST_HEADING)[2]
        if text.startswith(SUMMARY_OPENING) and LAST_REQUEST_HEADING in text
        else text
    )
