"""Request bodies of Chat Completions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal

from msgspec import Struct

from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.messages import (
    Base64ImageSource,
    ContentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import BadRequest
from shoal.models.catalogue import is_local_url, is_openai_url, parse_model_version
from shoal.models.provider_json import encode_json
from shoal.models.request_texts import format_request_notice
from shoal.models.request_turns import group_messages_into_turns, prepare_openai_block

_EFFORTS = ((4_000, "low"), (16_000, "medium"))


class ChatCompletionsApiDialect(Struct, frozen=True, kw_only=True):
    """Differences between servers of this API."""

    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    always_limited: bool = False
    """Send a limit even if the request has none."""
    thinking: Literal["effort", "budget", "unsaid"] = "unsaid"
    """Form of the reasoning request: a level, a number of tokens, or none."""
    reasoning_back: bool = False
    """The model's own reasoning is part of the history."""
    tools_forbid_thinking: bool = False
    """Tools are accepted only with the reasoning level "none"."""
    cache_marks: bool = False
    """The cache holds only marked prefixes; elsewhere it holds every prefix."""


def select_chat_dialect(provider: str, model: str, base_url: str) -> ChatCompletionsApiDialect:
    if provider == "openrouter":
        return ChatCompletionsApiDialect(thinking="budget", cache_marks=model.startswith("anthropic/"))
    if not is_openai_url(base_url):
        # A small local model may never stop; a hosted one has its own limit.
        return ChatCompletionsApiDialect(always_limited=is_local_url(base_url))
    version = parse_model_version(model)
    return ChatCompletionsApiDialect(
        limit="max_completion_tokens",
        thinking="effort" if version >= (5, 0) or model.startswith("o") else "unsaid",
        tools_forbid_thinking=version >= (5, 4),
    )


def refuse_web_search(request: ModelRequest, model: str) -> None:
    """Raise `BadRequest` for a request to search: the answer would look like results of a search."""
    if request.web_search is not None:
        raise BadRequest(f"{model} uses Chat Completions, which cannot search the web.", model=model)


def build_chat_body(
    request: ModelRequest, card: ModelCard, dialect: ChatCompletionsApiDialect
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": card.id,
        "stream": True,
        "stream_options": {"include_usage": True},
        **_build_length_and_thinking_fields(request, card, dialect),
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                },
            }
            for tool in request.tools
        ]
    messages: list[dict[str, Any]] = []
    if request.system.strip():
        messages.append({"role": "system", "content": request.system})

    def is_sendable_thinking(block: ThinkingBlock) -> bool:
        # A signature belongs to another provider, and so does what it signs.
        return dialect.reasoning_back and not block.signature

    prepare = partial(prepare_openai_block, images=card.images, keeps_thinking=is_sendable_thinking)
    for role, blocks in group_messages_into_turns(request.messages, prepare):
        messages += _encode_assistant_turn(blocks) if role == "assistant" else _encode_user_turn(blocks)
    if dialect.cache_marks:
        _add_cache_breakpoints(messages)
    body["messages"] = messages
    return body


def _add_cache_breakpoints(messages: list[dict[str, Any]]) -> None:
    """Set breakpoints as in the Messages API.

    They mark the system prompt, the ends of the last two user turns, and tool results that text follows.
    """
    roles = [message["role"] for message in messages]
    last = len(roles) - 1
    turn_ends = [
        index
        for index, role in enumerate(roles)
        if role in ("user", "tool") and (index == last or roles[index + 1] == "assistant")
    ][-2:]
    if roles[-2:] == ["tool", "user"]:
        turn_ends.append(last - 1)
    for index in [*(index for index, role in enumerate(roles) if role == "system"), *turn_ends]:
        content = messages[index]["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if parts[-1].get("text") != "":
            messages[index]["content"] = [*parts[:-1], {**parts[-1], "cache_control": {"type": "ephemeral"}}]


def _build_length_and_thinking_fields(
    request: ModelRequest, card: ModelCard, dialect: ChatCompletionsApiDialect
) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if request.max_tokens is not None or dialect.always_limited:
        limits[dialect.limit] = min(request.max_tokens or card.max_output, card.max_output)
    if request.tools and dialect.tools_forbid_thinking:
        limits["reasoning_effort"] = "none"
    elif request.thinking_tokens and dialect.thinking == "effort":
        limits["reasoning_effort"] = next(
            (name for limit, name in _EFFORTS if request.thinking_tokens < limit), "high"
        )
    elif request.thinking_tokens and dialect.thinking == "budget":
        limits["reasoning"] = {"max_tokens": request.thinking_tokens}
    elif request.temperature is not None:
        limits["temperature"] = request.temperature
    return limits


def _encode_assistant_turn(blocks: list[ContentBlock]) -> Iterator[dict[str, Any]]:
    text = "\n".join(block.text for block in blocks if isinstance(block, TextBlock))
    calls = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": encode_json(block.input).decode()},
        }
        for block in blocks
        if isinstance(block, ToolUseBlock)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if thinking := "".join(block.thinking for block in blocks if isinstance(block, ThinkingBlock)):
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = calls
    if calls or text:
        yield message


def _encode_user_turn(blocks: list[ContentBlock]) -> Iterator[dict[str, Any]]:
    """Yield each result as a separate message without images, then the user's content with the images."""
    visible: list[TextBlock | ImageBlock] = []
    for block in blocks:
        match block:
            case ToolResultBlock():
                yield {
                    "role": "tool",
                    "tool_call_id": block.tool_use_id,
                    "content": format_chat_tool_result(block),
                }
                parts = [] if isinstance(block.content, str) else block.content
                if images := [part for part in parts if isinstance(part, ImageBlock)]:
                    visible += [
                        TextBlock(text=format_request_notice("result_images", call=block.tool_use_id)),
                        *images,
                    ]
            case TextBlock() | ImageBlock():
                visible.append(block)
            case _:
                pass
    if visible:
        yield {"role": "user", "content": _encode_chat_content_parts(visible)}


def format_chat_tool_result(result: ToolResultBlock) -> str:
    text = extract_tool_result_text(result)
    # The API has no flag for a failed call.
    return f"Error: {text}" if result.is_error and not text.lower().startswith("error") else text


def _encode_chat_content_parts(blocks: Iterable[TextBlock | ImageBlock]) -> str | list[dict[str, Any]]:
    """Return plain text if there is nothing else: some servers do not support parts."""
    blocks = list(blocks)
    if all(isinstance(block, TextBlock) for block in blocks):
        return "\n\n".join(block.text for block in blocks if isinstance(block, TextBlock))
    return [
        {"type": "text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "image_url", "image_url": {"url": build_image_url(block)}}
        for block in blocks
    ]


def build_image_url(image: ImageBlock) -> str:
    source = image.source
    if isinstance(source, Base64ImageSource):
        return f"data:{source.media_type};base64,{source.data}"
    return source.url
