"""Removes images that a provider refuses: one of them would fail every later request."""

from __future__ import annotations

import re

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.agent_texts import format_notice
from shoal.agent.hook_points import emit_note
from shoal.core.conversation.left_out_images import count_images
from shoal.core.errors import BadRequest

_IMAGE_ERROR = re.compile(r"image|picture|pixel|media[_ ]type|base64", re.IGNORECASE)


async def drop_refused_images(agent: AgentRunner, error: BadRequest) -> bool:
    """Replace images with a notice if the provider refused one; return False if that cannot help.

    The newest ones go first. If the next request fails too, it replaces all others. The transcript keeps
    them, with a mark that they are left out.
    """
    if not _IMAGE_ERROR.search(str(error)):
        return False
    conversation, notice = agent.conversation, format_notice("refused_image")
    counts = [count for message in conversation.messages if (count := count_images(message))]
    if not counts:
        return False
    has_dropped_before = conversation.left_out_images > 0
    conversation.leave_out_newest_images(sum(counts) if has_dropped_before else counts[-1], notice)
    text = f"An image was left out of the conversation because the provider refused it: {error}"
    await emit_note(agent, text)
    return True
