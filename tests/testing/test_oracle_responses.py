"""The official client of the Responses API against the mock: it accepts what the mock sends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from oracle_helpers import create_openai_client

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import TextBlock, ThinkingBlock, ToolUseBlock
from shoal.testing import responses_server
from shoal.testing.mock_replies import (
    ConnectionResetFault,
    CutStreamFault,
    HttpErrorFault,
    MockReply,
    PingAfterEachEventFault,
    StreamErrorFault,
    make_context_length_fault,
    make_rate_limit_fault,
    make_server_error_fault,
    make_tool_call,
    make_unauthorized_fault,
    make_unknown_model_fault,
)

USAGE = Usage(input_tokens=11, output_tokens=22, cache_read_input_tokens=44, cache_creation_input_tokens=5)
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("Read", "Bash")]
FULL = MockReply(
    content=(
        ThinkingBlock(thinking="I should look at both.", signature="blob"),
        TextBlock(text="I look – at «both» files."),
        ToolUseBlock(id="call_a", name="Read", input={"file_path": "a.py", "lines": [1, 2]}),
        ToolUseBlock(id="call_b", name="Bash", input={}),
    ),
    usage=USAGE,
)


def make_responses_request(**more: Any) -> dict[str, Any]:
    sealed = {"include": ["reasoning.encrypted_content"], "store": False}
    return {"model": "mock-1", "tools": TOOLS, "input": "Hello?", "instructions": "Be brief."} | sealed | more


def check_response(response):
    assert response.model == "mock-1"
    assert response.status == "completed"
    thought, reply, *calls = response.output
    assert (thought.summary[0].text, thought.encrypted_content) == ("I should look at both.", "blob")
    assert reply.content[0].text == response.output_text == "I look – at «both» files."
    call_fields = [(c.call_id, c.name, json.loads(c.arguments)) for c in calls]
    assert call_fields == [("call_a", "Read", {"file_path": "a.py", "lines": [1, 2]}), ("call_b", "Bash", {})]
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (60, 22, 82)
    assert usage.input_tokens_details.cached_tokens == 44
    assert usage.input_tokens_details.cache_write_tokens == 5


async def test_a_whole_response_is_read_unchanged():
    async with responses_server([FULL]) as server, create_openai_client(server) as client:
        check_response(await client.responses.create(**make_responses_request()))
    assert server.reported_usage == USAGE


async def test_a_streamed_response_with_pings_is_read_unchanged():
    for faults in ((), (PingAfterEachEventFault(),)):
        reply = MockReply(content=FULL.content, usage=USAGE, faults=faults)
        # The helper puts the events together by itself, and refuses those out of order.
        async with (
            responses_server([reply]) as server,
            create_openai_client(server) as client,
            client.responses.stream(**make_responses_request()) as stream,
        ):
            kinds = [event.type async for event in stream]
            response = await stream.get_final_response()
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        assert "response.reasoning_summary_text.delta" in kinds
        check_response(response)


async def test_every_event_matches_its_official_type():

    from openai.types.responses import ResponseStreamEvent
    from pydantic import TypeAdapter

    from shoal.testing.responses_format import MockResponsesApiFormat

    adapter = TypeAdapter(ResponseStreamEvent)
    refused = MockReply(content=(TextBlock(text="I cannot help with that."),), stop_reason="refusal")
    for answer in (FULL, refused, MockReply(content=FULL.content, stop_reason="max_tokens")):
        for event in MockResponsesApiFormat().encode_stream_events(
            answer, make_responses_request(), 1, USAGE
        ):
            adapter.validate_json(event.partition(b"data: ")[2])


async def test_a_tool_round_is_refused_without_its_result():
    import openai

    minds = [[ThinkingBlock(thinking="hm"), make_tool_call("Read", file_path="a")], "Done."]
    async with responses_server(minds) as server, create_openai_client(server) as client:
        first = await client.responses.create(**make_responses_request())
        asked = {"role": "user", "content": "Hello?"}
        result = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "text"}
        second = await client.responses.create(**make_responses_request(input=[asked, *first.output, result]))
        assert second.output_text == "Done."
        for wrong, why in (
            ([asked, *first.output], "No tool output found"),
            ([asked, result], "No tool call found"),
            ([asked, first.output[0]], "required following item"),
        ):
            with pytest.raises(openai.BadRequestError, match=why):
                await client.responses.create(**make_responses_request(input=wrong))


@pytest.mark.parametrize(
    ("fault", "raised", "code"),
    [
        (make_rate_limit_fault(retry_after=3), "RateLimitError", "rate_limit_exceeded"),
        (make_server_error_fault(), "InternalServerError", None),
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

    async with responses_server([fault]) as server, create_openai_client(server) as client:
        with pytest.raises(getattr(openai, raised)) as caught:
            await client.responses.create(**make_responses_request(), stream=True)
    assert caught.value.code == code


async def test_stream_errors_are_events_and_lost_connections_raise_exceptions():
    import openai

    minds = [
        ["some words", StreamErrorFault(after=2)],
        ConnectionResetFault(),
        ["words", CutStreamFault(after=2)],
    ]
    async with responses_server(minds) as server, create_openai_client(server) as client:
        stream = await client.responses.create(**make_responses_request(), stream=True)
        call_fields = [event async for event in stream]
        assert (call_fields[-1].type, call_fields[-1].message) == ("error", "Overloaded")
        with pytest.raises(openai.APIConnectionError):
            await client.responses.create(**make_responses_request())
        stream = await client.responses.create(**make_responses_request(), stream=True)
        with pytest.raises(openai.APIConnectionError):
            [event async for event in stream]
