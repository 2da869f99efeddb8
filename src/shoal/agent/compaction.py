"""Compaction: when a conversation nears the model's window, it is replaced by a summary."""

from __future__ import annotations

from pathlib import Path

from shoal.agent.agent import Agent
from shoal.agent.forking import run_forked_agent
from shoal.agent.hooked import add_context, note, told
from shoal.core.errors import ContextTooLong, HookBlocked
from shoal.core.events import ConversationCompacted
from shoal.core.messages import Message, Text, ToolResult, result_text, user
from shoal.core.neutral import neutral
from shoal.wire.notices import is_reminder, reminder

PROMPT = (Path(__file__).parent / "prompts" / "compact.md").read_text(encoding="utf-8")
REQUEST_KEPT = 4_000
"""Characters of the person's last request that are kept verbatim."""
WORDS_KEPT = 8_000
"""Characters of the model's text that are kept if it writes no summary."""
OPENING = "The conversation so far was summarised to make room."
ASKED = "The person's last request, word for word:\n"
SHORTER = 400
"""Characters left of each old tool result if even the summary request does not fit."""


def is_full(agent: Agent) -> bool:
    window = agent.model.card.window
    reserve = min(agent.bounds.max_tokens or agent.model.card.max_output, window // 8)
    return agent.context_tokens > (window - reserve) * agent.bounds.compact_at and _worth_it(agent)


def _worth_it(agent: Agent) -> bool:
    """Return False for a conversation of only a summary and a prompt: compaction cannot shorten it."""
    return len(agent.conversation.messages) > 2


async def compact(agent: Agent, trigger: str, *, wish: str = "") -> None:
    """Replace the conversation by a summary; the transcript keeps all messages."""
    if agent.hooks.wants("PreCompact"):
        wish = await _with_hooks(agent, trigger, wish)
    before = agent.context_tokens
    messages = agent.conversation.messages
    summary = await _summary(agent, messages, wish)
    asked = _last_request(messages)
    text = f"{OPENING}\n\n{summary}"
    if agent.remember is not None:
        text += await agent.remember(agent, messages)
    if asked:
        text += f"\n\n{ASKED}{asked}"
    opening = user(text)
    if agent.briefing is not None:
        briefed = Text(text=reminder(await agent.briefing()))
        opening = Message(role="user", content=(*opening.content, briefed))
    agent.conversation.restart(opening, trigger=trigger, tokens_before=before)
    agent.recount()
    await agent.tell(ConversationCompacted(agent=agent.identity.agent, trigger=trigger, tokens_before=before))
    if agent.identity.is_lead and agent.hooks.wants("SessionStart"):
        verdict = await told(agent, "SessionStart", source="compact")
        await add_context(agent, "SessionStart", verdict)


async def _with_hooks(agent: Agent, trigger: str, wish: str) -> str:
    """Return the summary instructions. Hooks can block only a manual compaction: else no room is left."""
    by_person = trigger == "manual"
    verdict = await told(
        agent, "PreCompact", trigger="manual" if by_person else "auto", custom_instructions=wish
    )
    if verdict.blocked is not None and by_person:
        raise HookBlocked(f"The conversation is not compacted: a PreCompact hook says no: {verdict.blocked}")
    if verdict.blocked is not None:
        await note(agent, f"A PreCompact hook objects, but there is no room left: {verdict.blocked}")
    return "\n".join(filter(None, (wish, verdict.context)))


async def _summary(agent: Agent, messages: list[Message], wish: str) -> str:
    prompt = PROMPT + (f"\n\nThe person asks of this summary: {wish}" if wish else "")
    attempt = messages
    while True:
        try:
            words = await run_forked_agent(agent, prompt, history=attempt)
        except ContextTooLong:
            shorter = shortened(attempt)
            if shorter == attempt:
                raise
            attempt = shorter
            continue
        return neutral(words) if words else _last_words(messages)


def _last_words(messages: list[Message]) -> str:
    """Build a replacement for a model that calls a tool instead of writing a summary."""
    said = "\n\n".join(message.text for message in messages if message.role == "assistant" and message.text)
    return f"The model wrote no summary. The last it said before:\n\n{said[-WORDS_KEPT:]}"


def shortened(messages: list[Message]) -> list[Message]:
    """Return a shorter conversation: first old tool results are cut, then old messages dropped."""
    lean = [_lean(message) for message in messages]
    if lean != messages:
        return lean
    for start in range(max(1, len(messages) // 2), len(messages)):
        if messages[start].role == "user":
            return [_first(messages[start]), *messages[start + 1 :]]
    return messages


def _lean(message: Message) -> Message:
    def less(block: ToolResult) -> ToolResult:
        text = result_text(block)
        if len(text) <= SHORTER + 100:
            return block
        cut = f"{text[:SHORTER]} [… cut, {len(text):,} characters in all]"
        return ToolResult(tool_use_id=block.tool_use_id, content=cut, is_error=block.is_error)

    return Message(
        role=message.role,
        content=tuple(less(b) if isinstance(b, ToolResult) else b for b in message.content),
    )


def _first(message: Message) -> Message:
    """Turn results into text: a conversation cannot start with the result of a dropped call."""
    return Message(
        role="user",
        content=tuple(
            Text(text=f"[The result of an earlier call:]\n{result_text(block)}")
            if isinstance(block, ToolResult)
            else block
            for block in message.content
        ),
    )


def _last_request(messages: list[Message]) -> str:
    for message in reversed(messages):
        if message.role == "user":
            said = (b.text for b in message.content if isinstance(b, Text))
            words = "\n".join(_asked(text) for text in said if not is_reminder(text))
            # Text cut by an earlier compaction is not cut again because of its cut marker.
            if len(words) > REQUEST_KEPT + 100:
                return f"{words[:REQUEST_KEPT]} [… cut, {len(words):,} characters in all]"
            if words:
                return words
    return ""


def _asked(text: str) -> str:
    """Return the person's request, also from inside an earlier summary, which would be kept in its place."""
    return text.rpartition(ASKED)[2] if text.startswith(OPENING) and ASKED in text else text
