"""Request bodies of Chat Completions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal

from msgspec import Struct

from shoal.core.messages import (
    Base64Source,
    ContentBlock,
    Image,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    result_text,
)
from shoal.core.requests import Request
from shoal.core.usage import ModelCard
from shoal.models.catalogue import is_openai, is_own_machine, version_of
from shoal.models.json_text import encoded
from shoal.models.turns import alternating, sendable

_EFFORTS = ((4_000, "low"), (16_000, "medium"))


class Dialect(Struct, frozen=True, kw_only=True):
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
    marks: bool = False
    """The cache holds only marked prefixes; elsewhere it holds every prefix."""


def dialect_of(provider: str, model: str, base_url: str) -> Dialect:
    if provider == "openrouter":
        return Dialect(thinking="budget", marks=model.startswith("anthropic/"))
    if not is_openai(base_url):
        # A small local model may never stop; a hosted one has its own limit.
        return Dialect(always_limited=is_own_machine(base_url))
    version = version_of(model)
    return Dialect(
        limit="max_completion_tokens",
        thinking="effort" if version >= (5, 0) or model.startswith("o") else "unsaid",
        tools_forbid_thinking=version >= (5, 4),
    )


def body_of(request: Request, card: ModelCard, dialect: Dialect) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": card.id,
        "stream": True,
        "stream_options": {"include_usage": True},
        **_limits(request, card, dialect),
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

    def thought(block: Thinking) -> bool:
        # A signature belongs to another provider, and so does what it signs.
        return dialect.reasoning_back and not block.signature

    sent = partial(sendable, images=card.images, thought=thought)
    for role, blocks in alternating(request.messages, sent):
        messages += _assistant(blocks) if role == "assistant" else _user(blocks)
    if dialect.marks:
        _mark(messages)
    body["messages"] = messages
    return body


def _mark(messages: list[dict[str, Any]]) -> None:
    """Set breakpoints as in the Messages API.

    They mark the system prompt, the ends of the last two user turns, and tool results that text follows.
    """
    roles = [message["role"] for message in messages]
    last = len(roles) - 1
    ends = [
        index
        for index, role in enumerate(roles)
        if role in ("user", "tool") and (index == last or roles[index + 1] == "assistant")
    ][-2:]
    if roles[-2:] == ["tool", "user"]:
        ends.append(last - 1)
    for index in [*(index for index, role in enumerate(roles) if role == "system"), *ends]:
        content = messages[index]["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if parts[-1].get("text") != "":
            messages[index]["content"] = [*parts[:-1], {**parts[-1], "cache_control": {"type": "ephemeral"}}]


def _limits(request: Request, card: ModelCard, dialect: Dialect) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if request.max_tokens is not None or dialect.always_limited:
        limits[dialect.limit] = min(request.max_tokens or card.max_output, card.max_output)
    if request.tools and dialect.tools_forbid_thinking:
        limits["reasoning_effort"] = "none"
    elif request.thinking_tokens and dialect.thinking == "effort":
        limits["reasoning_effort"] = next(
            (name for up_to, name in _EFFORTS if request.thinking_tokens < up_to), "high"
        )
    elif request.thinking_tokens and dialect.thinking == "budget":
        limits["reasoning"] = {"max_tokens": request.thinking_tokens}
    elif request.temperature is not None:
        limits["temperature"] = request.temperature
    return limits


def _assistant(blocks: list[ContentBlock]) -> Iterator[dict[str, Any]]:
    text = "\n".join(block.text for block in blocks if isinstance(block, Text))
    calls = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": encoded(block.input).decode()},
        }
        for block in blocks
        if isinstance(block, ToolUse)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if thought := "".join(block.thinking for block in blocks if isinstance(block, Thinking)):
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    if calls or text:
        yield message


def _user(blocks: list[ContentBlock]) -> Iterator[dict[str, Any]]:
    """Yield each result as a separate message without images, then the user's content with the images."""
    shown: list[Text | Image] = []
    for block in blocks:
        match block:
            case ToolResult():
                yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": result_words(block)}
                pictures = [] if isinstance(block.content, str) else block.content
                if images := [part for part in pictures if isinstance(part, Image)]:
                    shown += [Text(text=f"Images from the result of {block.tool_use_id}:"), *images]
            case Text() | Image():
                shown.append(block)
            case _:
                pass
    if shown:
        yield {"role": "user", "content": _parts(shown)}


def result_words(result: ToolResult) -> str:
    text = result_text(result)
    # The API has no flag for a failed call.
    return f"Error: {text}" if result.is_error and not text.lower().startswith("error") else text


def _parts(blocks: Iterable[Text | Image]) -> str | list[dict[str, Any]]:
    """Return plain text if there is nothing else: some servers do not support parts."""
    blocks = list(blocks)
    if all(isinstance(block, Text) for block in blocks):
        return "\n\n".join(block.text for block in blocks if isinstance(block, Text))
    return [
        {"type": "text", "text": block.text}
        if isinstance(block, Text)
        else {"type": "image_url", "image_url": {"url": image_url(block)}}
        for block in blocks
    ]


def image_url(image: Image) -> str:
    source = image.source
    if isinstance(source, Base64Source):
        return f"data:{source.media_type};base64,{source.data}"
    return source.url
