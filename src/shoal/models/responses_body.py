"""Request bodies of the Responses API."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.messages import (
    ContentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.catalogue import is_local_url, is_openai_url, parse_model_version
from shoal.models.chat_body import build_image_url, format_chat_tool_result
from shoal.models.provider_json import encode_json
from shoal.models.reasoning_items import decode_reasoning_signature, has_reasoning_item
from shoal.models.request_turns import group_messages_into_turns, prepare_openai_block

_EFFORTS = ((4_000, "low"), (16_000, "medium"), (32_000, "high"))
_MIN_OUTPUT_TOKENS = 16


class ResponsesApiDialect(Struct, frozen=True, kw_only=True):
    """Differences between models and servers of this API."""

    reasoning_effort: bool = True
    """Accepts a reasoning level, and then no temperature."""
    max_effort: str = "high"
    """The highest level it supports."""
    encrypted_reasoning: bool = True
    """Returns its reasoning in an encrypted form that can be sent back."""
    reasoning_summary: bool = True
    """Returns a summary of its reasoning if asked."""
    labels_phases: bool = False
    """Expects its earlier texts to be labeled as commentary or final answers."""
    always_limited: bool = False


def select_responses_dialect(model: str, base_url: str) -> ResponsesApiDialect:
    version = parse_model_version(model)
    if not is_openai_url(base_url):
        return ResponsesApiDialect(always_limited=is_local_url(base_url))
    can_reason = version >= (5, 0) or bool(re.match(r"o\d", model))
    return ResponsesApiDialect(
        reasoning_effort=can_reason,
        max_effort="xhigh" if version >= (5, 2) else "high",
        encrypted_reasoning=can_reason,
        labels_phases=version >= (5, 3),
    )


def build_responses_body(
    request: ModelRequest,
    card: ModelCard,
    dialect: ResponsesApiDialect,
    *,
    unreadable: Container[str] = (),
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
    if request.web_search is not None:
        search: dict[str, Any] = {"type": "web_search"}
        if request.web_search.allowed_domains:
            search["filters"] = {"allowed_domains": list(request.web_search.allowed_domains)}
        body["tools"] = [*body.get("tools", ()), search]
    body |= _build_length_and_thinking_fields(request, card, dialect)

    def is_sendable_thinking(block: ThinkingBlock) -> bool:
        return has_reasoning_item(block) and block.signature not in unreadable

    prepare = partial(prepare_openai_block, images=card.images, keeps_thinking=is_sendable_thinking)
    items: list[dict[str, Any]] = []
    for role, blocks in group_messages_into_turns(request.messages, prepare):
        items += (
            _encode_assistant_turn(blocks, phases=dialect.labels_phases)
            if role == "assistant"
            else _encode_user_turn(blocks)
        )
    body["input"] = items
    return body


def _build_length_and_thinking_fields(
    request: ModelRequest, card: ModelCard, dialect: ResponsesApiDialect
) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if request.max_tokens is not None or dialect.always_limited:
        max_tokens = min(request.max_tokens or card.max_output, card.max_output)
        limits["max_output_tokens"] = max(_MIN_OUTPUT_TOKENS, max_tokens)
    if dialect.encrypted_reasoning:
        limits["include"] = ["reasoning.encrypted_content"]
    if request.thinking_tokens and dialect.reasoning_effort:
        levels = (name for limit, name in _EFFORTS if request.thinking_tokens < limit)
        limits["reasoning"] = {"effort": next(levels, dialect.max_effort)}
        if dialect.reasoning_summary:
            limits["reasoning"]["summary"] = "auto"
    elif request.temperature is not None and not (dialect.reasoning_effort and dialect.encrypted_reasoning):
        limits["temperature"] = request.temperature
    return limits


def _encode_assistant_turn(blocks: Sequence[ContentBlock], *, phases: bool) -> Iterator[dict[str, Any]]:
    last_call = max((i for i, block in enumerate(blocks) if isinstance(block, ToolUseBlock)), default=-1)
    last_item = max((i for i, block in enumerate(blocks) if not isinstance(block, ThinkingBlock)), default=-1)
    for index, block in enumerate(blocks):
        match block:
            case ThinkingBlock() if (
                item := decode_reasoning_signature(block)
            ) is not None and index < last_item:
                # A trailing reasoning item without output is rejected.
                summary = [{"type": "summary_text", "text": block.thinking}] if block.thinking else []
                yield {
                    "type": "reasoning",
                    "id": item.id,
                    "summary": summary,
                    "encrypted_content": item.content,
                }
            case TextBlock():
                message = {"type": "message", "role": "assistant", "content": block.text}
                if phases:
                    message["phase"] = "commentary" if index < last_call else "final_answer"
                yield message
            case ToolUseBlock():
                yield {
                    "type": "function_call",
                    "call_id": block.id,
                    "name": block.name,
                    "arguments": encode_json(block.input).decode(),
                }
            case _:
                pass


def _encode_user_turn(blocks: Sequence[ContentBlock]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            yield {
                "type": "function_call_output",
                "call_id": block.tool_use_id,
                "output": _encode_tool_output(block),
            }
    visible = [block for block in blocks if isinstance(block, TextBlock | ImageBlock)]
    if visible:
        yield {
            "type": "message",
            "role": "user",
            "content": [_encode_content_part(block) for block in visible],
        }


def _encode_tool_output(result: ToolResultBlock) -> str | list[dict[str, Any]]:
    if isinstance(result.content, str) or not any(isinstance(part, ImageBlock) for part in result.content):
        return format_chat_tool_result(result)
    error_prefix = [TextBlock(text="Error:")] if result.is_error else []
    return [_encode_content_part(part) for part in (*error_prefix, *result.content)]


def _encode_content_part(block: TextBlock | ImageBlock) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    return {"type": "input_image", "image_url": build_image_url(block), "detail": "auto"}
