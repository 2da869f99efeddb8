"""The official client of the Messages API against our mock of it: what it reads, the mock said honestly."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from shoal.core.messages import RedactedThinking, Text, Thinking, ToolUse
from shoal.core.usage import Usage
from shoal.testing import MockServer, messages_server
from shoal.testing.replies import (
    Answer,
    Cut,
    HttpError,
    Pings,
    Reset,
    StreamError,
    call,
    context_too_long,
    overloaded,
    rate_limited,
    server_error,
    unauthorized,
    unavailable,
    unknown_model,
)

USAGE = Usage(input_tokens=11, output_tokens=22, cache_creation_input_tokens=33, cache_read_input_tokens=44)
TOOLS = [
    {"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}},
    {"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}},
]
FULL = Answer(
    content=(
        Thinking(thinking="I should look at both files first.", signature="c2lnbmVk"),
        RedactedThinking(data="b3BhcXVl"),
        Text(text="I look – at «both» files."),
        ToolUse(id="toolu_a", name="Read", input={"file_path": "a.py", "lines": [1, 2]}),
        ToolUse(id="toolu_b", name="Bash", input={}),
    ),
    usage=USAGE,
)


def client(server: MockServer) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0)


def question(**more: Any) -> dict[str, Any]:
    return {
        "model": "mock-1",
        "max_tokens": 1000,
        "system": "Be brief.",
        "tools": TOOLS,
        "messages": [{"role": "user", "content": "Hello?"}],
        **more,
    }


def checked(message):
    assert message.model == "mock-1"
    assert message.stop_reason == "tool_use"
    thinking, redacted, text, read, run = message.content
    assert (thinking.thinking, thinking.signature) == ("I should look at both files first.", "c2lnbmVk")
    assert redacted.data == "b3BhcXVl"
    assert text.text == "I look – at «both» files."
    assert (read.id, read.name, read.input) == ("toolu_a", "Read", {"file_path": "a.py", "lines": [1, 2]})
    assert (run.id, run.name, run.input) == ("toolu_b", "Bash", {})
    usage = message.usage
    assert (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_creation_input_tokens,
        usage.cache_read_input_tokens,
    ) == (11, 22, 33, 44)


async def test_a_whole_reply_is_read_as_it_was_said():
    async with messages_server([FULL]) as server, client(server) as oracle:
        checked(await oracle.messages.create(**question()))
    assert server.reported == USAGE


async def test_a_streamed_reply_is_read_as_it_was_said_also_with_pings():
    for faults in ((), (Pings(),)):
        said = Answer(content=FULL.content, usage=USAGE, faults=faults)
        async with (
            messages_server([said]) as server,
            client(server) as oracle,
            oracle.messages.stream(**question()) as stream,
        ):
            kinds = [event.type async for event in stream]
            checked(await stream.get_final_message())
        assert kinds.count("content_block_start") == 5
        assert kinds[0] == "message_start"
        assert kinds[-1] == "message_stop"
        assert server.reported == USAGE


async def test_a_round_with_a_tool_is_accepted_and_one_without_its_result_is_not():
    async with messages_server([call("Read", file_path="a"), "Done."]) as server, client(server) as oracle:
        first = await oracle.messages.create(**question())
        result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": "text"}
        history = [
            {"role": "user", "content": "Hello?"},
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ]
        second = await oracle.messages.create(**question(messages=history))
        assert second.content[0].text == "Done."
        with pytest.raises(anthropic.BadRequestError, match="tool_use"):
            await oracle.messages.create(**question(messages=history[:2]))


@pytest.mark.parametrize(
    ("fault", "raised", "kind"),
    [
        (rate_limited(retry_after=3), anthropic.RateLimitError, "rate_limit_error"),
        (overloaded(), anthropic.InternalServerError, "overloaded_error"),
        (server_error(), anthropic.InternalServerError, "api_error"),
        (unavailable(), anthropic.InternalServerError, "api_error"),
        (unauthorized(), anthropic.AuthenticationError, "authentication_error"),
        (unknown_model(), anthropic.NotFoundError, "not_found_error"),
        (context_too_long(), anthropic.BadRequestError, "invalid_request_error"),
        (HttpError(status=403), anthropic.PermissionDeniedError, "permission_error"),
    ],
)
async def test_an_error_is_the_clients_exception(fault: HttpError, raised: type[Any], kind: str | None):
    async with messages_server([fault]) as server, client(server) as oracle:
        with pytest.raises(raised) as caught:
            await oracle.messages.create(**question(), stream=True)
    assert caught.value.body["error"]["type"] == kind
    assert caught.value.request_id == "req_000000000000000000000001"
    if fault.retry_after:
        assert caught.value.response.headers["retry-after"] == "3"
    if fault.code == "context_too_long":
        assert "prompt is too long" in caught.value.message
    if raised is anthropic.NotFoundError:
        assert "mock-1" in caught.value.message


async def test_an_error_event_in_the_stream_is_an_exception():
    async with (
        messages_server([["some words", StreamError(after=2)]]) as server,
        client(server) as oracle,
        oracle.messages.stream(**question()) as stream,
    ):
        with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            await stream.get_final_message()


async def test_lost_connections_and_cut_streams_are_noticed():
    async with messages_server([Reset(), ["words", Cut(after=3)]]) as server, client(server) as oracle:
        with pytest.raises(anthropic.APIConnectionError):
            await oracle.messages.create(**question())
        async with oracle.messages.stream(**question()) as stream:
            with pytest.raises(Exception, match="peer closed connection"):
                await stream.get_final_message()


async def test_the_client_backs_off_and_asks_again():
    limits = [rate_limited(retry_after=0.01), HttpError(status=529, retry_after=0.01)]
    async with messages_server([*limits, "There."]) as server, client(server) as oracle:
        reply = await oracle.with_options(max_retries=2).messages.create(**question())
    assert reply.content[0].text == "There."
    assert len(server.requests) == 3


async def test_models_are_listed():
    async with messages_server([], models=("a", "b")) as server, client(server) as oracle:
        assert [model.id async for model in oracle.models.list()] == ["a", "b"]
