"""Images of a conversation that are replaced by a notice because a provider refused them."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.core.conversation.messages import ContentBlock, ImageBlock, Message, TextBlock, ToolResultBlock


def count_images(message: Message) -> int:
    return sum(
        isinstance(part, ImageBlock)
        for block in message.content
        for part in (
            block.content
            if isinstance(block, ToolResultBlock) and not isinstance(block.content, str)
            else (block,)
        )
    )


def leave_out_images(message: Message, notice: str) -> Message:
    """Return the message with the notice in place of each image."""
    text = TextBlock(text=notice)

    def leave_out_image(block: ContentBlock) -> ContentBlock:
        if isinstance(block, ImageBlock):
            return text
        if isinstance(block, ToolResultBlock) and not isinstance(block.content, str):
            parts = tuple(text if isinstance(part, ImageBlock) else part for part in block.content)
            return replace(block, content=parts)
        return block

    return replace(message, content=tuple(map(leave_out_image, message.content)))
