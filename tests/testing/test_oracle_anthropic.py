"""The official client of the Messages API against the mock server: the client accepts what the mock sends."""

from __future__ import annotations

from typing import Any

import pytest
from oracle_helpers import create_anthropic_client

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import RedactedThinkingBlock, TextBlock, ThinkingBlock, ToolUseBlock
from shoal.testing import messages_server
from shoal.testing.mock_replies import (
    ConnectionResetFault,
    CutStreamFault,
    HttpErrorFault,
    MockReply,
    PingAfterEachEventFault,
    StreamErrorFault,
    make_context_length_fault,
    make_overloaded_fault,
    make_rate_limit_fault,
    make_server_error_fault,
    make_tool_call,
    make_unauthorized_fault,
    make_unavailable_fault,
    make_unknown_model_fault,
)

USAGE = Usage(input_tokens=11, output_tokens=22, cache_creation_input_tokens=33, cache_read_input_tokens=44)
TOOLS = [
    {"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}},
    {"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}},
]
FULL = MockReply(
    content=(
        ThinkingBlock(thinking="I should look at both files first.", signature="c2lnbmVk"),
        RedactedThinkingBlock(data="b3BhcXVl"),
        TextBlock(text="I look – at «both» files."),
        ToolUseBlock(id="toolu_a", name="Read", input={"file_path": "a.py", "lines": [1, 2]}),
        ToolUseBlock(id="toolu_b", name="Bash", input={}),
    ),
    usage=USAGE,
)


def make_messages_request(**more: Any) -> dict[str, Any]:
    return {
        "model": "mock-1",
        "max_tokens": 1000,
        "system": "Be brief.",
        "tools": TOOLS,
        "messages": [{"role": "user", "content": "Hello?"}],
        **more,
    }


def check_message(message):
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


async def test_a_whole_reply_is_read_unchanged():
    async with messages_server([FULL]) as server, create_anthropic_client(server) as client:
        check_message(await client.messages.create(**make_messages_request()))
    assert server.reported_usage == USAGE


async def test_a_streamed_reply_with_pings_is_read_unchanged():
    for faults in ((), (PingAfterEachEventFault(),)):
        reply = MockReply(content=FULL.content, usage=USAGE, faults=faults)
        async with (
            messages_server([reply]) as server,
            create_anthropic_client(server) as client,
            client.messages.stream(**make_messages_request()) as stream,
        ):
            kinds = [event.type async for event in stream]
            check_message(await stream.get_final_message())
        assert kinds.count("content_block_start") == 5
        assert kinds[0] == "message_start"
        assert kinds[-1] == "message_stop"
        assert server.reported_usage == USAGE


async def test_a_tool_round_is_refused_without_its_result():
    import anthropic

    async with (
        messages_server([make_tool_call("Read", file_path="a"), "Done."]) as server,
        create_anthropic_client(server) as client,
    ):
        first = await client.messages.create(**make_messages_request())
        result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": "text"}
        history = [
            {"role": "user", "content": "Hello?"},
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ]
        second = await client.messages.create(**make_messages_request(messages=history))
        assert second.content[0].text == "Done."
        with pytest.raises(anthropic.BadRequestError, match="tool_use"):
            await client.messages.create(**make_messages_request(messages=history[:2]))


@pytest.mark.parametrize(
    ("fault", "raised", "kind"),
    [
        (make_rate_limit_fault(retry_after=3), "RateLimitError", "rate_limit_error"),
        (make_overloaded_fault(), "InternalServerError", "overloaded_error"),
        (make_server_error_fault(), "InternalServerError", "api_error"),
        (make_unavailable_fault(), "InternalServerError", "api_error"),
        (make_unauthorized_fault(), "AuthenticationError", "authentication_error"),
        (make_unknown_model_fault(), "NotFoundError", "not_found_error"),
        (make_context_length_fault(), "BadRequestError", "invalid_request_error"),
        (HttpErrorFault(status=403), "PermissionDeniedError", "permission_error"),
    ],
)
async def test_an_error_status_raises_the_exception_of_the_client(
    fault: HttpErrorFault, raised: str, kind: str | None
):
    import anthropic

    async with messages_server([fault]) as server, create_anthropic_client(server) as client:
        with pytest.raises(getattr(anthropic, raised)) as caught:
            await client.messages.create(**make_messages_request(), stream=True)
    assert caught.value.body["error"]["type"] == kind
    assert caught.value.request_id == "req_000000000000000000000001"
    if fault.retry_after:
        assert caught.value.response.headers["retry-after"] == "3"
    if fault.code == "context_too_long":
        assert "prompt is too long" in caught.value.message
    if raised == "NotFoundError":
        assert "mock-1" in caught.value.message


async def test_an_error_event_in_the_stream_raises_an_exception():
    import anthropic

    async with (
        messages_server([["some words", StreamErrorFault(after=2)]]) as server,
        create_anthropic_client(server) as client,
        client.messages.stream(**make_messages_request()) as stream,
    ):
        with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            await stream.get_final_message()


async def test_lost_connections_and_cut_streams_are_detected():
    import anthropic

    async with (
        messages_server([ConnectionResetFault(), ["words", CutStreamFault(after=3)]]) as server,
        create_anthropic_client(server) as client,
    ):
        with pytest.raises(anthropic.APIConnectionError):
            await client.messages.create(**make_messages_request())
        async with client.messages.stream(**make_messages_request()) as stream:
            with pytest.raises(Exception, match="peer closed connection"):
                await stream.get_final_message()


async def test_the_client_backs_off_and_retries():
    limits = [make_rate_limit_fault(retry_after=0.01), HttpErrorFault(status=529, retry_after=0.01)]
    async with messages_server([*limits, "There."]) as server, create_anthropic_client(server) as client:
        reply = await client.with_options(max_retries=2).messages.create(**make_messages_request())
    assert reply.content[0].text == "There."
    assert len(server.requests) == 3


async def test_models_are_listed():
    async with messages_server([], models=("a", "b")) as server, create_anthropic_client(server) as client:
        assert [model.id async for model in client.models.list()] == ["a", "b"]
