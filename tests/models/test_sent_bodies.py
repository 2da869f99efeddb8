"""What we send fits the types of the providers' own clients, over a spread of conversations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest
from model_kit import GREP, READ, asking
from msgspec import structs

from shoal.core.messages import (
    MALFORMED,
    Base64Source,
    Image,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UrlSource,
    user,
)
from shoal.core.requests import Request
from shoal.models.catalogue import card_of
from shoal.models.chat_body import Dialect
from shoal.models.chat_body import body_of as chat_body
from shoal.models.emulation import emulated, response_format
from shoal.models.json_text import encoded
from shoal.models.messages_api import body_of as messages_body
from shoal.models.responses_body import body_of as responses_body
from shoal.models.responses_body import dialect_of as responses_dialect

PNG = Image(source=Base64Source(media_type="image/png", data="iVBORw0KGgo="))
LINK = Image(source=UrlSource(url="https://example.org/a.png"))


def said(*blocks: Any) -> Message:
    return Message(role="assistant", content=blocks)


def heard(*blocks: Any) -> Message:
    return Message(role="user", content=blocks)


def conversations() -> Iterator[Request]:
    calls = (ToolUse(id="t1", name="Read", input={"path": "a"}), ToolUse(id="t2", name="Grep", input={}))
    results = (
        ToolResult(tool_use_id="t1", content="text"),
        ToolResult(tool_use_id="t2", content="no such pattern", is_error=True),
    )
    thoughts = (Thinking(thinking="hm", signature="sig"), RedactedThinking(data="xyz"))
    yield asking("Hi.")
    yield asking("Hi.", system="", max_tokens=100, temperature=0.3)
    yield asking("Hi.", thinking_tokens=2_000, tools=[READ])
    yield asking("Look.", said(*thoughts, Text(text="Both."), *calls), heard(*results), tools=[READ, GREP])
    yield asking("Look.", said(*calls), heard(*results, Text(text="Also this.")), user("And that."))
    yield asking(heard(Text(text="What is this?"), PNG, LINK), said(Text(text="A cat.")), "Sure?")
    shown = heard(
        ToolResult(tool_use_id="t1", content=(Text(text="two"), PNG, LINK)),
        ToolResult(tool_use_id="t2", content=(), is_error=True),
    )
    yield asking("Look.", said(*calls), shown, tools=[READ, GREP])
    broken = ToolUse(id="t9", name="Read", input={MALFORMED: '{"path": '})
    yield asking("Look.", said(broken), heard(ToolResult(tool_use_id="t9", is_error=True)), tools=[READ])
    yield asking(
        "Look.",
        said(Thinking(thinking="not signed"), Text(text="")),
        "Hello?",
        said(Text(text="Yes.")),
        "Ok.",
    )


@lru_cache
def checked_by(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def fits(kind: Any, body: dict[str, Any]) -> None:
    """Validated as the client's type, nothing is refused and nothing is unknown, hence dropped."""
    sent = json.loads(encoded(body))
    assert _exhausted(checked_by(kind).validate_python(sent)) == sent


def _exhausted(value: Any) -> Any:
    """Iterables are checked only as they are walked."""
    if isinstance(value, dict):
        return {key: _exhausted(part) for key, part in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    return [_exhausted(part) for part in value]


@pytest.mark.xdist_group("anthropic")
def test_messages_bodies_fit_the_official_types() -> None:
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    for model in ("claude-haiku-4-5", "claude-opus-5-5"):
        for request in conversations():
            # The newest client no longer knows a temperature; the models that take one are older than it.
            plain = structs.replace(request, temperature=None)
            fits(MessageCreateParamsStreaming, messages_body(plain, card_of("anthropic", model)))


@pytest.mark.xdist_group("openai")
def test_chat_bodies_fit_the_official_types() -> None:
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    for dialect in (
        Dialect(),
        Dialect(limit="max_completion_tokens", thinking="effort"),
        Dialect(limit="max_completion_tokens", tools_forbid_thinking=True),
    ):
        for request in conversations():
            body = chat_body(request, card_of("openai", "gpt-5.5"), dialect)
            fits(CompletionCreateParamsStreaming, body)


@pytest.mark.xdist_group("openai")
def test_responses_bodies_fit_the_official_types() -> None:
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    sealed = Thinking(thinking="hm", signature="openai-responses:rs_1:blob")
    kept = asking("Look.", said(sealed, Text(text="Both.")), "Go on.", thinking_tokens=64_000)
    for model in ("gpt-6-sol", "gpt-5", "gpt-4.1"):
        dialect = responses_dialect(model, "https://api.openai.com/v1")
        for request in (*conversations(), kept):
            fits(ResponseCreateParamsStreaming, responses_body(request, card_of("openai", model), dialect))


@pytest.mark.xdist_group("openai")
def test_emulated_bodies_fit_the_official_types() -> None:
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    for request in conversations():
        body = chat_body(emulated(request), card_of("openai", "gpt-6.1-sol"), Dialect())
        body["response_format"] = response_format(request.tools or [READ])
        fits(CompletionCreateParamsStreaming, body)


@pytest.mark.xdist_group("anthropic")
def test_a_body_that_does_not_fit_is_noticed() -> None:
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    body = messages_body(next(conversations()), card_of("anthropic", "claude-haiku-4-5"))
    with pytest.raises(AssertionError):
        fits(MessageCreateParamsStreaming, body | {"unheard_of": 1})
    with pytest.raises(ValueError, match="validation error"):
        fits(MessageCreateParamsStreaming, body | {"messages": [{"role": "robot", "content": "x"}]})
