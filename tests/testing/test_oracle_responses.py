"""The official client of the Responses API against our mock of it: what it reads, the mock said honestly."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from shoal.core.messages import Text, Thinking, ToolUse
from shoal.core.usage import Usage
from shoal.testing import MockServer, responses_server
from shoal.testing.replies import (
    Answer,
    Cut,
    HttpError,
    Pings,
    Reset,
    StreamError,
    call,
    context_too_long,
    rate_limited,
    server_error,
    unauthorized,
    unknown_model,
)

USAGE = Usage(input_tokens=11, output_tokens=22, cache_read_input_tokens=44, cache_creation_input_tokens=5)
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("Read", "Bash")]
FULL = Answer(
    content=(
        Thinking(thinking="I should look at both.", signature="blob"),
        Text(text="I look – at «both» files."),
        ToolUse(id="call_a", name="Read", input={"file_path": "a.py", "lines": [1, 2]}),
        ToolUse(id="call_b", name="Bash", input={}),
    ),
    usage=USAGE,
)


def client(server: MockServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0)


def question(**more: Any) -> dict[str, Any]:
    sealed = {"include": ["reasoning.encrypted_content"], "store": False}
    return {"model": "mock-1", "tools": TOOLS, "input": "Hello?", "instructions": "Be brief."} | sealed | more


def checked(response):
    assert response.model == "mock-1"
    assert response.status == "completed"
    thought, said, *calls = response.output
    assert (thought.summary[0].text, thought.encrypted_content) == ("I should look at both.", "blob")
    assert said.content[0].text == response.output_text == "I look – at «both» files."
    told = [(c.call_id, c.name, json.loads(c.arguments)) for c in calls]
    assert told == [("call_a", "Read", {"file_path": "a.py", "lines": [1, 2]}), ("call_b", "Bash", {})]
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (60, 22, 82)
    assert usage.input_tokens_details.cached_tokens == 44
    assert usage.input_tokens_details.cache_write_tokens == 5


async def test_a_whole_response_is_read_as_it_was_said():
    async with responses_server([FULL]) as server, client(server) as oracle:
        checked(await oracle.responses.create(**question()))
    assert server.reported == USAGE


async def test_a_streamed_response_is_read_as_it_was_said_also_with_pings():
    for faults in ((), (Pings(),)):
        said = Answer(content=FULL.content, usage=USAGE, faults=faults)
        # The helper puts the events together by itself, and refuses those out of order.
        async with (
            responses_server([said]) as server,
            client(server) as oracle,
            oracle.responses.stream(**question()) as stream,
        ):
            kinds = [event.type async for event in stream]
            response = await stream.get_final_response()
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        assert "response.reasoning_summary_text.delta" in kinds
        checked(response)


async def test_every_event_fits_its_official_type():
    from openai.types.responses import ResponseStreamEvent
    from pydantic import TypeAdapter

    from shoal.testing.responses_form import ResponsesForm

    adapter = TypeAdapter(ResponseStreamEvent)
    refused = Answer(content=(Text(text="I cannot help with that."),), stop_reason="refusal")
    for answer in (FULL, refused, Answer(content=FULL.content, stop_reason="max_tokens")):
        for event in ResponsesForm().events(answer, question(), 1, USAGE):
            adapter.validate_json(event.partition(b"data: ")[2])


async def test_a_round_with_a_tool_is_accepted_and_one_without_its_result_is_not():
    minds = [[Thinking(thinking="hm"), call("Read", file_path="a")], "Done."]
    async with responses_server(minds) as server, client(server) as oracle:
        first = await oracle.responses.create(**question())
        asked = {"role": "user", "content": "Hello?"}
        result = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "text"}
        second = await oracle.responses.create(**question(input=[asked, *first.output, result]))
        assert second.output_text == "Done."
        for wrong, why in (
            ([asked, *first.output], "No tool output found"),
            ([asked, result], "No tool call found"),
            ([asked, first.output[0]], "required following item"),
        ):
            with pytest.raises(openai.BadRequestError, match=why):
                await oracle.responses.create(**question(input=wrong))


@pytest.mark.parametrize(
    ("fault", "raised", "code"),
    [
        (rate_limited(retry_after=3), openai.RateLimitError, "rate_limit_exceeded"),
        (server_error(), openai.InternalServerError, None),
        (unauthorized(), openai.AuthenticationError, "invalid_api_key"),
        (unknown_model(), openai.NotFoundError, "model_not_found"),
        (context_too_long(), openai.BadRequestError, "context_length_exceeded"),
        (HttpError(status=429, code="insufficient_quota"), openai.RateLimitError, "insufficient_quota"),
    ],
)
async def test_an_error_is_the_clients_exception(fault: HttpError, raised: type[Any], code: str | None):
    async with responses_server([fault]) as server, client(server) as oracle:
        with pytest.raises(raised) as caught:
            await oracle.responses.create(**question(), stream=True)
    assert caught.value.code == code


async def test_errors_in_the_stream_are_events_and_lost_connections_exceptions():
    minds = [["some words", StreamError(after=2)], Reset(), ["words", Cut(after=2)]]
    async with responses_server(minds) as server, client(server) as oracle:
        stream = await oracle.responses.create(**question(), stream=True)
        told = [event async for event in stream]
        assert (told[-1].type, told[-1].message) == ("error", "Overloaded")
        with pytest.raises(openai.APIConnectionError):
            await oracle.responses.create(**question())
        stream = await oracle.responses.create(**question(), stream=True)
        with pytest.raises(openai.APIConnectionError):
            [event async for event in stream]
