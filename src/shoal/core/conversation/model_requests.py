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
"""Reason why a model ended its reply."""


class ToolSchema(CheckedStruct, frozen=True, kw_only=True):
    """Tool as a model sees it."""

    name: str
    """Name by which models call the tool."""
    description: str
    """What the model reads about the tool."""
    input_schema: Mapping[str, Any]
    """JSON Schema of the arguments."""


class WebSearchOptions(Struct, frozen=True, kw_only=True):
    """Options for a web search by the provider."""

    allowed_domains: tuple[str, ...] = ()
    """Domains that results may come from; empty for all."""
    blocked_domains: tuple[str, ...] = ()
    """Domains that results may not come from."""
    max_uses: int = 8
    """Maximum number of searches in one request."""


class ModelRequest(Struct, frozen=True, kw_only=True, gc=False):
    """Request whose `system`, `tools` and older messages stay the same, byte for byte, from turn to turn.

    `messages` is the conversation itself, not a copy: a model that needs it after its reply copies it.
    """

    system: str
    """System prompt."""
    messages: Sequence[Message]
    """Conversation, oldest message first."""
    tools: Sequence[ToolSchema] = ()
    """Tools that the model may call."""
    max_tokens: int | None = None
    """Maximum length of the reply in tokens."""
    thinking_tokens: int = 0
    """Maximum number of tokens for thinking; None if thinking is off."""
    adaptive_thinking: bool = False
    """True if a model that decides itself how much to think may do so without `thinking_tokens`."""
    adaptive_tokens: int = 0
    """Effort of such a model, in tokens; 0 leaves it to the model."""
    temperature: float | None = None
    """Sampling temperature; None for the provider's default."""
    web_search: WebSearchOptions | None = None
    """Options of the provider's own web search; None if it is off."""


class ModelReply(CheckedStruct, frozen=True, kw_only=True, gc=False):
    """Complete reply of a model, with its usage."""

    message: Message
    """The reply."""
    usage: Usage
    """Tokens that the provider counted."""
    stop_reason: StopReason
    """Why the reply ended."""
    model: str
    """Model id in the provider's answer, which may differ from the requested one."""
    id: str = ""
    """Id that the provider gave the reply."""
    counted: bool = True
    """False if the provider reported no usage: the zeros are not a count, and the request is unsettled."""


class ModelAttemptStartedDelta(Struct, frozen=True, gc=False):
    """An attempt is about to be sent; from here on it may cost something."""


class TextDelta(Struct, frozen=True, gc=False):
    """Piece of streamed text."""

    text: str
    """Next piece of the reply."""
    reply: str = ""
    """Provider\'s id of the reply, if it is known."""


class ThinkingDelta(Struct, frozen=True, gc=False):
    """Part of what the model thinks before its reply."""

    text: str
    """Next piece of the thinking."""
    reply: str = ""
    """Provider\'s id of the reply, if it is known."""


class ToolInputProgressDelta(Struct, frozen=True, gc=False):
    """Part of a tool call; for progress only, the call never runs before it is complete."""

    name: str
    """Name of the tool."""
    size: int
    """Number of characters of the arguments so far."""


class ModelRetryScheduledDelta(Struct, frozen=True, kw_only=True, gc=False):
    """An attempt failed and another follows: discard what was streamed so far."""

    reason: str
    """Why the attempt failed."""
    delay: float
    """Seconds until the next attempt."""
    attempt: int
    """Number of the failed attempt, from 1."""
    billed: bool
    """True if the provider may bill the failed attempt."""
    status: int | None = None
    """HTTP status of the failure; None if there was no response."""


StreamDelta: TypeAlias = (
    ModelAttemptStartedDelta | TextDelta | ThinkingDelta | ToolInputProgressDelta | ModelRetryScheduledDelta
)
"""Piece of a reply, while the model writes it."""
DeltaListener: TypeAlias = Callable[[StreamDelta], Awaitable[None]]
"""Async function that a model calls with each piece of its reply."""


async def ignore_stream_delta(_: StreamDelta) -> None:
    """Ignore a delta, for callers that need only the reply."""
