"""The Responses API: what is sent, what is understood, and the reasoning that goes back and forth."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest
from model_kit import GREP, READ, Ear, asking, events, http, responses_at, saying

from shoal.core.clock import SystemClock
from shoal.core.errors import BadReply, BadRequest, ContextTooLong, Overloaded, RateLimited, StreamCut
from shoal.core.messages import Base64Source, Image, Message, Text, Thinking, ToolResult, ToolUse, user
from shoal.core.requests import Reply, Retrying, Sent, TextDelta, ThinkingDelta, ToolInputDelta, unheard
from shoal.core.usage import ModelCard, Usage
from shoal.models.catalogue import card_of, resolve
from shoal.models.chat_api import ChatModel
from shoal.models.chat_body import body_of as chat_body
from shoal.models.chat_body import dialect_of as chat_dialect
from shoal.models.http import Deadlines
from shoal.models.json_text import encoded
from shoal.models.limiter import Limiter, PatientModel
from shoal.models.messages_api import body_of as messages_body
from shoal.models.providers import Access, make_model
from shoal.models.responses_api import ResponsesModel
from shoal.models.responses_body import ResponsesDialect, body_of, dialect_of
from shoal.testing import Answer, FakeClock, call, responses_server
from shoal.testing.replies import BrokenToolJson, Cut, HttpError, Stall, StreamError
from shoal.testing.responses_form import ResponsesForm

CARD = card_of("openai", "gpt-6-sol")
HOME = "https://api.openai.com/v1"
PNG = Image(source=Base64Source(media_type="image/png", data="iVBORw0KGgo="))
SIGNED = "openai-responses:rs_1:blob"


def body(
    *messages: Message | str, dialect: ResponsesDialect | None = None, unread: Any = (), **fields: Any
) -> dict[str, Any]:
    made = body_of(asking(*messages, **fields), CARD, dialect or ResponsesDialect(), unread=unread)
    return json.loads(encoded(made))


def said(*blocks: Any) -> Message:
    return Message(role="assistant", content=blocks)


def heard(*blocks: Any) -> Message:
    return Message(role="user", content=blocks)


async def understood(*told: Any) -> Reply:
    async with saying(http(events(*told), "Content-Type: text/event-stream")) as url:
        return await responses_at(url).reply(asking("Go.", tools=[READ]), unheard)


def completed(*output: Any, **more: Any) -> dict[str, Any]:
    response = {"id": "r", "model": "m", "status": "completed", "output": list(output), **more}
    return {"type": "response.completed", "response": response}


@pytest.mark.spec("USR-19")
async def test_a_reply_carries_reasoning_text_and_parallel_calls_in_their_order() -> None:
    content = (
        Thinking(thinking="Both at once, then.", signature="blob"),
        Text(text="I look at both. 🐎"),
        ToolUse(id="call_aaaaaaaa", name="Read", input={"path": "a\n\"b'"}),
        ToolUse(id="call_bbbbbbbb", name="Grep", input={}),
    )
    usage = Usage(input_tokens=7, output_tokens=9, cache_read_input_tokens=40, cache_creation_input_tokens=3)
    async with responses_server([Answer(content=content, usage=usage)]) as server:
        model, ear = responses_at(server.url), Ear()
        reply = await model.reply(asking("Go.", tools=[READ, GREP]), ear)
        await model.aclose()
    thought, *rest = reply.message.content
    assert thought == Thinking(
        thinking="Both at once, then.", signature="openai-responses:rs_000000000000000000010000:blob"
    )
    assert tuple(rest) == content[1:]
    assert reply.stop_reason == "tool_use"
    assert reply.usage == usage
    assert reply.counted
    assert ear.heard[0] == Sent()
    assert ear.text(TextDelta) == "I look at both. 🐎"
    assert ear.text(ThinkingDelta) == "Both at once, then."
    assert ear.of(ToolInputDelta)[-1].name == "Grep"


async def test_reasoning_goes_back_sealed_as_it_came_and_nothing_is_stored_there() -> None:
    answer = [Thinking(thinking="Look first.", signature="blob"), call("Read", path="a")]
    async with responses_server([answer, "Done."]) as server:
        model = responses_at(server.url)
        first = await model.reply(asking("Go.", tools=[READ]), unheard)
        result = ToolResult(tool_use_id=first.message.tool_uses[0].id, content="seven")
        second = await model.reply(asking("Go.", first.message, heard(result), tools=[READ]), unheard)
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
    theirs, ours = Thinking(thinking="a", signature="sig"), Thinking(thinking="b", signature=SIGNED)
    history = ("Hi.", said(theirs, ours, Thinking(thinking="c"), Text(text="Hm.")), "And?")
    kinds = [item["type"] for item in body(*history)["input"]]
    assert kinds == ["message", "reasoning", "message", "message"]
    claude = json.loads(encoded(messages_body(asking(*history), card_of("anthropic", "claude-sonnet-4-5"))))
    assert [block["type"] for block in claude["messages"][1]["content"]] == ["thinking", "text"]
    chat = chat_body(asking(*history), CARD, chat_dialect("openai", "m", "http://localhost"))
    assert "blob" not in encoded(chat).decode()


def test_reasoning_that_nothing_came_of_is_left_out() -> None:
    history = ("Hi.", said(Thinking(thinking="cut", signature=SIGNED)), "Go on.")
    assert [item["type"] for item in body(*history)["input"]] == ["message", "message"]


async def test_reasoning_that_cannot_be_opened_is_left_out_from_then_on() -> None:
    refused = HttpError(
        status=400,
        code="invalid_encrypted_content",
        message="The encrypted content blob could not be verified.",
    )
    history = ("Hi.", said(Thinking(thinking="", signature=SIGNED), Text(text="Hm.")), "And?")
    minds = [refused, [Thinking(thinking="", signature="new"), "Well."], "So."]
    async with responses_server(minds) as server:
        model = responses_at(server.url)
        reply = await model.reply(asking(*history), unheard)
        await model.reply(asking(*history, reply.message, "Then?"), unheard)
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
async def test_what_a_server_does_not_take_is_not_sent_again(complaint: str, field: str) -> None:
    async with responses_server([HttpError(status=400, message=complaint), "Hi.", "Hi."]) as server:
        model = responses_at(server.url)
        for _ in range(2):
            await model.reply(asking("Hi.", thinking_tokens=2000), unheard)
        await model.aclose()
    first, second, third = (each.body for each in server.requests)
    outer, _, inner = field.partition(".")
    assert first[outer][inner] if inner else first[outer]
    for later in (second, third):
        assert inner not in later[outer] if inner else outer not in later


async def test_another_complaint_is_the_callers() -> None:
    async with responses_server([HttpError(status=400, message="Invalid schema for function")]) as server:
        model = responses_at(server.url)
        with pytest.raises(BadRequest, match="Invalid schema"):
            await model.reply(asking("Hi."), unheard)
        await model.aclose()


def test_the_system_prompt_images_and_failed_calls_have_their_places() -> None:
    sent = body(
        heard(Text(text="Look."), PNG),
        said(ToolUse(id="c1", name="Read", input={}), ToolUse(id="c2", name="Grep", input={})),
        heard(
            ToolResult(tool_use_id="c1", content=(Text(text="seen"), PNG)),
            ToolResult(tool_use_id="c2", content="gone", is_error=True),
            Text(text="Both?"),
        ),
        tools=[READ],
    )
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    assert sent["instructions"] == "Be brief."
    assert sent["tools"][0]["strict"] is False
    asked, _, _, first, second, more = sent["input"]
    assert asked["content"] == [{"type": "input_text", "text": "Look."}, picture]
    assert first["output"] == [{"type": "input_text", "text": "seen"}, picture]
    assert second["output"] == "Error: gone"
    assert more["content"] == [{"type": "input_text", "text": "Both?"}]


def test_a_failed_call_with_a_picture_is_told_as_failed() -> None:
    sent = body(
        heard(Text(text="Look.")),
        said(ToolUse(id="c1", name="Read", input={})),
        heard(ToolResult(tool_use_id="c1", content=(Text(text="half of it"), PNG), is_error=True)),
        tools=[READ],
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
def test_thinking_tokens_are_a_level_of_effort(model: str, tokens: int, reasoning: Any) -> None:
    sent = body("Hi.", thinking_tokens=tokens, temperature=0.3, dialect=dialect_of(model, HOME))
    assert sent.get("reasoning") == reasoning
    assert ("temperature" in sent) == (model == "gpt-4.1")


def test_remarks_and_answers_are_told_apart_to_models_that_want_it() -> None:
    history = (
        "Hi.",
        said(Text(text="I look."), ToolUse(id="c", name="Read", input={})),
        heard(ToolResult(tool_use_id="c")),
        said(Text(text="It is 7.")),
        "Sure?",
    )
    for model, phases in (("gpt-6-sol", ["commentary", "final_answer"]), ("gpt-5", [None, None])):
        sent = body(*history, dialect=dialect_of(model, HOME))
        assert [i.get("phase") for i in sent["input"] if i.get("role") == "assistant"] == phases


async def test_the_limit_of_an_answer_is_sent_and_met() -> None:
    stopped = Answer(content=(Text(text="One, two"),), stop_reason="max_tokens")
    async with responses_server([stopped]) as server:
        model = responses_at(server.url)
        reply = await model.reply(asking("Count.", max_tokens=3), unheard)
        await model.aclose()
    assert server.requests[0].body["max_output_tokens"] == 16
    assert (reply.stop_reason, reply.message.text) == ("max_tokens", "One, two")


async def test_a_refusal_and_a_filter_are_refusals() -> None:
    refused = Answer(content=(Text(text="I cannot."),), stop_reason="refusal")
    async with responses_server([refused]) as server:
        model, ear = responses_at(server.url), Ear()
        reply = await model.reply(asking("Hi."), ear)
        await model.aclose()
    assert (reply.stop_reason, reply.message.text, ear.text(TextDelta)) == (
        "refusal",
        "I cannot.",
        "I cannot.",
    )
    details = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    told = {**completed(**details), "type": "response.incomplete"}
    assert (await understood(told)).stop_reason == "refusal"


async def test_a_call_cut_by_the_limit_is_not_run() -> None:
    item = {"type": "function_call", "call_id": "call_12345", "name": "Read", "arguments": ""}
    details = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    told = {**completed({**item, "status": "incomplete"}, **details), "type": "response.incomplete"}
    reply = await understood(told)
    assert reply.stop_reason == "max_tokens"
    assert "__malformed_json__" in reply.message.tool_uses[0].input


async def test_servers_that_leave_out_what_they_told_before_are_understood() -> None:
    """As some that imitate the API do: no output in the last event, reasoning in plain words, no usage."""
    thought = {"type": "reasoning", "id": "x", "content": [{"type": "reasoning_text", "text": "hm"}]}
    words = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
    reply = await understood(
        {"type": "response.output_item.done", "output_index": 1, "item": words},
        {"type": "response.output_item.done", "output_index": 0, "item": thought},
        {"type": "something.new", "output_index": 3},
        completed(),
    )
    assert reply.message.content == (Thinking(thinking="hm"), Text(text="Hi."))
    assert not reply.counted


@pytest.mark.parametrize("how", ["close", "clean"])
async def test_a_stream_cut_anywhere_is_a_cut_and_never_half_a_reply(how: str) -> None:
    content = (Text(text="Reading now."), ToolUse(id="call_12345", name="Read", input={"path": "abcdef"}))
    total = len(ResponsesForm().events(Answer(content=content), {}, 1, Usage()))
    minds = [Answer(content=content, faults=(Cut(after=after, how=how),)) for after in range(total)]
    async with responses_server([*minds, Answer(content=content)]) as server:
        model = responses_at(server.url)
        for _ in range(total):
            with pytest.raises(StreamCut):
                await model.reply(asking("Go.", tools=[READ]), unheard)
        assert (await model.reply(asking("Go.", tools=[READ]), unheard)).message.content == content
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
async def test_a_failure_on_the_way_is_its_error(told: dict[str, Any], kind: Any) -> None:
    from shoal.core.errors import ServerFault

    begun = {"type": "response.created", "response": {"id": "r"}}
    failed = {"type": "response.failed", "response": {"error": told}}
    for last in (failed, {"type": "error", **told}, {"type": "error", "error": told}):
        with pytest.raises(kind or ServerFault) as caught:
            await understood(begun, last)
        assert told["message"] in str(caught.value)


async def test_an_overload_in_the_stream_may_be_billed() -> None:
    async with responses_server([["some words", StreamError(after=2)]]) as server:
        model = responses_at(server.url)
        with pytest.raises(Overloaded) as caught:
            await model.reply(asking("Hi."), unheard)
        await model.aclose()
    assert caught.value.billed


async def test_events_that_make_no_sense_are_a_bad_reply() -> None:
    for event in (
        {"type": "response.output_text.delta"},
        {"type": "response.function_call_arguments.delta", "output_index": 4, "delta": "{"},
        completed({"type": "function_call", "call_id": "call_12345"}),
        completed("x"),
    ):
        with pytest.raises(BadReply):
            await understood(event)


async def test_arguments_that_are_no_json_are_kept_as_they_came() -> None:
    async with responses_server([[call("Read", path="a"), BrokenToolJson(arguments='{"pa')]]) as server:
        model = responses_at(server.url)
        reply = await model.reply(asking("Go.", tools=[READ]), unheard)
        await model.aclose()
    assert reply.message.tool_uses[0].input == {"__malformed_json__": '{"pa'}


@pytest.mark.parametrize(
    ("name", "base", "kind"),
    [
        ("gpt-6-sol", None, ResponsesModel),
        ("gpt-6.1-sol-2026-10-01", None, ResponsesModel),
        ("gpt-7-nova", None, ChatModel),
        ("gpt-4.1", None, ChatModel),
        ("gpt-6-sol", "https://me.openai.azure.com/openai/v1", ResponsesModel),
        ("gpt-6-sol", "http://localhost:8000/v1", ChatModel),
        ("openai-responses:tiny", "http://localhost:8000/v1", ResponsesModel),
        ("openai-responses:gpt-4.1", None, ResponsesModel),
    ],
)
def test_the_api_is_chosen_by_the_model_and_who_serves_it(name: str, base: str | None, kind: type) -> None:
    provider, _, card = resolve(name)
    model = make_model(provider, card, Access(base_url=base), clock=SystemClock())
    assert isinstance(model, kind)


def test_a_person_chooses_the_api_of_a_model() -> None:
    for api, kind in (("responses", ResponsesModel), ("chat", ChatModel)):
        provider, _, card = resolve("openai:gpt-6-sol", models={"gpt-6-sol": {"api": api}})
        for base in (None, "http://localhost:8000/v1"):
            assert isinstance(make_model(provider, card, Access(base_url=base), clock=SystemClock()), kind)


def test_prices_windows_and_aliases_are_openais() -> None:
    card = resolve("openai-responses:sonnet").card
    known = resolve("openai:sonnet").card
    assert (card.id, card.price, card.window) == (known.id, known.price, known.window)
    assert card.provider == "openai-responses"


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/responses"])
async def test_a_base_url_may_end_where_people_end_it(suffix: str) -> None:
    async with responses_server(["Hi."]) as server:
        card = ModelCard(id="m", provider="openai-responses")
        model = make_model(
            "openai-responses", card, Access(base_url=server.url + suffix), clock=SystemClock()
        )
        assert (await model.reply(asking(user("Hi.")), unheard)).message.text == "Hi."
        await model.aclose()


@pytest.mark.spec("USR-07")
async def test_a_stream_that_falls_silent_ends_at_the_gap_and_is_asked_again_by_the_limiter() -> None:
    clock = FakeClock()
    stalled = Answer(content=(Text(text="A greeting of some length."),), faults=(Stall(after=6),))
    async with responses_server([stalled, ["words", StreamError(after=3)], "At last."]) as server:
        deadlines = Deadlines(connect=5, first_byte=30, gap=20, total=100)
        inner, ear = responses_at(server.url, clock=clock, deadlines=deadlines), Ear()
        model = PatientModel(inner, Limiter(clock, Random(1)), clock)
        reply = asyncio.ensure_future(model.reply(asking("Hi."), ear))
        await ear.until(TextDelta)
        await clock.advance(20.5)
        for failures in (1, 2):
            await ear.until(Retrying, failures)
            await clock.advance(5)
        assert (await asyncio.wait_for(reply, 30)).message.text == "At last."
        await model.aclose()
    assert [retry.billed for retry in ear.of(Retrying)] == [True, True]
    assert "nothing for 20 s" in ear.of(Retrying)[0].reason
    assert "Overloaded" in ear.of(Retrying)[1].reason
