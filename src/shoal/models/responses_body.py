"""Request bodies of the Responses API."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from shoal.core.messages import (
    ContentBlock,
    Image,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from shoal.core.requests import Request
from shoal.core.usage import ModelCard
from shoal.models.catalogue import is_openai, is_own_machine, version_of
from shoal.models.chat_body import image_url, result_words
from shoal.models.json_text import encoded
from shoal.models.reasoning import is_sealed, sealed_in
from shoal.models.turns import alternating, sendable

_EFFORTS = ((4_000, "low"), (16_000, "medium"), (32_000, "high"))
_LEAST_OUTPUT = 16


class ResponsesDialect(Struct, frozen=True, kw_only=True):
    """Differences between models and servers of this API."""

    reasons: bool = True
    """Accepts a reasoning level, and then no temperature."""
    most: str = "high"
    """The highest level it supports."""
    sealed: bool = True
    """Returns its reasoning in an encrypted form that can be sent back."""
    summarised: bool = True
    """Returns a summary of its reasoning if asked."""
    phases: bool = False
    """Expects its earlier texts to be labelled as commentary or final answers."""
    always_limited: bool = False


def dialect_of(model: str, base_url: str) -> ResponsesDialect:
    version = version_of(model)
    if not is_openai(base_url):
        return ResponsesDialect(always_limited=is_own_machine(base_url))
    reasons = version >= (5, 0) or bool(re.match(r"o\d", model))
    return ResponsesDialect(
        reasons=reasons,
        most="xhigh" if version >= (5, 2) else "high",
        sealed=reasons,
        phases=version >= (5, 3),
    )


def body_of(
    request: Request, card: ModelCard, dialect: ResponsesDialect, *, unread: Container[str] = ()
) -> dict[str, Any]:
    """Return the request body: all messages, with encrypted reasoning, since nothing is stored remotely.

    `unreadable` holds signatures that the provider could not decrypt.
    """
    body: dict[str, Any] = {"model": card.id, "stream": True, "store": False}
    if request.system.strip():
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
                # The default is true, and then a schema may have no optional fields.
                "strict": False,
            }
            for tool in request.tools
        ]
    body |= _limits(request, card, dialect)

    def thought(block: Thinking) -> bool:
        return is_sealed(block) and block.signature not in unread

    sent = partial(sendable, images=card.images, thought=thought)
    items: list[dict[str, Any]] = []
    for role, blocks in alternating(request.messages, sent):
        items += _assistant(blocks, phases=dialect.phases) if role == "assistant" else _user(blocks)
    body["input"] = items
    return body


def _limits(request: Request, card: ModelCard, dialect: ResponsesDialect) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if request.max_tokens is not None or dialect.always_limited:
        wanted = min(request.max_tokens or card.max_output, card.max_output)
        limits["max_output_tokens"] = max(_LEAST_OUTPUT, wanted)
    if dialect.sealed:
        limits["include"] = ["reasoning.encrypted_content"]
    if request.thinking_tokens and dialect.reasons:
        levels = (name for up_to, name in _EFFORTS if request.thinking_tokens < up_to)
        limits["reasoning"] = {"effort": next(levels, dialect.most)}
        if dialect.summarised:
            limits["reasoning"]["summary"] = "auto"
    elif request.temperature is not None and not (dialect.reasons and dialect.sealed):
        limits["temperature"] = request.temperature
    return limits


def _assistant(blocks: Sequence[ContentBlock], *, phases: bool) -> Iterator[dict[str, Any]]:
    last_call = max((i for i, block in enumerate(blocks) if isinstance(block, ToolUse)), default=-1)
    last_item = max((i for i, block in enumerate(blocks) if not isinstance(block, Thinking)), default=-1)
    for index, block in enumerate(blocks):
        match block:
            case Thinking() if (item := sealed_in(block)) is not None and index < last_item:
                # A trailing reasoning item without output is rejected.
                words = [{"type": "summary_text", "text": block.thinking}] if block.thinking else []
                yield {
                    "type": "reasoning",
                    "id": item.id,
                    "summary": words,
                    "encrypted_content": item.content,
                }
            case Text():
                message = {"type": "message", "role": "assistant", "content": block.text}
                if phases:
                    message["phase"] = "commentary" if index < last_call else "final_answer"
                yield message
            case ToolUse():
                yield {
                    "type": "function_call",
                    "call_id": block.id,
                    "name": block.name,
                    "arguments": encoded(block.input).decode(),
                }
            case _:
                pass


def _user(blocks: Sequence[ContentBlock]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        if isinstance(block, ToolResult):
            yield {"type": "function_call_output", "call_id": block.tool_use_id, "output": _output(block)}
    shown = [block for block in blocks if isinstance(block, Text | Image)]
    if shown:
        yield {"type": "message", "role": "user", "content": [_part(block) for block in shown]}


def _output(result: ToolResult) -> str | list[dict[str, Any]]:
    if isinstance(result.content, str) or not any(isinstance(part, Image) for part in result.content):
        return result_words(result)
    failed = [Text(text="Error:")] if result.is_error else []
    return [_part(part) for part in (*failed, *result.content)]


def _part(block: Text | Image) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "input_text", "text": block.text}
    return {"type": "input_image", "image_url": image_url(block), "detail": "auto"}
