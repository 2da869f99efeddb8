"""A question to a model and what comes back while and after it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.messages import Message
from shoal.core.usage import Usage

StopReason: TypeAlias = Literal[
    "end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn"
]


class ToolSchema(Struct, frozen=True, kw_only=True):
    """A tool as a model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


class Request(Struct, frozen=True, kw_only=True, gc=False):
    """`system`, `tools` and all but the newest messages are the same, byte for byte, from turn to turn.

    `messages` is the conversation itself, not a copy: a model that keeps it beyond its reply copies it.
    """

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSchema] = ()
    max_tokens: int | None = None
    thinking_tokens: int = 0
    temperature: float | None = None


class Reply(Struct, frozen=True, kw_only=True, gc=False):
    message: Message
    usage: Usage
    stop_reason: StopReason
    model: str
    """The id the provider answered with, which may differ from the one asked for."""
    id: str = ""
    counted: bool = True
    """False where the provider reported no usage: the zeros are not a count, and the request is unsettled."""


class Sent(Struct, frozen=True, gc=False):
    """A request is about to leave; from here on it may cost something."""


class TextDelta(Struct, frozen=True, gc=False):
    text: str


class ThinkingDelta(Struct, frozen=True, gc=False):
    text: str


class ToolInputDelta(Struct, frozen=True, gc=False):
    """A tool call is being written; for progress only, it is never run before it is whole."""

    name: str
    size: int


class Retrying(Struct, frozen=True, kw_only=True, gc=False):
    """An attempt failed and another will be made: what was heard of it so far does not count."""

    reason: str
    delay: float
    attempt: int
    billed: bool


Delta: TypeAlias = Sent | TextDelta | ThinkingDelta | ToolInputDelta | Retrying
Hear: TypeAlias = Callable[[Delta], Awaitable[None]]


async def unheard(_: Delta) -> None:
    """For callers that want the reply alone."""
