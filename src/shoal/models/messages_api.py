"""Models behind the Messages API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from shoal.core.messages import (
    ContentBlock,
    Image,
    Message,
    Role,
    Text,
    Thinking,
    ToolResult,
)
from shoal.core.requests import Hear, Reply, Request, Sent
from shoal.core.usage import ModelCard
from shoal.models.hearing import Listening
from shoal.models.http import Endpoint
from shoal.models.json_text import encoded
from shoal.models.messages_stream import MessageAssembly

VERSION = "2023-06-01"
_BREAKPOINT = {"type": "ephemeral"}
_NO_IMAGE = Text(text="[an image is left out here: this model does not see images]")
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
        listening = Listening(self._endpoint.asked, assembly, hear, ended=lambda: assembly.done)
        await hear(Sent())
        await self._endpoint.ask(body, listening.take)
        return assembly.reply()

    async def aclose(self) -> None:
        await self._endpoint.aclose()


def body_of(request: Request, card: ModelCard) -> dict[str, Any]:
    """What is sent. Only the breakpoints move from turn to turn; everything before the new messages stays.

    They stand on the tools, the system prompt and the last two user messages: this request then reads what
    the one before it wrote, and writes what the next one reads.
    """
    body: dict[str, Any] = {"model": card.id, "stream": True, **_limits(request, card)}
    if request.tools:
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in request.tools
        ]
        tools[-1]["cache_control"] = _BREAKPOINT
        body["tools"] = tools
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _BREAKPOINT}]
    body["messages"] = messages = [
        {"role": role, "content": blocks} for role, blocks in _turns(request.messages, images=card.images)
    ]
    for turn in [turn for turn in messages if turn["role"] == "user"][-2:]:
        last = msgspec.to_builtins(turn["content"][-1])
        turn["content"][-1] = {**last, "cache_control": _BREAKPOINT}
    return body


def _limits(request: Request, card: ModelCard) -> dict[str, Any]:
    """How long, how deep and how freely to answer, as this generation of models wants it said."""
    limits: dict[str, Any] = {"max_tokens": min(request.max_tokens or card.max_output, card.max_output)}
    version = version_of(card.id)
    if request.thinking_tokens and version >= (4, 6):
        effort = next((name for up_to, name in _EFFORTS if request.thinking_tokens < up_to), "max")
        limits["thinking"] = {"type": "adaptive"}
        limits["output_config"] = {"effort": effort}
    elif request.thinking_tokens:
        budget = max(_LEAST_THINKING, request.thinking_tokens)
        # The budget is part of max_tokens and must leave room for the answer itself.
        limits["max_tokens"] = min(
            card.max_output, max(limits["max_tokens"], budget + _LEAST_THINKING)
        )
        budget = min(budget, limits["max_tokens"] - 1)
        limits["thinking"] = {"type": "enabled", "budget_tokens": budget}
    elif request.temperature is not None and version < (4, 7):
        # Refused beside thinking, and by every model since 4.7.
        limits["temperature"] = request.temperature
    return limits


def version_of(model: str) -> tuple[int, int]:
    """(4, 5) for claude-sonnet-4-5-20250929; (0, 0) for a name without a version."""
    numbers = re.findall(r"(?<![\w.])(\d{1,2})(?![\w])", model.replace(".", "-").split("@")[0].replace("-", " "))
    major, minor = ([int(number) for number in numbers] + [0, 0])[:2]
    return major, minor


def _turns(messages: Sequence[Message], *, images: bool) -> Iterator[tuple[Role, list[ContentBlock]]]:
    """Turns that alternate, none of them empty, tool results first in theirs, as the API requires."""
    role: Role | None = None
    turn: list[ContentBlock] = []
    for message in messages:
        blocks = [
            sendable for block in message.content if (sendable := _sendable(block, images=images)) is not None
        ]
        if not blocks:
            continue
        if message.role != role:
            if role is not None:
                yield role, _ordered(turn)
            role, turn = message.role, []
        turn += blocks
    if role is not None:
        yield role, _ordered(turn)


def _ordered(turn: list[ContentBlock]) -> list[ContentBlock]:
    # `sort` is stable and costs nothing where results already come first.
    turn.sort(key=lambda block: not isinstance(block, ToolResult))
    return turn


def _sendable(block: ContentBlock, *, images: bool) -> ContentBlock | None:
    match block:
        case Text():
            return block if block.text and not block.text.isspace() else None
        case Thinking():
            # Another provider's reasoning has no signature, and would be refused.
            return block if block.signature else None
        case Image():
            return block if images else _NO_IMAGE
        case ToolResult():
            return _sendable_result(block, images=images)
        case _:
            return block


def _sendable_result(result: ToolResult, *, images: bool) -> ToolResult:
    content = result.content
    if not isinstance(content, str):
        content = tuple(
            part
            for part in content
            if isinstance(part, Text) and part.text.strip() or isinstance(part, Image)
        )
        if not images:
            content = tuple(_NO_IMAGE if isinstance(part, Image) else part for part in content)
    if not content and result.is_error:
        content = "The call failed and said nothing."  # an error without content is refused
    if content == result.content:
        return result
    return ToolResult(tool_use_id=result.tool_use_id, content=content or "", is_error=result.is_error)
