"""Request to a model, the deltas streamed while it answers, and its reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import Message
from shoal.core.keyword_checks import CheckedStruct

StopReason: TypeAlias = Literal[
    "end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn"
]


class ToolSchema(CheckedStruct, frozen=True, kw_only=True):
    """Tool as a model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


class WebSearchOptions(Struct, frozen=True, kw_only=True):
    """Options for a web search by the provider."""

    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    max_uses: int = 8


class ModelRequest(Struct, frozen=True, kw_only=True, gc=False):
    """Request whose `system`, `tools` and older messages stay the same, byte for byte, from turn to turn.

    `messages` is the conversation itself, not a copy: a model that needs it after its reply copies it.
    """

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSchema] = ()
    max_tokens: int | None = None
    thinking_tokens: int = 0
    adaptive_thinking: bool = False
    """True if a model that decides itself how much to think may do so without `thinking_tokens`."""
    adaptive_tokens: int = 0
    """Effort of such a model, in tokens; 0 leaves it to the model."""
    temperature: float | None = None
    web_search: WebSearchOptions | None = None


class ModelReply(CheckedStruct, frozen=True, kw_only=True, gc=False):
    """Complete reply of a model, with its usage."""

    message: Message
    usage: Usage
    stop_reason: StopReason
    model: str
    """Model id in the provider's answer, which may differ from the requested one."""
    id: str = ""
    counted: bool = True
    """False if the provider reported no usage: the zeros are not a count, and the request is unsettled."""


class ModelAttemptStartedDelta(Struct, frozen=True, gc=False):
    """An attempt is about to be sent; from here on it may cost something."""


class TextDelta(Struct, frozen=True, gc=False):
    """Piece of streamed text."""

    text: str


class ThinkingDelta(Struct, frozen=True, gc=False):
    text: str


class ToolInputProgressDelta(Struct, frozen=True, gc=False):
    """Part of a tool call; for progress only, the call never runs before it is complete."""

    name: str
    size: int


class ModelRetryScheduledDelta(Struct, frozen=True, kw_only=True, gc=False):
    """An attempt failed and another follows: discard what was streamed so far."""

    reason: str
    delay: float
    attempt: int
    billed: bool
    status: int | None = None
    """HTTP status of the failure; None if there was no response."""


StreamDelta: TypeAlias = (
    ModelAttemptStartedDelta | TextDelta | ThinkingDelta | ToolInputProgressDelta | ModelRetryScheduledDelta
)
DeltaListener: TypeAlias = Callable[[StreamDelta], Awaitable[None]]


async def ignore_stream_delta(_: StreamDelta) -> None:
    """Ignore a delta, for callers that need only the reply."""
