"""Forks: what goes on from where an agent stands, so that a provider's cache holds all they share."""

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
"""What the model answers where it has nothing to propose."""
PROGRESS = (_PROMPTS / "progress.md").read_text(encoding="utf-8")
FORK = "fork"
"""The kind of an agent that is one."""
MARK = "<fork-boilerplate>"
"""How the directive of a fork begins."""
_DIRECTIVE = f"{MARK}\n{(_PROMPTS / 'fork.md').read_text(encoding='utf-8')}</fork-boilerplate>\n\nThe job:\n"
PLACEHOLDER = "Started. It goes on elsewhere, and what comes of it is not told here."
NO_TOOLS = "No tool is run here. Answer in words, from what you know."
ATTEMPTS = 2
"""Requests that may bring calls in place of an answer."""


async def run_forked_agent(agent: Agent, directive: str, *, history: list[Message] | None = None) -> str:
    """What the model says to the directive from where the agent stands, or else from `history`.

    Only the caller learns of it: nothing enters the conversation, no tool is run, and the agent may be at
    work meanwhile. Empty where the model says no word. Raises what `ask` raises.
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
    """What a fork is told after the reply that asked for it; from its siblings only the last text differs."""
    return joined([*_placeholders(calls), user(_DIRECTIVE + job)])[0]


def is_fork(agent: Agent) -> bool:
    """Who it is outlasts a compaction; what it was told outlasts the loss of who it is."""
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
