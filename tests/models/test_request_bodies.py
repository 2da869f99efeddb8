"""Request bodies of many conversations match the types of the providers' own clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest
from model_helpers import GREP_SCHEMA, READ_SCHEMA, make_assistant_message, make_request, make_user_message
from msgspec import structs

from shoal.core.conversation.messages import (
    MALFORMED_INPUT_KEY,
    Base64ImageSource,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UrlImageSource,
    user_message,
)
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.catalogue import get_model_card
from shoal.models.chat_body import ChatCompletionsApiDialect
from shoal.models.chat_body import build_chat_body as chat_body
from shoal.models.messages_api import build_messages_body as messages_body
from shoal.models.provider_json import encode_json
from shoal.models.responses_body import build_responses_body as responses_body
from shoal.models.responses_body import select_responses_dialect as responses_dialect
from shoal.models.tool_emulation import build_emulated_reply_schema, emulate_tools_in_prompt

PNG = ImageBlock(source=Base64ImageSource(media_type="image/png", data="iVBORw0KGgo="))
LINK = ImageBlock(source=UrlImageSource(url="https://example.org/a.png"))


def conversations() -> Iterator[ModelRequest]:
    calls = (
        ToolUseBlock(id="t1", name="Read", input={"path": "a"}),
        ToolUseBlock(id="t2", name="Grep", input={}),
    )
    results = (
        ToolResultBlock(tool_use_id="t1", content="text"),
        ToolResultBlock(tool_use_id="t2", content="no such pattern", is_error=True),
    )
    thoughts = (ThinkingBlock(thinking="hm", signature="sig"), RedactedThinkingBlock(data="xyz"))
    yield make_request("Hi.")
    yield make_request("Hi.", system="", max_tokens=100, temperature=0.3)
    yield make_request("Hi.", thinking_tokens=2_000, tools=[READ_SCHEMA])
    yield make_request(
        "Look.",
        make_assistant_message(*thoughts, TextBlock(text="Both."), *calls),
        make_user_message(*results),
        tools=[READ_SCHEMA, GREP_SCHEMA],
    )
    yield make_request(
        "Look.",
        make_assistant_message(*calls),
        make_user_message(*results, TextBlock(text="Also this.")),
        user_message("And that."),
    )
    yield make_request(
        make_user_message(TextBlock(text="What is this?"), PNG, LINK),
        make_assistant_message(TextBlock(text="A cat.")),
        "Sure?",
    )
    shown = make_user_message(
        ToolResultBlock(tool_use_id="t1", content=(TextBlock(text="two"), PNG, LINK)),
        ToolResultBlock(tool_use_id="t2", content=(), is_error=True),
    )
    yield make_request("Look.", make_assistant_message(*calls), shown, tools=[READ_SCHEMA, GREP_SCHEMA])
    broken = ToolUseBlock(id="t9", name="Read", input={MALFORMED_INPUT_KEY: '{"path": '})
    yield make_request(
        "Look.",
        make_assistant_message(broken),
        make_user_message(ToolResultBlock(tool_use_id="t9", is_error=True)),
        tools=[READ_SCHEMA],
    )
    yield make_request(
        "Look.",
        make_assistant_message(ThinkingBlock(thinking="not signed"), TextBlock(text="")),
        "Hello?",
        make_assistant_message(TextBlock(text="Yes.")),
        "Ok.",
    )


@lru_cache
def create_type_checker(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def matches_type(kind: Any, body: dict[str, Any]) -> None:
    """Validated as the client's type, nothing is refused and nothing is unknown, hence dropped."""
    sent = json.loads(encode_json(body))
    assert _materialize(create_type_checker(kind).validate_python(sent)) == sent


def _materialize(value: Any) -> Any:
    """Iterate everything: pydantic checks iterables only as they are consumed."""
    if isinstance(value, dict):
        return {key: _materialize(part) for key, part in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    return [_materialize(part) for part in value]


@pytest.mark.xdist_group("anthropic")
def test_messages_bodies_fit_the_official_types() -> None:
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    for model in ("claude-haiku-4-5", "claude-opus-5-5"):
        for request in conversations():
            # The newest client no longer knows a temperature; the models that take one are older than it.
            plain = structs.replace(request, temperature=None)
            matches_type(
                MessageCreateParamsStreaming, messages_body(plain, get_model_card("anthropic", model))
            )


@pytest.mark.xdist_group("openai")
def test_chat_bodies_fit_the_official_types() -> None:
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    for dialect in (
        ChatCompletionsApiDialect(),
        ChatCompletionsApiDialect(limit="max_completion_tokens", thinking="effort"),
        ChatCompletionsApiDialect(limit="max_completion_tokens", tools_forbid_thinking=True),
    ):
        for request in conversations():
            body = chat_body(request, get_model_card("openai", "gpt-5.5"), dialect)
            matches_type(CompletionCreateParamsStreaming, body)


@pytest.mark.xdist_group("openai")
def test_responses_bodies_fit_the_official_types() -> None:
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    sealed = ThinkingBlock(thinking="hm", signature="openai-responses:rs_1:blob")
    kept = make_request(
        "Look.", make_assistant_message(sealed, TextBlock(text="Both.")), "Go on.", thinking_tokens=64_000
    )
    for model in ("gpt-6-sol", "gpt-5", "gpt-4.1"):
        dialect = responses_dialect(model, "https://api.openai.com/v1")
        for request in (*conversations(), kept):
            matches_type(
                ResponseCreateParamsStreaming,
                responses_body(request, get_model_card("openai", model), dialect),
            )


@pytest.mark.xdist_group("openai")
def test_emulated_bodies_fit_the_official_types() -> None:
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    for request in conversations():
        body = chat_body(
            emulate_tools_in_prompt(request),
            get_model_card("openai", "gpt-6.1-sol"),
            ChatCompletionsApiDialect(),
        )
        body["response_format"] = build_emulated_reply_schema(request.tools or [READ_SCHEMA])
        matches_type(CompletionCreateParamsStreaming, body)


@pytest.mark.xdist_group("anthropic")
def test_an_invalid_body_is_detected() -> None:
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    body = messages_body(next(conversations()), get_model_card("anthropic", "claude-haiku-4-5"))
    with pytest.raises(AssertionError):
        matches_type(MessageCreateParamsStreaming, body | {"unheard_of": 1})
    with pytest.raises(ValueError, match="validation error"):
        matches_type(MessageCreateParamsStreaming, body | {"messages": [{"role": "robot", "content": "x"}]})
