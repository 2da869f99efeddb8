"""Forks: requests that continue an agent's conversation, so that they share the provider's cache."""

from __future__ import annotations

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.agent_texts import format_notice, load_prompt
from shoal.agent.conversation import find_unanswered_tool_calls, merge_adjacent_messages
from shoal.agent.model_call import call_model
from shoal.core.conversation.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock, user_message
from shoal.core.text.text_format import to_one_line

NO_SUGGESTION = "NONE"
"""Answer of a model that has nothing to suggest."""
FORK_KIND = "fork"
"""Type of a forked agent."""
FORK_MARK = "<fork-boilerplate>"
"""Start of the directive of a fork."""
MAX_FORK_REQUESTS = 2
"""Number of requests that may return tool calls instead of an answer."""


async def ask_model_outside_conversation(
    agent: AgentRunner, directive: str, *, history: list[Message] | None = None
) -> str:
    """Return the model's answer to the directive after the agent's conversation, or after `history`.

    Nothing enters the conversation and no tool runs; the agent may work meanwhile. Empty if the model
    writes no text. Raises what `call_model` raises.
    """
    messages = agent.conversation.messages if history is None else history
    messages = merge_adjacent_messages(
        [
            *messages,
            *_build_placeholder_tool_results(find_unanswered_tool_calls(messages)),
            user_message(directive),
        ]
    )
    answer = ""
    for _ in range(MAX_FORK_REQUESTS):
        reply, _ = await call_model(agent, agent.build_model_request(messages), emits_stream=False)
        answer = reply.message.text.strip() or answer
        calls = reply.message.tool_uses
        if answer and not calls:
            break
        if calls:
            refusals = tuple(
                ToolResultBlock(tool_use_id=c.id, content=format_notice("no_tools"), is_error=True)
                for c in calls
            )
            messages = [*messages, reply.message, Message(role="user", content=refusals)]
    return answer


def build_fork_prompt(calls: tuple[ToolUseBlock, ...], job: str) -> Message:
    """Build the first message of a fork; forks of one reply differ only in the last text."""
    directive = f"{FORK_MARK}\n{load_prompt('fork')}</fork-boilerplate>\n\nThe job:\n{job}"
    return merge_adjacent_messages([*_build_placeholder_tool_results(calls), user_message(directive)])[0]


def is_forked_agent(agent: AgentRunner) -> bool:
    """Return True for a fork: by its type, which survives a compaction, or else by its directive."""
    return agent.identity.kind == FORK_KIND or any(
        isinstance(block, TextBlock) and block.text.startswith(FORK_MARK)
        for message in agent.conversation.messages
        if message.role == "user"
        for block in message.content
    )


def _build_placeholder_tool_results(calls: tuple[ToolUseBlock, ...]) -> tuple[Message, ...]:
    if not calls:
        return ()
    placeholder = format_notice("placeholder_result")
    results = tuple(ToolResultBlock(tool_use_id=call.id, content=placeholder) for call in calls)
    return (Message(role="user", content=results),)


async def suggest_next_prompt(agent: AgentRunner) -> str:
    """Suggest the user's next prompt in one line; empty if the model has no suggestion."""
    suggestion = to_one_line(await ask_model_outside_conversation(agent, load_prompt("suggest"))).strip()
    return "" if suggestion.strip(".") == NO_SUGGESTION else suggestion
