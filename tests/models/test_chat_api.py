"""Chat Completions: what is sent, what is understood, and the servers that imitate it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from model_helpers import (
    GREP_SCHEMA,
    READ_SCHEMA,
    DeltaRecorder,
    create_openai_model,
    make_events,
    make_request,
    make_response,
    serve_responses,
)

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import (
    MALFORMED_INPUT_KEY,
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
    TextDelta,
    ThinkingDelta,
    ToolInputProgressDelta,
    ignore_stream_delta,
)
from shoal.core.errors import BadReply, BadRequest, Overloaded, StreamCut
from shoal.models.catalogue import get_model_card
from shoal.models.chat_body import ChatCompletionsApiDialect, build_chat_body, select_chat_dialect
from shoal.models.provider_json import encode_json
from shoal.testing import MockReply, chat_server, make_tool_call
from shoal.testing.chat_format import MockChatCompletionsApiFormat
from shoal.testing.mock_replies import BrokenToolJsonFault, CutStreamFault, HttpErrorFault, StreamErrorFault

CARD = get_model_card("openai", "gpt-4.1")
PNG = ImageBlock(source=Base64ImageSource(media_type="image/png", data="iVBORw0KGgo="))


def build_chat_request_body(
    *messages: Message | str, dialect: ChatCompletionsApiDialect | None = None, **fields: Any
) -> dict[str, Any]:
    return json.loads(
        encode_json(
            build_chat_body(make_request(*messages, **fields), CARD, dialect or ChatCompletionsApiDialect())
        )
    )


def make_chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "model": "m",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
    } | more


async def parse_reply_chunks(*chunks: Any, messages: tuple[Any, ...] = ("Go.",)) -> ModelReply:
    """Return the reply parsed from the chunks of a compatible server."""
    async with serve_responses(make_response(make_events(*chunks), "Content-Type: text/event-stream")) as url:
        return await create_openai_model(url).generate_reply(
            make_request(*messages, tools=[READ_SCHEMA]), ignore_stream_delta
        )


async def test_a_reply_carries_text_reasoning_and_parallel_calls() -> None:
    content = (
        ThinkingBlock(thinking="Both at once, then."),
        TextBlock(text="I look at both. 🐎"),
        ToolUseBlock(id="call_aaaaaaaa", name="Read", input={"path": "a\n\"b'"}),
        ToolUseBlock(id="call_bbbbbbbb", name="Grep", input={}),
    )
    async with chat_server([MockReply(content=content)]) as server:
        model, recorder = create_openai_model(server.url), DeltaRecorder()
        reply = await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA, GREP_SCHEMA]), recorder)
        await model.aclose()
    assert reply.message.content == content
    assert reply.stop_reason == "tool_use"
    assert recorder.deltas[0] == ModelAttemptStartedDelta()
    assert recorder.join_text(TextDelta) == "I look at both. 🐎"
    assert recorder.join_text(ThinkingDelta) == "Both at once, then."
    assert recorder.list_deltas(ToolInputProgressDelta)[-1].name == "Grep"


@pytest.mark.spec("USR-19")
async def test_usage_is_as_reported_with_cached_tokens_counted_separately() -> None:
    usage = Usage(input_tokens=100, output_tokens=20, cache_read_input_tokens=900)
    async with chat_server([MockReply(content=(TextBlock(text="Hi."),), usage=usage), "Again."]) as server:
        model = create_openai_model(server.url)
        first = await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        second = await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()
        assert first.usage == usage
        assert first.usage + second.usage == server.reported_usage


@pytest.mark.spec("USR-19")
async def test_a_server_that_reports_no_usage_is_not_counted_as_zero() -> None:
    reply = await parse_reply_chunks(make_chunk({"content": "Hi."}, "stop"), "[DONE]")
    assert reply.usage == Usage()
    assert not reply.counted


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_cache_hit_tokens": 4},
            Usage(input_tokens=6, output_tokens=2, cache_read_input_tokens=4),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 5},
            },
            Usage(input_tokens=2, output_tokens=2, cache_read_input_tokens=3, cache_creation_input_tokens=5),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": None, "prompt_tokens_details": None},
            Usage(input_tokens=10),
        ),
    ],
)
async def test_cached_tokens_are_found_where_each_server_puts_them(raw: Any, usage: Usage) -> None:
    assert (
        await parse_reply_chunks(make_chunk({"content": "x"}, "stop"), make_chunk(usage=raw), "[DONE]")
    ).usage == usage


async def test_usage_repeated_in_every_chunk_counts_once() -> None:
    counts = [{"prompt_tokens": 5, "completion_tokens": n} for n in (1, 2, 3)]
    chunks = [make_chunk({"content": "x"}, usage=count) for count in counts]
    reply = await parse_reply_chunks(*chunks, make_chunk(finish="stop"), "[DONE]")
    assert reply.usage == Usage(input_tokens=5, output_tokens=3)


@pytest.mark.parametrize("how", ["close", "clean"])
async def test_a_stream_cut_anywhere_raises_stream_cut_and_returns_no_partial_reply(how: str) -> None:
    content = (
        TextBlock(text="Reading now."),
        ToolUseBlock(id="call_12345", name="Read", input={"path": "abcdef"}),
    )
    asked = {"stream_options": {"include_usage": True}}
    total = len(
        MockChatCompletionsApiFormat().encode_stream_events(MockReply(content=content), asked, 1, Usage())
    )
    # Once reason and usage are there, only the end mark is missing, and nothing of the reply is.
    cuts = total - 1 if how == "clean" else total
    minds = [
        MockReply(content=content, faults=(CutStreamFault(after=after, how=how),)) for after in range(cuts)
    ]
    async with chat_server([*minds, MockReply(content=content)]) as server:
        model = create_openai_model(server.url)
        for _ in range(cuts):
            with pytest.raises(StreamCut):
                await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA]), ignore_stream_delta)
        assert (
            await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA]), ignore_stream_delta)
        ).message.content == content
        await model.aclose()


async def test_a_stream_without_an_end_mark_is_read() -> None:
    reply = await parse_reply_chunks(
        make_chunk({"content": "Hi."}, "stop"), make_chunk(usage={"prompt_tokens": 1})
    )
    assert reply.message.text == "Hi."


async def test_an_error_event_in_a_stream_raises_that_error() -> None:
    async with chat_server([["Half an answer", StreamErrorFault(after=3)]]) as server:
        model = create_openai_model(server.url)
        with pytest.raises(Overloaded):
            await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()


async def test_broken_tool_arguments_are_kept_as_received() -> None:
    answer = MockReply(
        content=(make_tool_call("Read", call_id="call_12345"),),
        faults=(BrokenToolJsonFault(arguments='{"a'),),
    )
    async with chat_server([answer]) as server:
        model = create_openai_model(server.url)
        reply = await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA]), ignore_stream_delta)
        await model.aclose()
    assert reply.message.tool_uses[0].input == {MALFORMED_INPUT_KEY: '{"a'}


async def test_tool_calls_without_ids_get_the_next_free_numbers_deterministically() -> None:
    parts = [{"index": n, "function": {"name": "Read", "arguments": "{}"}} for n in (0, 1)]
    history = (
        user_message("Go."),
        Message(role="assistant", content=(ToolUseBlock(id="call_00002", name="Read", input={}),)),
        Message(role="user", content=(ToolResultBlock(tool_use_id="call_00002"),)),
    )
    chunks = (make_chunk({"tool_calls": parts}, "tool_calls"), "[DONE]")
    replies = [await parse_reply_chunks(*chunks, messages=history) for _ in range(2)]
    assert [use.id for use in replies[0].message.tool_uses] == ["call_00001", "call_00003"]
    assert replies[0].message == replies[1].message


async def test_a_duplicate_call_id_is_replaced() -> None:
    parts = [{"index": n, "id": "0", "function": {"name": "Read", "arguments": "{}"}} for n in (0, 1)]
    reply = await parse_reply_chunks(make_chunk({"tool_calls": parts}, "stop"), "[DONE]")
    assert [use.id for use in reply.message.tool_uses] == ["0", "call_00000"]
    assert reply.stop_reason == "tool_use"


async def test_calls_without_an_index_are_distinguished_by_their_ids() -> None:
    def part(call_id: str | None, arguments: Any) -> dict[str, Any]:
        return {"id": call_id, "function": {"name": "Read" if call_id else None, "arguments": arguments}}

    reply = await parse_reply_chunks(
        make_chunk({"tool_calls": [part("call_aaaaa", '{"path"')]}),
        make_chunk({"tool_calls": [part(None, ': "a"}')]}),
        make_chunk({"tool_calls": [part("call_bbbbb", {"path": "b"})]}, "tool_calls"),
        "[DONE]",
    )
    assert [use.input for use in reply.message.tool_uses] == [{"path": "a"}, {"path": "b"}]


async def test_calls_with_the_same_index_are_distinguished_by_their_ids() -> None:
    def part(call_id: str, arguments: str) -> dict[str, Any]:
        return {"index": 0, "id": call_id, "function": {"name": "Read", "arguments": arguments}}

    reply = await parse_reply_chunks(
        make_chunk({"tool_calls": [part("call_aaaaa", '{"path": "a"}')]}),
        make_chunk({"tool_calls": [part("call_bbbbb", '{"path": "b"}')]}, "tool_calls"),
        "[DONE]",
    )
    assert [(use.id, use.input) for use in reply.message.tool_uses] == [
        ("call_aaaaa", {"path": "a"}),
        ("call_bbbbb", {"path": "b"}),
    ]


async def test_chunks_with_different_ids_and_one_index_are_one_call() -> None:
    def part(call_id: str, name: str | None, arguments: str) -> dict[str, Any]:
        return {"index": 0, "id": call_id, "function": {"name": name, "arguments": arguments}}

    reply = await parse_reply_chunks(
        make_chunk({"tool_calls": [part("call_aaaaa", "Read", "")]}),
        make_chunk({"tool_calls": [part("call_bbbbb", None, '{"path"')]}),
        make_chunk({"tool_calls": [part("call_ccccc", None, ': "a"}')]}, "tool_calls"),
        "[DONE]",
    )
    assert [use.input for use in reply.message.tool_uses] == [{"path": "a"}]


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), ("odd", "end_turn")],
)
async def test_the_stop_reason_is_translated(finish: str, stop: str) -> None:
    assert (await parse_reply_chunks(make_chunk({"content": "x"}, finish), "[DONE]")).stop_reason == stop


async def test_a_refusal_is_streamed_and_marked() -> None:
    reply = await parse_reply_chunks(make_chunk({"refusal": "No."}), make_chunk(finish="stop"), "[DONE]")
    assert reply.message.text == "No."
    assert reply.stop_reason == "refusal"


async def test_content_in_parts_and_alternative_reasoning_fields_are_read() -> None:
    parts = [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]
    reply = await parse_reply_chunks(
        make_chunk({"reasoning": "hm"}), make_chunk({"content": parts}, "stop"), "[DONE]"
    )
    assert reply.message.content == (ThinkingBlock(thinking="hm"), TextBlock(text="in parts"))


async def test_an_invalid_chunk_is_a_bad_reply() -> None:
    with pytest.raises(BadReply, match="invalid"):
        await parse_reply_chunks({"choices": [{"delta": {"tool_calls": ["x"]}}]})


def test_tool_results_are_separate_messages_followed_by_their_images() -> None:
    sent = build_chat_request_body(
        "Look.",
        Message(
            role="assistant",
            content=(
                ThinkingBlock(thinking="kept to ourselves", signature="s"),
                ToolUseBlock(id="c1", name="Read", input={"path": "a"}),
                ToolUseBlock(id="c2", name="Read", input={MALFORMED_INPUT_KEY: "{"}),
            ),
        ),
        Message(
            role="user",
            content=(
                TextBlock(text="By the way."),
                ToolResultBlock(tool_use_id="c1", content=(TextBlock(text="a picture"), PNG)),
                ToolResultBlock(tool_use_id="c2", content="no such file", is_error=True),
            ),
        ),
    )["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert sent[2]["content"] is None
    assert json.loads(sent[2]["tool_calls"][1]["function"]["arguments"]) == {MALFORMED_INPUT_KEY: "{"}
    assert sent[3] == {"role": "tool", "tool_call_id": "c1", "content": "a picture\n[image]"}
    assert sent[4]["content"] == "Error: no such file"
    kinds = [part["type"] for part in sent[5]["content"]]
    assert kinds == ["text", "image_url", "text"]
    assert sent[5]["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="


def test_usage_is_always_requested_and_plain_text_stays_a_string() -> None:
    sent = build_chat_request_body("One.", "Two.")
    assert sent["stream_options"] == {"include_usage": True}
    assert sent["messages"][1] == {"role": "user", "content": "One.\n\nTwo."}
    assert not {"tools", "max_tokens", "max_completion_tokens"} & set(sent)


def test_limits_and_thinking_use_the_fields_of_each_server() -> None:
    official = select_chat_dialect("openai", "gpt-5.1", "https://api.openai.com/v1")
    sent = build_chat_request_body(
        "Hi.", dialect=official, max_tokens=100, thinking_tokens=20_000, temperature=1.0
    )
    assert sent["max_completion_tokens"] == 100
    assert sent["reasoning_effort"] == "high"
    assert "temperature" not in sent
    local = select_chat_dialect("openai", "gpt-5.1", "http://localhost:8000/v1")
    sent = build_chat_request_body(
        "Hi.", dialect=local, max_tokens=100, thinking_tokens=20_000, temperature=1.0
    )
    assert sent["max_tokens"] == 100
    assert sent["temperature"] == 1.0
    assert "reasoning_effort" not in sent
    assert build_chat_request_body("Hi.", dialect=local)["max_tokens"] == CARD.max_output
    imitation = select_chat_dialect("openai", "gpt-5.1", "https://api.notopenai.com/v1")
    assert "reasoning_effort" not in build_chat_request_body("Hi.", dialect=imitation, thinking_tokens=20_000)
    router = select_chat_dialect("openrouter", "openai/gpt-5.1", "https://openrouter.ai/api/v1")
    assert build_chat_request_body("Hi.", dialect=router, thinking_tokens=9)["reasoning"] == {"max_tokens": 9}
    newest = select_chat_dialect("openai", "gpt-5.6-sol", "https://api.openai.com/v1")
    assert build_chat_request_body("Hi.", dialect=newest, tools=[READ_SCHEMA])["reasoning_effort"] == "none"


def test_the_request_prefix_has_the_same_bytes_in_every_turn() -> None:
    turns = [
        user_message("Look."),
        Message(role="assistant", content=(ToolUseBlock(id="c1", name="Read", input={"path": "a"}),)),
        Message(role="user", content=(ToolResultBlock(tool_use_id="c1", content="text"),)),
    ]
    short, long = (
        encode_json(
            build_chat_body(make_request(*turns[:n], tools=[READ_SCHEMA]), CARD, ChatCompletionsApiDialect())
        )
        for n in (1, 3)
    )
    assert long.startswith(short.removesuffix(b"]}"))


async def test_a_server_that_requires_reasoning_gets_it_from_then_on() -> None:
    def reply_to(body: Mapping[str, Any]) -> Any:
        thoughts = [
            message.get("reasoning_content") for message in body["messages"] if message["role"] == "assistant"
        ]
        if thoughts != ["of mine"]:
            words = "Missing `reasoning_content` field in the assistant message at message index 2"
            return HttpErrorFault(status=400, message=words)
        return "Thanks."

    history = (
        user_message("Look."),
        Message(
            role="assistant",
            content=(
                ThinkingBlock(thinking="another's", signature="s"),
                ThinkingBlock(thinking="of mine"),
                ToolUseBlock(id="call_12345", name="Read", input={}),
            ),
        ),
        Message(role="user", content=(ToolResultBlock(tool_use_id="call_12345", content="x"),)),
    )
    async with chat_server(reply_to) as server:
        model = create_openai_model(server.url)
        for _ in range(2):
            assert (
                await model.generate_reply(make_request(*history, tools=[READ_SCHEMA]), ignore_stream_delta)
            ).message.text == "Thanks."
        await model.aclose()
        assert server.request_count == 3


async def test_a_repeated_complaint_of_a_server_is_raised() -> None:
    words = "Missing `reasoning_content` field"
    async with chat_server([HttpErrorFault(status=400, message=words)] * 2) as server:
        model = create_openai_model(server.url)
        with pytest.raises(BadRequest):
            await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()


def make_conversation_ending_with(words: str) -> tuple[Message, ...]:
    """Make a conversation with tool results and text after them."""
    calls = tuple(ToolUseBlock(id=f"t{n}", name="Read", input={}) for n in range(2))
    results = tuple(ToolResultBlock(tool_use_id=f"t{n}", content=f"{n}") for n in range(2))
    return (
        user_message("One."),
        Message(role="assistant", content=(TextBlock(text="1"),)),
        user_message("Two."),
        Message(role="assistant", content=calls),
        Message(role="user", content=(*results, TextBlock(text=words))),
    )


@pytest.mark.spec("FRK-02")
def test_sibling_requests_share_the_bytes_before_their_last_message() -> None:
    first, second = (
        encode_json(
            build_chat_body(
                make_request(*make_conversation_ending_with(words), tools=[READ_SCHEMA], system="Be brief."),
                CARD,
                ChatCompletionsApiDialect(),
            )
        )
        for words in ("do A", "do B")
    )
    assert first.partition(b"do A")[0] == second.partition(b"do B")[0]
    assert first.partition(b"do A")[2] == b'"}]}'


def test_cache_marks_are_placed_as_in_the_messages_api() -> None:
    router = select_chat_dialect("openrouter", "anthropic/claude-sonnet-4.5", "https://openrouter.ai/api/v1")
    sent = build_chat_request_body(
        *make_conversation_ending_with("Go on."), system="Be brief.", dialect=router
    )["messages"]
    marked = [index for index, message in enumerate(sent) if "cache_control" in str(message)]
    assert [sent[index]["role"] for index in marked] == ["system", "user", "tool", "user"]
    assert marked[1:] == [3, 6, 7]
    mark = {"type": "ephemeral"}
    assert sent[7]["content"] == [{"type": "text", "text": "Go on.", "cache_control": mark}]
    other = select_chat_dialect("openrouter", "openai/gpt-5.1", "https://openrouter.ai/api/v1")
    assert "cache_control" not in str(
        build_chat_request_body(*make_conversation_ending_with("Go on."), dialect=other)
    )


def test_an_empty_result_gets_no_cache_mark() -> None:
    nothing = Message(role="user", content=(ToolResultBlock(tool_use_id="t1", content=""),))
    call = Message(role="assistant", content=(ToolUseBlock(id="t1", name="Read", input={}),))
    sent = build_chat_request_body("Go.", call, nothing, dialect=ChatCompletionsApiDialect(cache_marks=True))[
        "messages"
    ]
    assert sent[-1]["content"] == ""
