"""Conversations in the form providers expect: alternating turns, none empty, tool results first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shoal.core.messages import (
    ContentBlock,
    Image,
    Message,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolResult,
)

NO_IMAGE = Text(text="[an image is left out here: this model does not see images]")


def alternating(
    messages: Sequence[Message], sendable: Callable[[ContentBlock], ContentBlock | None]
) -> Iterator[tuple[Role, list[ContentBlock]]]:
    """Yield the turns; `prepare` returns a block in sendable form, or None to drop it."""
    role: Role | None = None
    turn: list[ContentBlock] = []
    for message in messages:
        blocks = [sent for block in message.content if (sent := sendable(block)) is not None]
        if not blocks:
            continue
        if message.role != role:
            if role is not None:
                yield role, _results_first(turn)
            role, turn = message.role, []
        turn += blocks
    if role is not None:
        yield role, _results_first(turn)


def _results_first(turn: list[ContentBlock]) -> list[ContentBlock]:
    turn.sort(key=lambda block: not isinstance(block, ToolResult))
    return turn


def has_words(block: Text) -> bool:
    """Return True if the text is more than white space, which providers reject."""
    return bool(block.text) and not block.text.isspace()


def seen(block: Image, *, images: bool) -> Image | Text:
    """Return the image, or a text note for a model without image support."""
    return block if images else NO_IMAGE


def sendable(
    block: ContentBlock, *, images: bool, thought: Callable[[Thinking], bool]
) -> ContentBlock | None:
    """Return a block for an OpenAI-style provider; `keeps_thinking` selects thinking to send back."""
    match block:
        case Thinking():
            return block if thought(block) else None
        case RedactedThinking():
            return None
        case Text():
            return block if has_words(block) else None
        case Image():
            return seen(block, images=images)
        case ToolResult() if not isinstance(block.content, str) and not images:
            parts = tuple(seen(p, images=False) if isinstance(p, Image) else p for p in block.content)
            return ToolResult(tool_use_id=block.tool_use_id, content=parts, is_error=block.is_error)
        case _:
            return block
