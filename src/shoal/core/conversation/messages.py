"""Provider-neutral messages made of content blocks, shaped like the Messages API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

# A tool call whose arguments were not JSON stores them under this key, so that the history stays valid for
# every provider and the call gets an error result instead of being run.
MALFORMED_INPUT_KEY = "__malformed_json__"


INTERRUPTED_RESULT = (
    "Interrupted before it returned: what it did, if anything, is not known. Check before you repeat it."
)
"""Result of a call that will get no other."""
MISSING_HISTORY = "[An earlier part of this conversation is missing because its file was damaged.]"
"""First message of a conversation that would begin with a reply."""


class BaseContentBlock(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """Base class of the parts of a message."""


class TextBlock(BaseContentBlock, frozen=True, tag="text"):
    """Text in a message."""

    text: str
    """The text."""


class ThinkingBlock(BaseContentBlock, frozen=True, tag="thinking"):
    """Reasoning signed by a provider; it must be sent back unchanged, or the provider rejects the history."""

    thinking: str
    signature: str = ""


class RedactedThinkingBlock(BaseContentBlock, frozen=True, tag="redacted_thinking"):
    data: str


class Base64ImageSource(Struct, frozen=True, kw_only=True, tag_field="type", tag="base64", gc=False):
    media_type: str
    data: str


class UrlImageSource(Struct, frozen=True, kw_only=True, tag_field="type", tag="url", gc=False):
    url: str


class ImageBlock(BaseContentBlock, frozen=True, tag="image"):
    source: Base64ImageSource | UrlImageSource


class ToolUseBlock(BaseContentBlock, frozen=True, tag="tool_use"):
    """Tool call in a message from the model."""

    id: str
    """Id of the call, which its result repeats."""
    name: str
    """Name of the tool."""
    input: dict[str, Any]
    """Arguments of the call."""


class ToolResultBlock(BaseContentBlock, frozen=True, tag="tool_result"):
    """Result of a tool call."""

    tool_use_id: str
    """Id of the call."""
    content: str | tuple[TextBlock | ImageBlock, ...] = ""
    """What the model reads."""
    is_error: bool = False
    """True if the call failed."""


ContentBlock: TypeAlias = (
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ImageBlock | ToolUseBlock | ToolResultBlock
)
Role: TypeAlias = Literal["user", "assistant"]


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """One message of a conversation."""

    role: Role
    """Author: `user` or `assistant`."""
    content: tuple[ContentBlock, ...]
    """Blocks of text, tool calls, results and images."""

    # The properties compare types: `isinstance` of a struct costs several times as much if it is False.

    @property
    def text(self) -> str:
        """All text of the message."""
        content = self.content
        if len(content) == 1:  # nearly always, and read several times per message
            return content[0].text if type(content[0]) is TextBlock else ""
        return "\n".join([block.text for block in content if type(block) is TextBlock])

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """Tool calls in the message."""
        return tuple([block for block in self.content if type(block) is ToolUseBlock])


def user_message(text: str) -> Message:
    return Message(role="user", content=(TextBlock(text=text),))


def extract_tool_result_text(result: ToolResultBlock) -> str:
    """Return the text of a tool result, with a marker for each image."""
    if isinstance(result.content, str):
        return result.content
    return "\n".join(b.text if isinstance(b, TextBlock) else "[image]" for b in result.content)


def find_interrupted_tool_call(messages: Iterable[Message], call_id: str) -> ToolUseBlock | None:
    """Return the call with that id if it was interrupted before it returned a result."""
    found: ToolUseBlock | None = None
    for message in messages:
        found = next((call for call in message.tool_uses if call.id == call_id), found)
        for block in message.content:
            if isinstance(block, ToolResultBlock) and block.tool_use_id == call_id:
                return found if block.content == INTERRUPTED_RESULT else None
    return None
