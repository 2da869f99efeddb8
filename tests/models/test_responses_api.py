"""The Responses API: what is sent, what is understood, and the reasoning that goes back and forth."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest
from model_helpers import (
    GREP_SCHEMA,
    READ_SCHEMA,
    DeltaRecorder,
    create_responses_model,
    make_assistant_message,
    make_events,
    make_request,
    make_response,
    make_user_message,
    serve_responses,
)

from shoal.core.budgets.usage import ModelCard, Usage
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import (
    Base64ImageSource,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    user_message,
)
from shoal.core.conversation.model_requests import (
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRetryScheduledDelta,
    TextDelta,
    ThinkingDelta,
    ToolInputProgressDelta,
    ignore_stream_delta,
)
from shoal.core.errors import BadReply, BadRequest, ContextTooLong, Overloaded, RateLimited, StreamCut
from shoal.models.catalogue import get_model_card, resolve_model
from shoal.models.chat_api import ChatCompletionsApiModel
from shoal.models.chat_body import build_chat_body as chat_body
from shoal.models.chat_body import select_chat_dialect as chat_dialect
from shoal.models.messages_api import build_messages_body as messages_body
from shoal.models.model_endpoint import ProviderHttpTimeouts
from shoal.models.provider_json import encode_json
from shoal.models.providers import ProviderAccess, create_model
from shoal.models.rate_limiter import RateLimiter, RetryingModel
from shoal.models.responses_api import ResponsesApiModel
from shoal.models.responses_body import ResponsesApiDialect, build_responses_body, select_responses_dialect
from shoal.testing import FakeClock, MockReply, make_tool_call, responses_server
from shoal.testing.mock_replies import (
    BrokenToolJsonFault,
    CutStreamFault,
    HttpErrorFault,
    StalledStreamFault,
    StreamErrorFault,
)
from shoal.testing.responses_format import MockResponsesApiFormat

CARD = get_model_card("openai", "gpt-6-sol")
HOME = "https://api.openai.com/v1"
PNG = ImageBlock(source=Base64ImageSource(media_type="image/png", data="iVBORw0KGgo="))
SIGNED = "openai-responses:rs_1:blob"


def build_responses_request_body(
    *messages: Message | str, dialect: ResponsesApiDialect | None = None, unread: Any = (), **fields: Any
) -> dict[str, Any]:
    made = build_responses_body(
        make_request(*messages, **fields), CARD, dialect or ResponsesApiDialect(), unreadable=unread
    )
    return json.loads(encode_json(made))


async def parse_reply_events(*told: Any) -> ModelReply:
    async with serve_responses(make_response(make_events(*told), "Content-Type: text/event-stream")) as url:
        return await create_responses_model(url).generate_reply(
            make_request("Go.", tools=[READ_SCHEMA]), ignore_stream_delta
        )


def make_completed_event(*output: Any, **more: Any) -> dict[str, Any]:
    response = {"id": "r", "model": "m", "status": "completed", "output": list(output), **more}
    return {"type": "response.completed", "response": response}


@pytest.mark.spec("USR-19")
async def test_a_reply_carries_reasoning_text_and_parallel_calls_in_their_order() -> None:
    content = (
        ThinkingBlock(thinking="Both at once, then.", signature="blob"),
        TextBlock(text="I look at both. 🐎"),
        ToolUseBlock(id="call_aaaaaaaa", name="Read", input={"path": "a\n\"b'"}),
        ToolUseBlock(id="call_bbbbbbbb", name="Grep", input={}),
    )
    usage = Usage(input_tokens=7, output_tokens=9, cache_read_input_tokens=40, cache_creation_input_tokens=3)
    async with responses_server([MockReply(content=content, usage=usage)]) as server:
        model, recorder = create_responses_model(server.url), DeltaRecorder()
        reply = await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA, GREP_SCHEMA]), recorder)
        await model.aclose()
    thought, *rest = reply.message.content
    assert thought == ThinkingBlock(
        thinking="Both at once, then.", signature="openai-responses:rs_000000000000000000010000:blob"
    )
    assert tuple(rest) == content[1:]
    assert reply.stop_reason == "tool_use"
    assert reply.usage == usage
    assert reply.counted
    assert recorder.deltas[0] == ModelAttemptStartedDelta()
    assert recorder.join_text(TextDelta) == "I look at both. 🐎"
    assert recorder.join_text(ThinkingDelta) == "Both at once, then."
    assert recorder.list_deltas(ToolInputProgressDelta)[-1].name == "Grep"


async def test_encrypted_reasoning_is_sent_back_unchanged_and_storage_is_off() -> None:
    answer = [ThinkingBlock(thinking="Look first.", signature="blob"), make_tool_call("Read", path="a")]
    async with responses_server([answer, "Done."]) as server:
        model = create_responses_model(server.url)
        first = await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA]), ignore_stream_delta)
        result = ToolResultBlock(tool_use_id=first.message.tool_uses[0].id, content="seven")
        second = await model.generate_reply(
            make_request("Go.", first.message, make_user_message(result), tools=[READ_SCHEMA]),
            ignore_stream_delta,
        )
        await model.aclose()
    assert second.message.text == "Done."
    sent = server.requests[1].body
    assert sent["store"] is False
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert [item.get("type") for item in sent["input"]] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert sent["input"][1] == {
        "type": "reasoning",
        "id": "rs_000000000000000000010000",
        "summary": [{"type": "summary_text", "text": "Look first."}],
        "encrypted_content": "blob",
    }


def test_no_provider_gets_the_reasoning_of_another() -> None:
    theirs, ours = ThinkingBlock(thinking="a", signature="sig"), ThinkingBlock(thinking="b", signature=SIGNED)
    history = (
        "Hi.",
        make_assistant_message(theirs, ours, ThinkingBlock(thinking="c"), TextBlock(text="Hm.")),
        "And?",
    )
    kinds = [item["type"] for item in build_responses_request_body(*history)["input"]]
    assert kinds == ["message", "reasoning", "message", "message"]
    claude = json.loads(
        encode_json(messages_body(make_request(*history), get_model_card("anthropic", "claude-sonnet-4-5")))
    )
    assert [block["type"] for block in claude["messages"][1]["content"]] == ["thinking", "text"]
    chat = chat_body(make_request(*history), CARD, chat_dialect("openai", "m", "http://localhost"))
    assert "blob" not in encode_json(chat).decode()


def test_reasoning_without_a_following_item_is_left_out() -> None:
    history = ("Hi.", make_assistant_message(ThinkingBlock(thinking="cut", signature=SIGNED)), "Go on.")
    assert [item["type"] for item in build_responses_request_body(*history)["input"]] == [
        "message",
        "message",
    ]


async def test_reasoning_that_cannot_be_decrypted_is_left_out_from_then_on() -> None:
    refused = HttpErrorFault(
        status=400,
        code="invalid_encrypted_content",
        message="The encrypted content blob could not be verified.",
    )
    history = (
        "Hi.",
        make_assistant_message(ThinkingBlock(thinking="", signature=SIGNED), TextBlock(text="Hm.")),
        "And?",
    )
    minds = [refused, [ThinkingBlock(thinking="", signature="new"), "Well."], "So."]
    async with responses_server(minds) as server:
        model = create_responses_model(server.url)
        reply = await model.generate_reply(make_request(*history), ignore_stream_delta)
        await model.generate_reply(make_request(*history, reply.message, "Then?"), ignore_stream_delta)
        await model.aclose()
    sealed = [
        [item["encrypted_content"] for item in each.body["input"] if item["type"] == "reasoning"]
        for each in server.requests
    ]
    assert sealed == [["blob"], [], ["new"]]


@pytest.mark.parametrize(
    ("complaint", "field"),
    [
        ("Encrypted content is not supported with this model.", "include"),
        ("Your organization must be verified to generate reasoning summaries.", "reasoning.summary"),
        ("Unsupported parameter: 'reasoning.effort' is not supported with this model.", "reasoning"),
    ],
)
async def test_a_field_rejected_by_a_server_is_not_sent_again(complaint: str, field: str) -> None:
    async with responses_server([HttpErrorFault(status=400, message=complaint), "Hi.", "Hi."]) as server:
        model = create_responses_model(server.url)
        for _ in range(2):
            await model.generate_reply(make_request("Hi.", thinking_tokens=2000), ignore_stream_delta)
        await model.aclose()
    first, second, third = (each.body for each in server.requests)
    outer, _, inner = field.partition(".")
    assert first[outer][inner] if inner else first[outer]
    for later in (second, third):
        assert inner not in later[outer] if inner else outer not in later


async def test_other_complaints_of_a_server_are_raised() -> None:
    async with responses_server(
        [HttpErrorFault(status=400, message="Invalid schema for function")]
    ) as server:
        model = create_responses_model(server.url)
        with pytest.raises(BadRequest, match="Invalid schema"):
            await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()


def test_the_system_prompt_images_and_failed_calls_are_encoded() -> None:
    sent = build_responses_request_body(
        make_user_message(TextBlock(text="Look."), PNG),
        make_assistant_message(
            ToolUseBlock(id="c1", name="Read", input={}), ToolUseBlock(id="c2", name="Grep", input={})
        ),
        make_user_message(
            ToolResultBlock(tool_use_id="c1", content=(TextBlock(text="seen"), PNG)),
            ToolResultBlock(tool_use_id="c2", content="gone", is_error=True),
            TextBlock(text="Both?"),
        ),
        tools=[READ_SCHEMA],
    )
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    assert sent["instructions"] == "Be brief."
    assert sent["tools"][0]["strict"] is False
    asked, _, _, first, second, more = sent["input"]
    assert asked["content"] == [{"type": "input_text", "text": "Look."}, picture]
    assert first["output"] == [{"type": "input_text", "text": "seen"}, picture]
    assert second["output"] == "Error: gone"
    assert more["content"] == [{"type": "input_text", "text": "Both?"}]


def test_a_failed_call_with_an_image_is_sent_as_failed() -> None:
    sent = build_responses_request_body(
        make_user_message(TextBlock(text="Look.")),
        make_assistant_message(ToolUseBlock(id="c1", name="Read", input={})),
        make_user_message(
            ToolResultBlock(tool_use_id="c1", content=(TextBlock(text="half of it"), PNG), is_error=True)
        ),
        tools=[READ_SCHEMA],
    )
    texts = [part.get("text") for part in sent["input"][-1]["output"]]
    assert texts == ["Error:", "half of it", None]


@pytest.mark.parametrize(
    ("model", "tokens", "reasoning"),
    [
        ("gpt-6-sol", 0, None),
        ("gpt-6-sol", 2_000, {"effort": "low", "summary": "auto"}),
        ("gpt-6-sol", 8_000, {"effort": "medium", "summary": "auto"}),
        ("gpt-6-sol", 20_000, {"effort": "high", "summary": "auto"}),
        ("gpt-6-sol", 64_000, {"effort": "xhigh", "summary": "auto"}),
        ("o3", 64_000, {"effort": "high", "summary": "auto"}),
        ("gpt-4.1", 64_000, None),
    ],
)
def test_a_thinking_budget_is_sent_as_an_effort_level(model: str, tokens: int, reasoning: Any) -> None:
    sent = build_responses_request_body(
        "Hi.", thinking_tokens=tokens, temperature=0.3, dialect=select_responses_dialect(model, HOME)
    )
    assert sent.get("reasoning") == reasoning
    assert ("temperature" in sent) == (model == "gpt-4.1")


def test_comments_and_final_answers_are_marked_for_models_that_support_it() -> None:
    history = (
        "Hi.",
        make_assistant_message(TextBlock(text="I look."), ToolUseBlock(id="c", name="Read", input={})),
        make_user_message(ToolResultBlock(tool_use_id="c")),
        make_assistant_message(TextBlock(text="It is 7.")),
        "Sure?",
    )
    for model, phases in (("gpt-6-sol", ["commentary", "final_answer"]), ("gpt-5", [None, None])):
        sent = build_responses_request_body(*history, dialect=select_responses_dialect(model, HOME))
        assert [i.get("phase") for i in sent["input"] if i.get("role") == "assistant"] == phases


async def test_the_output_limit_is_sent_and_its_stop_reason_is_read() -> None:
    stopped = MockReply(content=(TextBlock(text="One, two"),), stop_reason="max_tokens")
    async with responses_server([stopped]) as server:
        model = create_responses_model(server.url)
        reply = await model.generate_reply(make_request("Count.", max_tokens=3), ignore_stream_delta)
        await model.aclose()
    assert server.requests[0].body["max_output_tokens"] == 16
    assert (reply.stop_reason, reply.message.text) == ("max_tokens", "One, two")


async def test_a_refusal_and_a_content_filter_are_refusals() -> None:
    refused = MockReply(content=(TextBlock(text="I cannot."),), stop_reason="refusal")
    async with responses_server([refused]) as server:
        model, recorder = create_responses_model(server.url), DeltaRecorder()
        reply = await model.generate_reply(make_request("Hi."), recorder)
        await model.aclose()
    assert (reply.stop_reason, reply.message.text, recorder.join_text(TextDelta)) == (
        "refusal",
        "I cannot.",
        "I cannot.",
    )
    details = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    told = {**make_completed_event(**details), "type": "response.incomplete"}
    assert (await parse_reply_events(told)).stop_reason == "refusal"


async def test_a_call_cut_by_the_limit_is_not_run() -> None:
    item = {"type": "function_call", "call_id": "call_12345", "name": "Read", "arguments": ""}
    details = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    told = {
        **make_completed_event({**item, "status": "incomplete"}, **details),
        "type": "response.incomplete",
    }
    reply = await parse_reply_events(told)
    assert reply.stop_reason == "max_tokens"
    assert "__malformed_json__" in reply.message.tool_uses[0].input


async def test_servers_may_omit_from_the_last_event_what_they_streamed_before() -> None:
    """Some compatible servers send no output in the last event, plain-text reasoning, and no usage."""
    thought = {"type": "reasoning", "id": "x", "content": [{"type": "reasoning_text", "text": "hm"}]}
    words = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
    reply = await parse_reply_events(
        {"type": "response.output_item.done", "output_index": 1, "item": words},
        {"type": "response.output_item.done", "output_index": 0, "item": thought},
        {"type": "something.new", "output_index": 3},
        make_completed_event(),
    )
    assert reply.message.content == (ThinkingBlock(thinking="hm"), TextBlock(text="Hi."))
    assert not reply.counted


@pytest.mark.parametrize("how", ["close", "clean"])
async def test_a_stream_cut_anywhere_raises_stream_cut_and_returns_no_partial_reply(how: str) -> None:
    content = (
        TextBlock(text="Reading now."),
        ToolUseBlock(id="call_12345", name="Read", input={"path": "abcdef"}),
    )
    total = len(MockResponsesApiFormat().encode_stream_events(MockReply(content=content), {}, 1, Usage()))
    minds = [
        MockReply(content=content, faults=(CutStreamFault(after=after, how=how),)) for after in range(total)
    ]
    async with responses_server([*minds, MockReply(content=content)]) as server:
        model = create_responses_model(server.url)
        for _ in range(total):
            with pytest.raises(StreamCut):
                await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA]), ignore_stream_delta)
        assert (
            await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA]), ignore_stream_delta)
        ).message.content == content
        await model.aclose()


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"code": "rate_limit_exceeded", "message": "Slow down."}, RateLimited),
        ({"code": "context_length_exceeded", "message": "Your input exceeds it."}, ContextTooLong),
        ({"code": "invalid_prompt", "message": "No."}, BadRequest),
        ({"code": "server_error", "message": "The server is overloaded."}, None),
    ],
)
async def test_a_failure_event_raises_its_error(told: dict[str, Any], kind: Any) -> None:
    from shoal.core.errors import ServerFault

    begun = {"type": "response.created", "response": {"id": "r"}}
    failed = {"type": "response.failed", "response": {"error": told}}
    for last in (failed, {"type": "error", **told}, {"type": "error", "error": told}):
        with pytest.raises(kind or ServerFault) as caught:
            await parse_reply_events(begun, last)
        assert told["message"] in str(caught.value)


async def test_an_overload_in_the_stream_may_be_billed() -> None:
    async with responses_server([["some words", StreamErrorFault(after=2)]]) as server:
        model = create_responses_model(server.url)
        with pytest.raises(Overloaded) as caught:
            await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()
    assert caught.value.billed


async def test_invalid_events_are_a_bad_reply() -> None:
    for event in (
        {"type": "response.output_text.delta"},
        {"type": "response.function_call_arguments.delta", "output_index": 4, "delta": "{"},
        make_completed_event({"type": "function_call", "call_id": "call_12345"}),
        make_completed_event("x"),
    ):
        with pytest.raises(BadReply):
            await parse_reply_events(event)


async def test_tool_arguments_that_are_not_json_are_kept_as_received() -> None:
    async with responses_server(
        [[make_tool_call("Read", path="a"), BrokenToolJsonFault(arguments='{"pa')]]
    ) as server:
        model = create_responses_model(server.url)
        reply = await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA]), ignore_stream_delta)
        await model.aclose()
    assert reply.message.tool_uses[0].input == {"__malformed_json__": '{"pa'}


@pytest.mark.parametrize(
    ("name", "base", "kind"),
    [
        ("gpt-6-sol", None, ResponsesApiModel),
        ("gpt-6.1-sol-2026-10-01", None, ResponsesApiModel),
        ("gpt-7-nova", None, ChatCompletionsApiModel),
        ("gpt-4.1", None, ChatCompletionsApiModel),
        ("gpt-6-sol", "https://me.openai.azure.com/openai/v1", ResponsesApiModel),
        ("gpt-6-sol", "http://localhost:8000/v1", ChatCompletionsApiModel),
        ("openai-responses:tiny", "http://localhost:8000/v1", ResponsesApiModel),
        ("openai-responses:gpt-4.1", None, ResponsesApiModel),
    ],
)
def test_the_api_is_chosen_by_model_and_provider(name: str, base: str | None, kind: type) -> None:
    provider, _, card, *_ = resolve_model(name)
    model = create_model(provider, card, ProviderAccess(base_url=base), clock=SystemClock())
    assert isinstance(model, kind)


def test_a_person_chooses_the_api_of_a_model() -> None:
    for api, kind in (("responses", ResponsesApiModel), ("chat", ChatCompletionsApiModel)):
        provider, _, card, *_ = resolve_model("openai:gpt-6-sol", models={"gpt-6-sol": {"api": api}})
        for base in (None, "http://localhost:8000/v1"):
            assert isinstance(
                create_model(provider, card, ProviderAccess(base_url=base), clock=SystemClock()), kind
            )


def test_the_responses_provider_has_the_prices_windows_and_aliases_of_openai() -> None:
    card = resolve_model("openai-responses:sonnet").card
    known = resolve_model("openai:sonnet").card
    assert (card.id, card.price, card.window) == (known.id, known.price, known.window)
    assert card.provider == "openai-responses"


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/responses"])
async def test_a_base_url_may_end_at_the_host_the_version_or_the_path(suffix: str) -> None:
    async with responses_server(["Hi."]) as server:
        card = ModelCard(id="m", provider="openai-responses")
        model = create_model(
            "openai-responses", card, ProviderAccess(base_url=server.url + suffix), clock=SystemClock()
        )
        assert (
            await model.generate_reply(make_request(user_message("Hi.")), ignore_stream_delta)
        ).message.text == "Hi."
        await model.aclose()


@pytest.mark.spec("USR-07")
async def test_a_silent_stream_ends_at_the_gap_deadline_and_is_retried_by_the_limiter() -> None:
    clock = FakeClock()
    stalled = MockReply(
        content=(TextBlock(text="A greeting of some length."),), faults=(StalledStreamFault(after=6),)
    )
    async with responses_server([stalled, ["words", StreamErrorFault(after=3)], "At last."]) as server:
        deadlines = ProviderHttpTimeouts(connect=5, first_byte=30, gap=20, total=100)
        inner, recorder = (
            create_responses_model(server.url, clock=clock, deadlines=deadlines),
            DeltaRecorder(),
        )
        model = RetryingModel(inner, RateLimiter(clock, Random(1)), clock)
        reply = asyncio.ensure_future(model.generate_reply(make_request("Hi."), recorder))
        await recorder.wait_for_deltas(TextDelta)
        await clock.advance(20.5)
        for failures in (1, 2):
            await recorder.wait_for_deltas(ModelRetryScheduledDelta, failures)
            await clock.advance(5)
        assert (await asyncio.wait_for(reply, 30)).message.text == "At last."
        await model.aclose()
    assert [retry.billed for retry in recorder.list_deltas(ModelRetryScheduledDelta)] == [True, True]
    assert "nothing for 20 s" in recorder.list_deltas(ModelRetryScheduledDelta)[0].reason
    assert "Overloaded" in recorder.list_deltas(ModelRetryScheduledDelta)[1].reason
