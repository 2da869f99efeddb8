"""Removes images that a provider refuses: one of them would fail every later request."""

from __future__ import annotations

import re

from msgspec.structs import replace

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.agent_texts import format_notice
from shoal.agent.hook_points import emit_note
from shoal.core.conversation.messages import ContentBlock, ImageBlock, Message, TextBlock, ToolResultBlock
from shoal.core.errors import BadRequest

_IMAGE_ERROR = re.compile(r"image|picture|pixel|media[_ ]type|base64", re.IGNORECASE)


async def drop_refused_images(agent: AgentRunner, error: BadRequest) -> bool:
    """Replace images by a notice if the provider refused one; return False if that cannot help.

    The newest ones go first. If the next request fails too, it replaces all others. The transcript keeps
    them.
    """
    if not _IMAGE_ERROR.search(str(error)):
        return False
    messages = agent.conversation.messages
    with_images = [index for index, message in enumerate(messages) if _has_image(message)]
    if not with_images:
        return False
    has_dropped_before = any(_is_notice(block) for message in messages for block in message.content)
    for index in with_images if has_dropped_before else with_images[-1:]:
        messages[index] = _replace_images(messages[index])
    text = f"An image was left out of the conversation because the provider refused it: {error}"
    await emit_note(agent, text)
    return True


def _has_image(message: Message) -> bool:
    return any(
        isinstance(block, ImageBlock)
        or (
            isinstance(block, ToolResultBlock)
            and not isinstance(block.content, str)
            and any(isinstance(part, ImageBlock) for part in block.content)
        )
        for block in message.content
    )


def _is_notice(block: ContentBlock) -> bool:
    notice = _build_notice()
    if isinstance(block, ToolResultBlock):
        return not isinstance(block.content, str) and notice in block.content
    return block == notice


def _replace_images(message: Message) -> Message:
    return replace(message, content=tuple(_replace_image_in_block(block) for block in message.content))


def _replace_image_in_block(block: ContentBlock) -> ContentBlock:
    notice = _build_notice()
    if isinstance(block, ImageBlock):
        return notice
    if isinstance(block, ToolResultBlock) and not isinstance(block.content, str):
        parts = tuple(notice if isinstance(part, ImageBlock) else part for part in block.content)
        return replace(block, content=parts)
    return block


def _build_notice() -> TextBlock:
    return TextBlock(text=format_notice("refused_image"))
