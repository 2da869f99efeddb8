"""Forks: requests that continue an agent's conversation, so that they share the provider's cache."""

from __future__ import annotations

from pathlib import Path

from shoal.agent.agent import Agent
from shoal.agent.asking import ask
from shoal.agent.conversation import joined, unanswered
from shoal.core.messages import Message, Text, ToolResult, ToolUse, user

_PROMPTS = Path(__file__).parent / "prompts"
ASIDE = (_PROMPTS / "aside.md").read_text(encoding="utf-8")
SUGGEST = (_PROMPTS / "suggest.md").read_text(encoding="utf-8")
NOTHING = "NONE"
"""Answer of a model that has nothing to suggest."""
PROGRESS = (_PROMPTS / "progress.md").read_text(encoding="utf-8")
FORK = "fork"
"""Type of a forked agent."""
MARK = "<fork-boilerplate>"
"""Start of the directive of a fork."""
_DIRECTIVE = f"{MARK}\n{(_PROMPTS / 'fork.md').read_text(encoding='utf-8')}</fork-boilerplate>\n\nThe job:\n"
PLACEHOLDER = "Started. It goes on elsewhere, and what comes of it is not told here."
NO_TOOLS = "No tool is run here. Answer in words, from what you know."
ATTEMPTS = 2
"""Requests that may return tool calls instead of an answer."""


async def run_forked_agent(agent: Agent, directive: str, *, history: list[Message] | None = None) -> str:
    """Return the model's answer to the directive after the agent's conversation, or after `history`.

    Nothing enters the conversation and no tool runs; the agent may work meanwhile. Empty if the model
    writes no text. Raises what `call_model` raises.
    """
    messages = agent.conversation.messages if history is None else history
    messages = joined([*messages, *_placeholders(unanswered(messages)), user(directive)])
    words = ""
    for _ in range(ATTEMPTS):
        reply, _ = await ask(agent, agent.request(messages), aloud=False)
        words = reply.message.text.strip() or words
        calls = reply.message.tool_uses
        if words and not calls:
            break
        if calls:
            refused = tuple(ToolResult(tool_use_id=c.id, content=NO_TOOLS, is_error=True) for c in calls)
            messages = [*messages, reply.message, Message(role="user", content=refused)]
    return words


def fork_prompt(calls: tuple[ToolUse, ...], job: str) -> Message:
    """Build the first message of a fork; forks of one reply differ only in the last text."""
    return joined([*_placeholders(calls), user(_DIRECTIVE + job)])[0]


def is_fork(agent: Agent) -> bool:
    """Return True for a fork: by its type, which survives a compaction, or else by its directive."""
    return agent.identity.kind == FORK or any(
        isinstance(block, Text) and block.text.startswith(MARK)
        for message in agent.conversation.messages
        if message.role == "user"
        for block in message.content
    )


def _placeholders(calls: tuple[ToolUse, ...]) -> tuple[Message, ...]:
    if not calls:
        return ()
    results = tuple(ToolResult(tool_use_id=call.id, content=PLACEHOLDER) for call in calls)
    return (Message(role="user", content=results),)
