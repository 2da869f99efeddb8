"""Start hooks: context that hooks add to an agent before its loop begins."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.agent.hook_points import format_hook_context
from shoal.core.conversation.messages import Message, TextBlock
from shoal.runs.prepared_agent import PreparedAgent


async def add_subagent_start_hook_context(prepared: PreparedAgent) -> PreparedAgent:
    """Add the context of `SubagentStart` hooks; they cannot prevent the start."""
    hooks = prepared.agent.hooks
    if prepared.prompt is None or not hooks.has_hooks_for("SubagentStart"):
        return prepared
    decision = await hooks.run_hooks("SubagentStart", {})
    if not decision.context:
        return prepared
    context_block = TextBlock(text=format_hook_context("SubagentStart", decision))
    return replace(prepared, prompt=Message(role="user", content=(*prepared.prompt.content, context_block)))
