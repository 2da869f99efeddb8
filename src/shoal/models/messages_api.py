"""Models behind the Messages API."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from shoal.core.messages import ContentBlock, Image, Text, Thinking, ToolResult
from shoal.core.requests import Hear, Reply, Request, Sent
from shoal.core.usage import ModelCard
from shoal.models.catalogue import version_of
from shoal.models.hearing import Listening
from shoal.models.http import Endpoint
from shoal.models.json_text import encoded
from shoal.models.messages_stream import MessageAssembly
from shoal.models.reasoning import is_sealed
from shoal.models.turns import alternating, has_words, seen

_BREAKPOINT = {"type": "ephemeral"}
_MOST_BREAKPOINTS = 4
_LEAST_THINKING = 1024
_EFFORTS = ((4_000, "low"), (16_000, "medium"), (32_000, "high"))


class MessagesModel:
    def __init__(self, card: ModelCard, endpoint: Endpoint) -> None:
        self._card = card
        self._endpoint = endpoint

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear) -> Reply:
        body = encoded(body_of(request, self._card))
        assembly = MessageAssembly(self._endpoint.asked)
        listening = Listening(self._endpoint.asked, assembly, hear)
        await hear(Sent())
        await self._endpoint.ask(body, listening.take)
        return assembly.reply()

    async def aclose(self) -> None:
        await self._endpoint.aclose()


def body_of(request: Request, card: ModelCard) -> dict[str, Any]:
    """Return the request body. Only the breakpoints move between turns; all before the new messages stays.

    Breakpoints are on the system prompt and the last two user messages: each request then reads what the
    previous one cached, and caches what the next one reads. Text after tool results gets one before it too:
    siblings that differ only in that text share the rest. A remaining breakpoint goes on the tools.
    """
    body: dict[str, Any] = {"model": card.id, "stream": True, **_limits(request, card)}
    if request.tools:
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in request.tools
        ]
        body["tools"] = tools
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _BREAKPOINT}]
    messages: list[dict[str, Any]] = [
        {"role": role, "content": blocks}
        for role, blocks in alternating(request.messages, partial(_sendable, images=card.images))
    ]
    marked = ("system" in body) + _mark([turn["content"] for turn in messages if turn["role"] == "user"])
    if request.tools and marked < _MOST_BREAKPOINTS:
        body["tools"][-1]["cache_control"] = _BREAKPOINT
    body["messages"] = messages
    return body


def _mark(turns: list[list[Any]]) -> int:
    """Set the breakpoints in the user's turns; return their number."""
    ends = [(turn, len(turn) - 1) for turn in turns[-2:]]
    if turns:
        results = sum(isinstance(block, ToolResult) for block in turns[-1])
        if 0 < results < len(turns[-1]):
            ends.append((turns[-1], results - 1))
    for turn, index in ends:
        turn[index] = {**msgspec.to_builtins(turn[index]), "cache_control": _BREAKPOINT}
    return len(ends)


def _limits(request: Request, card: ModelCard) -> dict[str, Any]:
    """Return the limits on length, thinking and temperature in the form this model generation expects."""
    limits: dict[str, Any] = {"max_tokens": min(request.max_tokens or card.max_output, card.max_output)}
    version = version_of(card.id)
    if request.thinking_tokens and version >= (4, 6):
        effort = next((name for up_to, name in _EFFORTS if request.thinking_tokens < up_to), "max")
        limits["thinking"] = {"type": "adaptive"}
        limits["output_config"] = {"effort": effort}
    elif request.thinking_tokens:
        budget = max(_LEAST_THINKING, request.thinking_tokens)
        # The budget is part of max_tokens and must leave room for the answer itself.
        limits["max_tokens"] = min(card.max_output, max(limits["max_tokens"], budget + _LEAST_THINKING))
        budget = min(budget, limits["max_tokens"] - 1)
        limits["thinking"] = {"type": "enabled", "budget_tokens": budget}
    elif request.temperature is not None and version < (4, 7):
        # Rejected together with thinking, and by every model since 4.7.
        limits["temperature"] = request.temperature
    return limits


def _sendable(block: ContentBlock, *, images: bool) -> ContentBlock | None:
    match block:
        case Text():
            return block if has_words(block) else None
        case Thinking():
            # Another provider's reasoning has no signature, or a foreign one, and would be rejected.
            return block if block.signature and not is_sealed(block) else None
        case Image():
            return seen(block, images=images)
        case ToolResult():
            return _sendable_result(block, images=images)
        case _:
            return block


def _sendable_result(result: ToolResult, *, images: bool) -> ToolResult:
    content = result.content
    if not isinstance(content, str):
        content = tuple(
            part if isinstance(part, Text) else seen(part, images=images)
            for part in content
            if isinstance(part, Image) or has_words(part)
        )
    if not content and result.is_error:
        content = "The call failed and said nothing."  # an error without content is rejected
    if content == result.content:
        return result
    return ToolResult(tool_use_id=result.tool_use_id, content=content or "", is_error=result.is_error)
