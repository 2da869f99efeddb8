"""The official client of Chat Completions against the mock server: the client accepts what the mock sends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from oracle_helpers import create_openai_client

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import TextBlock, ThinkingBlock, ToolUseBlock
from shoal.testing import chat_server
from shoal.testing.mock_replies import (
    BrokenToolJsonFault,
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

USAGE = Usage(input_tokens=11, output_tokens=22, cache_read_input_tokens=44)
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("Read", "Bash")
]
FULL = MockReply(
    content=(
        ThinkingBlock(thinking="I should look at both."),
        TextBlock(text="I look – at «both» files."),
        ToolUseBlock(id="call_a", name="Read", input={"file_path": "a.py", "lines": [1, 2]}),
        ToolUseBlock(id="call_b", name="Bash", input={}),
    ),
    usage=USAGE,
)


def make_chat_request(**more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}]
    return {"model": "mock-1", "tools": TOOLS, "messages": messages, **more}


def check_completion(completion):
    assert completion.model == "mock-1"
    (choice,) = completion.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look – at «both» files."
    assert choice.message.reasoning_content == "I should look at both."
    calls = [(c.id, c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls]
    assert calls == [("call_a", "Read", {"file_path": "a.py", "lines": [1, 2]}), ("call_b", "Bash", {})]
    usage = completion.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (55, 22, 77)
    assert usage.prompt_tokens_details.cached_tokens == 44


async def test_a_whole_reply_is_read_unchanged():
    async with chat_server([FULL]) as server, create_openai_client(server) as client:
        check_completion(await client.chat.completions.create(**make_chat_request()))
    assert server.reported_usage == USAGE


async def test_a_streamed_reply_with_pings_is_read_unchanged():
    for faults in ((), (PingAfterEachEventFault(),)):
        reply = MockReply(content=FULL.content, usage=USAGE, faults=faults)
        async with chat_server([reply]) as server, create_openai_client(server) as client:
            options = {"include_usage": True}
            async with client.chat.completions.stream(
                **make_chat_request(), stream_options=options
            ) as stream:
                thought = [
                    event.chunk.choices[0].delta.model_extra.get("reasoning_content", "")
                    async for event in stream
                    if event.type == "chunk" and event.chunk.choices
                ]
                completion = await stream.get_final_completion()
        assert "".join(thought) == "I should look at both."
        check_completion(completion)
        assert server.reported_usage == USAGE


async def test_a_stream_reports_usage_only_on_request():
    async with chat_server(["Hello."]) as server, create_openai_client(server) as client:
        stream = await client.chat.completions.create(**make_chat_request(), stream=True)
        chunks = [chunk async for chunk in stream]
    assert all(chunk.usage is None for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello."
    assert server.reported_usage == Usage()


async def test_a_tool_round_is_refused_without_its_result():
    import openai

    async with (
        chat_server([make_tool_call("Read", file_path="a"), "Done."]) as server,
        create_openai_client(server) as client,
    ):
        first = (await client.chat.completions.create(**make_chat_request())).choices[0].message
        history = [
            {"role": "user", "content": "Hello?"},
            first,
            {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "text"},
        ]
        second = await client.chat.completions.create(**make_chat_request(messages=history))
        assert second.choices[0].message.content == "Done."
        with pytest.raises(openai.BadRequestError, match="tool_calls"):
            await client.chat.completions.create(**make_chat_request(messages=history[:2]))
        with pytest.raises(openai.BadRequestError, match="role 'tool'"):
            await client.chat.completions.create(**make_chat_request(messages=history[2:]))


@pytest.mark.parametrize(
    ("fault", "raised", "code"),
    [
        (make_rate_limit_fault(retry_after=3), "RateLimitError", "rate_limit_exceeded"),
        (make_overloaded_fault(), "InternalServerError", None),
        (make_server_error_fault(), "InternalServerError", None),
        (make_unavailable_fault(), "InternalServerError", None),
        (make_unauthorized_fault(), "AuthenticationError", "invalid_api_key"),
        (make_unknown_model_fault(), "NotFoundError", "model_not_found"),
        (make_context_length_fault(), "BadRequestError", "context_length_exceeded"),
        (HttpErrorFault(status=429, code="insufficient_quota"), "RateLimitError", "insufficient_quota"),
    ],
)
async def test_an_error_status_raises_the_exception_of_the_client(
    fault: HttpErrorFault, raised: str, code: str | None
):
    import openai

    async with chat_server([fault]) as server, create_openai_client(server) as client:
        with pytest.raises(getattr(openai, raised)) as caught:
            await client.chat.completions.create(**make_chat_request(), stream=True)
    assert caught.value.code == code
    if fault.retry_after:
        assert caught.value.response.headers["retry-after"] == "3"
    if raised == "NotFoundError":
        assert "mock-1" in caught.value.message


async def test_an_error_in_the_stream_raises_an_exception():
    import openai

    async with (
        chat_server([["some words", StreamErrorFault(after=2)]]) as server,
        create_openai_client(server) as client,
    ):
        stream = await client.chat.completions.create(**make_chat_request(), stream=True)
        with pytest.raises(openai.APIError, match="Overloaded"):
            [chunk async for chunk in stream]


async def test_lost_connections_and_cut_streams_are_detected():
    import openai

    async with (
        chat_server([ConnectionResetFault(), ["words", CutStreamFault(after=2)]]) as server,
        create_openai_client(server) as client,
    ):
        with pytest.raises(openai.APIConnectionError):
            await client.chat.completions.create(**make_chat_request())
        stream = await client.chat.completions.create(**make_chat_request(), stream=True)
        with pytest.raises(openai.APIConnectionError):
            [chunk async for chunk in stream]


async def test_broken_arguments_reach_the_client_unchanged():
    reply = [make_tool_call("Read", file_path="a"), BrokenToolJsonFault(arguments='{"file_path": ')]
    async with chat_server([reply]) as server, create_openai_client(server) as client:
        completion = await client.chat.completions.create(**make_chat_request())
    assert completion.choices[0].message.tool_calls[0].function.arguments == '{"file_path": '


async def test_the_client_backs_off_and_retries():
    limits = [make_rate_limit_fault(retry_after=0.01), HttpErrorFault(status=503, retry_after=0.01)]
    async with chat_server([*limits, "There."]) as server, create_openai_client(server) as client:
        reply = await client.with_options(max_retries=2).chat.completions.create(**make_chat_request())
    assert reply.choices[0].message.content == "There."
    assert len(server.requests) == 3


async def test_models_are_listed():
    async with chat_server([], models=("a", "b")) as server, create_openai_client(server) as client:
        assert [model.id async for model in client.models.list()] == ["a", "b"]
