"""The official client of Chat Completions against our mock of it: what it reads, the mock said honestly."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from shoal.core.messages import Text, Thinking, ToolUse
from shoal.core.usage import Usage
from shoal.testing import MockServer, chat_server
from shoal.testing.replies import (
    Answer,
    BrokenToolJson,
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

USAGE = Usage(input_tokens=11, output_tokens=22, cache_read_input_tokens=44)
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("Read", "Bash")
]
FULL = Answer(
    content=(
        Thinking(thinking="I should look at both."),
        Text(text="I look – at «both» files."),
        ToolUse(id="call_a", name="Read", input={"file_path": "a.py", "lines": [1, 2]}),
        ToolUse(id="call_b", name="Bash", input={}),
    ),
    usage=USAGE,
)


def client(server: MockServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0)


def question(**more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}]
    return {"model": "mock-1", "tools": TOOLS, "messages": messages, **more}


def checked(completion):
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


async def test_a_whole_reply_is_read_as_it_was_said():
    async with chat_server([FULL]) as server, client(server) as oracle:
        checked(await oracle.chat.completions.create(**question()))
    assert server.reported == USAGE


async def test_a_streamed_reply_is_read_as_it_was_said_also_with_pings():
    for faults in ((), (Pings(),)):
        said = Answer(content=FULL.content, usage=USAGE, faults=faults)
        async with chat_server([said]) as server, client(server) as oracle:
            options = {"include_usage": True}
            async with oracle.chat.completions.stream(**question(), stream_options=options) as stream:
                thought = [
                    event.chunk.choices[0].delta.model_extra.get("reasoning_content", "")
                    async for event in stream
                    if event.type == "chunk" and event.chunk.choices
                ]
                completion = await stream.get_final_completion()
        assert "".join(thought) == "I should look at both."
        checked(completion)
        assert server.reported == USAGE


async def test_a_stream_counts_only_when_asked_to():
    async with chat_server(["Hello."]) as server, client(server) as oracle:
        stream = await oracle.chat.completions.create(**question(), stream=True)
        chunks = [chunk async for chunk in stream]
    assert all(chunk.usage is None for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello."
    assert server.reported == Usage()


async def test_a_round_with_a_tool_is_accepted_and_one_without_its_result_is_not():
    async with chat_server([call("Read", file_path="a"), "Done."]) as server, client(server) as oracle:
        first = (await oracle.chat.completions.create(**question())).choices[0].message
        history = [
            {"role": "user", "content": "Hello?"},
            first,
            {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "text"},
        ]
        second = await oracle.chat.completions.create(**question(messages=history))
        assert second.choices[0].message.content == "Done."
        with pytest.raises(openai.BadRequestError, match="tool_calls"):
            await oracle.chat.completions.create(**question(messages=history[:2]))
        with pytest.raises(openai.BadRequestError, match="role 'tool'"):
            await oracle.chat.completions.create(**question(messages=history[2:]))


@pytest.mark.parametrize(
    ("fault", "raised", "code"),
    [
        (rate_limited(retry_after=3), openai.RateLimitError, "rate_limit_exceeded"),
        (overloaded(), openai.InternalServerError, None),
        (server_error(), openai.InternalServerError, None),
        (unavailable(), openai.InternalServerError, None),
        (unauthorized(), openai.AuthenticationError, "invalid_api_key"),
        (unknown_model(), openai.NotFoundError, "model_not_found"),
        (context_too_long(), openai.BadRequestError, "context_length_exceeded"),
        (HttpError(status=429, code="insufficient_quota"), openai.RateLimitError, "insufficient_quota"),
    ],
)
async def test_an_error_is_the_clients_exception(fault: HttpError, raised: type[Any], code: str | None):
    async with chat_server([fault]) as server, client(server) as oracle:
        with pytest.raises(raised) as caught:
            await oracle.chat.completions.create(**question(), stream=True)
    assert caught.value.code == code
    if fault.retry_after:
        assert caught.value.response.headers["retry-after"] == "3"
    if raised is openai.NotFoundError:
        assert "mock-1" in caught.value.message


async def test_an_error_in_the_stream_is_an_exception():
    async with chat_server([["some words", StreamError(after=2)]]) as server, client(server) as oracle:
        stream = await oracle.chat.completions.create(**question(), stream=True)
        with pytest.raises(openai.APIError, match="Overloaded"):
            [chunk async for chunk in stream]


async def test_lost_connections_and_cut_streams_are_noticed():
    async with chat_server([Reset(), ["words", Cut(after=2)]]) as server, client(server) as oracle:
        with pytest.raises(openai.APIConnectionError):
            await oracle.chat.completions.create(**question())
        stream = await oracle.chat.completions.create(**question(), stream=True)
        with pytest.raises(openai.APIConnectionError):
            [chunk async for chunk in stream]


async def test_broken_arguments_reach_the_client_as_they_are():
    said = [call("Read", file_path="a"), BrokenToolJson(arguments='{"file_path": ')]
    async with chat_server([said]) as server, client(server) as oracle:
        completion = await oracle.chat.completions.create(**question())
    assert completion.choices[0].message.tool_calls[0].function.arguments == '{"file_path": '


async def test_the_client_backs_off_and_asks_again():
    limits = [rate_limited(retry_after=0.01), HttpError(status=503, retry_after=0.01)]
    async with chat_server([*limits, "There."]) as server, client(server) as oracle:
        reply = await oracle.with_options(max_retries=2).chat.completions.create(**question())
    assert reply.choices[0].message.content == "There."
    assert len(server.requests) == 3


async def test_models_are_listed():
    async with chat_server([], models=("a", "b")) as server, client(server) as oracle:
        assert [model.id async for model in oracle.models.list()] == ["a", "b"]
