"""Start hooks: context that hooks add to an agent before its loop begins."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.agent.hooked import context_text
from shoal.core.messages import Message, Text
from shoal.runs.outfit import Outfit


async def greeted(outfit: Outfit) -> Outfit:
    """Add the context of `SubagentStart` hooks; they cannot prevent the start."""
    hooks = outfit.agent.hooks
    if outfit.prompt is None or not hooks.wants("SubagentStart"):
        return outfit
    verdict = await hooks.run("SubagentStart", {})
    if not verdict.context:
        return outfit
    added = Text(text=context_text("SubagentStart", verdict))
    return replace(outfit, prompt=Message(role="user", content=(*outfit.prompt.content, added)))
