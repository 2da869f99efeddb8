"""Models behind the Messages API."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.messages import (
    ContentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
)
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    WebSearchOptions,
)
from shoal.models.catalogue import parse_model_version
from shoal.models.messages_stream import MessagesApiReplyAssembler
from shoal.models.model_endpoint import ModelEndpoint
from shoal.models.provider_json import encode_json
from shoal.models.reasoning_items import has_reasoning_item
from shoal.models.reply_stream import ReplyStreamReader
from shoal.models.request_texts import format_request_notice
from shoal.models.request_turns import group_messages_into_turns, has_visible_text, replace_unsupported_image

_BREAKPOINT = {"type": "ephemeral"}
_MAX_BREAKPOINTS = 4
_MIN_THINKING_TOKENS = 1024
_MIN_ANSWER_TOKENS = 4096
_EFFORTS = ((4_000, "low"), (16_000, "medium"), (32_000, "high"), (64_000, "xhigh"))


class MessagesApiModel:
    def __init__(self, card: ModelCard, endpoint: ModelEndpoint) -> None:
        self._card = card
        self._endpoint = endpoint

    @property
    def card(self) -> ModelCard:
        return self._card

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        body = encode_json(build_messages_body(request, self._card))
        assembler = MessagesApiReplyAssembler(self._endpoint.target)
        reader = ReplyStreamReader(self._endpoint.target, assembler, on_delta)
        await on_delta(ModelAttemptStartedDelta())
        await self._endpoint.post_request(body, reader.feed, reader.count_events)
        return assembler.build_reply()

    async def aclose(self) -> None:
        await self._endpoint.aclose()


def build_messages_body(request: ModelRequest, card: ModelCard) -> dict[str, Any]:
    """Return the request body. Only the breakpoints move between turns; all before the new messages stays.

    Breakpoints are on the system prompt and the last two user messages: each request then reads what the
    previous one cached, and caches what the next one reads. Text after tool results gets one before it too:
    siblings that differ only in that text share the rest. A remaining breakpoint is placed on the tools.
    """
    body: dict[str, Any] = {
        "model": card.id,
        "stream": True,
        **_build_length_and_thinking_fields(request, card),
    }
    if request.tools:
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in request.tools
        ]
        body["tools"] = tools
    if request.web_search is not None:
        body["tools"] = [*body.get("tools", ()), _encode_web_search(request.web_search)]
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _BREAKPOINT}]
    messages: list[dict[str, Any]] = [
        {"role": role, "content": blocks}
        for role, blocks in group_messages_into_turns(
            request.messages, partial(_prepare_content_block, images=card.images)
        )
    ]
    breakpoints = ("system" in body) + _add_cache_breakpoints(
        [turn["content"] for turn in messages if turn["role"] == "user"]
    )
    if request.tools and breakpoints < _MAX_BREAKPOINTS:
        body["tools"][-1]["cache_control"] = _BREAKPOINT
    body["messages"] = messages
    return body


def _encode_web_search(options: WebSearchOptions) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "type": "web_search_20250305",
        "name": "web_search",
        "max_uses": options.max_uses,
    }
    encoded |= {"allowed_domains": list(options.allowed_domains)} if options.allowed_domains else {}
    return encoded | ({"blocked_domains": list(options.blocked_domains)} if options.blocked_domains else {})


def _add_cache_breakpoints(turns: list[list[Any]]) -> int:
    """Set the breakpoints in the user's turns; return their number."""
    ends = [(turn, len(turn) - 1) for turn in turns[-2:]]
    if turns:
        result_count = sum(isinstance(block, ToolResultBlock) for block in turns[-1])
        if 0 < result_count < len(turns[-1]):
            ends.append((turns[-1], result_count - 1))
    for turn, index in ends:
        turn[index] = {**msgspec.to_builtins(turn[index]), "cache_control": _BREAKPOINT}
    return len(ends)


def _build_length_and_thinking_fields(request: ModelRequest, card: ModelCard) -> dict[str, Any]:
    """Return the limits on length, thinking and temperature in the form this model generation expects."""
    limits: dict[str, Any] = {"max_tokens": min(request.max_tokens or card.max_output, card.max_output)}
    version = parse_model_version(card.id)
    is_adaptive = version >= (4, 6)
    if is_adaptive and (request.thinking_tokens or (request.adaptive_thinking and "claude" in card.id)):
        limits["thinking"] = {"type": "adaptive"}
        if tokens := request.thinking_tokens or request.adaptive_tokens:
            effort = next((name for limit, name in _EFFORTS if tokens < limit), "max")
            # Earlier models do not know this level; the one below costs no more than was asked for.
            is_unknown = effort == "xhigh" and version < (4, 7)
            limits["output_config"] = {"effort": "high" if is_unknown else effort}
    elif request.thinking_tokens:
        budget = max(_MIN_THINKING_TOKENS, request.thinking_tokens)
        # The budget is part of max_tokens and must leave room for the answer itself.
        limits["max_tokens"] = min(card.max_output, max(limits["max_tokens"], budget + _MIN_ANSWER_TOKENS))
        budget = max(_MIN_THINKING_TOKENS, min(budget, limits["max_tokens"] - _MIN_ANSWER_TOKENS))
        limits["thinking"] = {"type": "enabled", "budget_tokens": budget}
    elif request.temperature is not None and version < (4, 7):
        # Rejected together with thinking, and by every model since 4.7.
        limits["temperature"] = request.temperature
    return limits


def _prepare_content_block(block: ContentBlock, *, images: bool) -> ContentBlock | None:
    match block:
        case TextBlock():
            return block if has_visible_text(block) else None
        case ThinkingBlock():
            # Another provider's reasoning has no signature, or a foreign one, and would be rejected.
            return block if block.signature and not has_reasoning_item(block) else None
        case ImageBlock():
            return replace_unsupported_image(block, images=images)
        case ToolResultBlock():
            return _prepare_tool_result(block, images=images)
        case _:
            return block


def _prepare_tool_result(result: ToolResultBlock, *, images: bool) -> ToolResultBlock:
    content = result.content
    if not isinstance(content, str):
        content = tuple(
            part if isinstance(part, TextBlock) else replace_unsupported_image(part, images=images)
            for part in content
            if isinstance(part, ImageBlock) or has_visible_text(part)
        )
    if not content and result.is_error:
        content = format_request_notice("silent_failure")  # an error without content is rejected
    if content == result.content:
        return result
    return ToolResultBlock(tool_use_id=result.tool_use_id, content=content or "", is_error=result.is_error)
