"""Conversations in the form providers expect: alternating turns, none empty, tool results first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shoal.core.conversation.messages import (
    ContentBlock,
    ImageBlock,
    Message,
    RedactedThinkingBlock,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
)
from shoal.models.request_texts import format_request_notice


def group_messages_into_turns(
    messages: Sequence[Message], prepare: Callable[[ContentBlock], ContentBlock | None]
) -> Iterator[tuple[Role, list[ContentBlock]]]:
    """Yield the turns; `prepare` returns a block in sendable form, or None to drop it."""
    role: Role | None = None
    turn: list[ContentBlock] = []
    for message in messages:
        blocks = [sent for block in message.content if (sent := prepare(block)) is not None]
        if not blocks:
            continue
        if message.role != role:
            if role is not None:
                yield role, _sort_tool_results_first(turn)
            role, turn = message.role, []
        turn += blocks
    if role is not None:
        yield role, _sort_tool_results_first(turn)


def _sort_tool_results_first(turn: list[ContentBlock]) -> list[ContentBlock]:
    turn.sort(key=lambda block: not isinstance(block, ToolResultBlock))
    return turn


def has_visible_text(block: TextBlock) -> bool:
    """Return True if the text is more than white space, which providers reject."""
    return bool(block.text) and not block.text.isspace()


def replace_unsupported_image(block: ImageBlock, *, images: bool) -> ImageBlock | TextBlock:
    """Return the image, or a text note for a model without image support."""
    return block if images else TextBlock(text=format_request_notice("no_image"))


def prepare_openai_block(
    block: ContentBlock, *, images: bool, keeps_thinking: Callable[[ThinkingBlock], bool]
) -> ContentBlock | None:
    """Return a block for an OpenAI-style provider; `keeps_thinking` selects thinking to send back."""
    match block:
        case ThinkingBlock():
            return block if keeps_thinking(block) else None
        case RedactedThinkingBlock():
            return None
        case TextBlock():
            return block if has_visible_text(block) else None
        case ImageBlock():
            return replace_unsupported_image(block, images=images)
        case ToolResultBlock() if not isinstance(block.content, str) and not images:
            parts = tuple(
                replace_unsupported_image(p, images=False) if isinstance(p, ImageBlock) else p
                for p in block.content
            )
            return ToolResultBlock(tool_use_id=block.tool_use_id, content=parts, is_error=block.is_error)
        case _:
            return block
