"""The Messages API: what is sent, what is understood, what goes wrong."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from model_helpers import (
    GREP_SCHEMA,
    READ_SCHEMA,
    DeltaRecorder,
    create_anthropic_model,
    make_assistant_message,
    make_events,
    make_request,
    make_response,
    serve_responses,
)

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import (
    MALFORMED_INPUT_KEY,
    ImageBlock,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UrlImageSource,
    user_message,
)
from shoal.core.conversation.model_requests import (
    ModelAttemptStartedDelta,
    TextDelta,
    ThinkingDelta,
    ToolInputProgressDelta,
    ignore_stream_delta,
)
from shoal.core.errors import (
    BadReply,
    ConnectionLost,
    Overloaded,
    RateLimited,
    StreamCut,
    TransientModelError,
)
from shoal.models.catalogue import get_model_card
from shoal.models.messages_api import build_messages_body
from shoal.models.provider_json import encode_json
from shoal.testing import MockReply, make_tool_call, messages_server
from shoal.testing.messages_format import MockMessagesApiFormat
from shoal.testing.mock_replies import (
    BrokenToolJsonFault,
    CutStreamFault,
    GarbageLineFault,
    PingAfterEachEventFault,
    StreamErrorFault,
)

CARD = get_model_card("anthropic", "claude-sonnet-4-5")
MARK = b',"cache_control":{"type":"ephemeral"}'


def build_messages_request_body(*messages: Message | str, **fields: Any) -> dict[str, Any]:
    card = fields.pop("card", CARD)
    return json.loads(encode_json(build_messages_body(make_request(*messages, **fields), card)))


def make_tool_result_message(call_id: str, content: Any = "ok", **fields: Any) -> Message:
    return Message(role="user", content=(ToolResultBlock(tool_use_id=call_id, content=content, **fields),))


async def test_a_reply_has_all_its_blocks_and_streams_as_it_arrives() -> None:
    content = (
        ThinkingBlock(thinking="Two files, side by side.", signature="sig=="),
        RedactedThinkingBlock(data="b64"),
        TextBlock(text="I read both files. Žluťoučký 🐎"),
        ToolUseBlock(id="toolu_1", name="Read", input={"path": "a\n\"b'"}),
        ToolUseBlock(id="toolu_2", name="Grep", input={}),
    )
    async with messages_server([MockReply(content=content)]) as server:
        model, recorder = create_anthropic_model(server.url), DeltaRecorder()
        reply = await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA, GREP_SCHEMA]), recorder)
        await model.aclose()
    assert reply.message.content == content
    assert reply.stop_reason == "tool_use"
    assert recorder.deltas[0] == ModelAttemptStartedDelta()
    assert recorder.join_text(TextDelta) == "I read both files. Žluťoučký 🐎"
    assert recorder.join_text(ThinkingDelta) == "Two files, side by side."
    assert {delta.name for delta in recorder.list_deltas(ToolInputProgressDelta)} <= {"Read", "Grep"}


@pytest.mark.spec("USR-19")
async def test_usage_is_exactly_as_the_provider_reported_it() -> None:
    usage = Usage(
        input_tokens=12, output_tokens=345, cache_creation_input_tokens=67, cache_read_input_tokens=8_901
    )
    async with messages_server(
        [MockReply(content=(TextBlock(text="Hi."),), usage=usage), "Again."]
    ) as server:
        model = create_anthropic_model(server.url)
        first = await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        second = await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()
        assert first.usage == usage
        assert first.usage + second.usage == server.reported_usage
        assert first.counted


@pytest.mark.spec("USR-14")
async def test_the_reply_names_the_model_that_answered() -> None:
    async with messages_server(
        [MockReply(content=(TextBlock(text="Hi."),), model="claude-other-1")]
    ) as server:
        model = create_anthropic_model(server.url)
        reply = await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()
    assert reply.model == "claude-other-1"
    assert reply.id


async def test_consecutive_requests_use_one_connection() -> None:
    async with messages_server(["One.", StreamErrorFault(after=2), "Two.", "Three."]) as server:
        model = create_anthropic_model(server.url)
        await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        with pytest.raises(Overloaded):
            await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()
        assert [request.connection for request in server.requests] == [1, 1, 2, 2]


@pytest.mark.parametrize("how", ["close", "reset", "clean"])
async def test_a_stream_cut_anywhere_raises_stream_cut_and_returns_no_partial_reply(how: str) -> None:
    answer = MockReply(
        content=(TextBlock(text="Reading now."), ToolUseBlock(id="t1", name="Read", input={"path": "abcdef"}))
    )
    cuts = len(MockMessagesApiFormat().encode_stream_events(answer, {}, 1, Usage()))
    minds = [
        MockReply(content=answer.content, faults=(CutStreamFault(after=after, how=how),))
        for after in range(cuts)
    ]
    async with messages_server([*minds, answer]) as server:
        model = create_anthropic_model(server.url)
        for _ in range(cuts):
            # A reset may overtake the head of the response, and then nothing came at all.
            with pytest.raises((StreamCut, ConnectionLost) if how == "reset" else StreamCut):
                await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA]), ignore_stream_delta)
        assert (
            await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA]), ignore_stream_delta)
        ).message.content == answer.content
        await model.aclose()


async def test_broken_tool_arguments_are_kept_as_received() -> None:
    answer = MockReply(
        content=(make_tool_call("Read", call_id="t1"),),
        faults=(BrokenToolJsonFault(arguments='{"path": "a'),),
    )
    not_an_object = MockReply(
        content=(make_tool_call("Read", call_id="t1"),), faults=(BrokenToolJsonFault(arguments="[1]"),)
    )
    async with messages_server([answer, not_an_object]) as server:
        model = create_anthropic_model(server.url)
        replies = [
            await model.generate_reply(make_request("Go.", tools=[READ_SCHEMA]), ignore_stream_delta)
            for _ in range(2)
        ]
        await model.aclose()
    assert replies[0].message.tool_uses[0].input == {MALFORMED_INPUT_KEY: '{"path": "a'}
    assert replies[1].message.tool_uses[0].input == {MALFORMED_INPUT_KEY: "[1]"}


async def test_a_call_cut_by_the_token_limit_is_not_read_as_a_call_without_arguments() -> None:
    wipe = {"type": "tool_use", "id": "a", "name": "Wipe", "input": {}}
    stream = make_events(
        {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": wipe},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )
    async with serve_responses(make_response(stream, "Content-Type: text/event-stream")) as url:
        reply = await create_anthropic_model(url).generate_reply(make_request("Go."), ignore_stream_delta)
    assert reply.stop_reason == "max_tokens"
    assert reply.message.tool_uses[0].input == {MALFORMED_INPUT_KEY: ""}


async def test_pings_and_garbage_between_events_change_nothing() -> None:
    answer = MockReply(
        content=(TextBlock(text="All of it."),),
        faults=(
            PingAfterEachEventFault(),
            GarbageLineFault(after=1),
            GarbageLineFault(after=2, line="<!-- proxy -->"),
            GarbageLineFault(after=3, line="data: ok"),
        ),
    )
    async with messages_server([answer]) as server:
        model = create_anthropic_model(server.url)
        reply = await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()
    assert reply.message.text == "All of it."


@pytest.mark.parametrize(("code", "kind"), [("overloaded", Overloaded), ("rate_limit", RateLimited)])
async def test_an_error_event_in_a_stream_raises_that_error(
    code: str, kind: type[TransientModelError]
) -> None:
    async with messages_server([["Half an answer", StreamErrorFault(after=3, code=code)]]) as server:
        model = create_anthropic_model(server.url)
        with pytest.raises(kind) as caught:
            await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()
    assert caught.value.billed


async def test_a_reply_without_content_is_an_empty_reply() -> None:
    async with messages_server([MockReply(content=())]) as server:
        model = create_anthropic_model(server.url)
        reply = await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()
    assert reply.message.content == ()
    assert reply.stop_reason == "end_turn"


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 5, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use"}},
        {"type": "message_start"},
        {"type": "message_start", "message": {"usage": {"input_tokens": "many"}}},
        ["not", "an", "object"],
    ],
)
async def test_an_invalid_event_is_a_bad_reply(event: Any) -> None:
    async with serve_responses(make_response(make_events(event), "Content-Type: text/event-stream")) as url:
        with pytest.raises(BadReply, match="invalid"):
            await create_anthropic_model(url).generate_reply(make_request("Hi."), ignore_stream_delta)


async def test_a_lone_surrogate_is_replaced_in_the_request() -> None:
    stream = make_events(
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        '{"type":"content_block_delta","index":0,'
        '"delta":{"type":"text_delta","text":"a\\ud83db \\ud83d\\ude00"}}',
        {"type": "message_stop"},
    )
    async with serve_responses(make_response(stream, "Content-Type: text/event-stream")) as url:
        reply = await create_anthropic_model(url).generate_reply(
            make_request("a \udc80 lone half"), ignore_stream_delta
        )
    assert reply.message.text == "a\ufffdb 😀"
    assert not reply.counted


def test_cache_breakpoints_are_on_tools_system_and_the_last_two_user_messages() -> None:
    sent = build_messages_request_body(
        "One.",
        make_assistant_message(TextBlock(text="1")),
        "Two.",
        make_assistant_message(TextBlock(text="2")),
        "Three.",
        tools=[READ_SCHEMA, GREP_SCHEMA],
        system="Be brief.",
    )
    assert [("cache_control" in tool) for tool in sent["tools"]] == [False, True]
    assert sent["system"] == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    marked = ["cache_control" in message["content"][-1] for message in sent["messages"]]
    assert marked == [False, False, True, False, True]


def test_text_after_results_moves_the_cache_breakpoint_from_the_tools_to_the_results() -> None:
    calls = [ToolUseBlock(id=f"t{n}", name="Read", input={}) for n in range(2)]
    results = [ToolResultBlock(tool_use_id=f"t{n}", content="x") for n in range(2)]
    words = Message(role="user", content=(*results, TextBlock(text="Go on with a."), TextBlock(text="Soon.")))
    sent = build_messages_request_body(
        "One.", make_assistant_message(*calls), words, tools=[READ_SCHEMA, GREP_SCHEMA], system="Be brief."
    )
    marked = [["cache_control" in block for block in m["content"]] for m in sent["messages"][::2]]
    assert marked == [[True], [False, True, False, True]]
    assert not any("cache_control" in tool for tool in sent["tools"])
    assert sent["system"][0]["cache_control"]
    assert encode_json(sent).count(MARK) == 4


def test_the_request_prefix_has_the_same_bytes_in_every_turn() -> None:
    turns = [
        user_message("Look at a."),
        make_assistant_message(
            ThinkingBlock(thinking="hm", signature="s"),
            ToolUseBlock(id="t1", name="Read", input={"path": "a"}),
        ),
        make_tool_result_message("t1", "content of a"),
        make_assistant_message(TextBlock(text="Done.")),
        user_message("And b?"),
        make_assistant_message(ToolUseBlock(id="t2", name="Read", input={"path": "b"})),
        make_tool_result_message(
            "t2",
            (TextBlock(text="content"), ImageBlock(source=UrlImageSource(url="https://x/y.png"))),
            is_error=True,
        ),
    ]
    asked = [
        encode_json(build_messages_body(make_request(*turns[:n], tools=[READ_SCHEMA]), CARD)).replace(
            MARK, b""
        )
        for n in (1, 3, 5, 7)
    ]
    for shorter, longer in itertools.pairwise(asked):
        assert longer.startswith(shorter.removesuffix(b"]}"))
    assert b"cache_control" not in asked[-1]


def test_content_that_the_api_refuses_is_not_sent() -> None:
    sent = build_messages_request_body(
        Message(role="user", content=(TextBlock(text=" \n"), TextBlock(text="Go."))),
        make_assistant_message(
            ThinkingBlock(thinking="of another provider"),
            TextBlock(text=""),
            ToolUseBlock(id="t1", name="Read", input={}),
        ),
        Message(
            role="user",
            content=(TextBlock(text="by the way"), ToolResultBlock(tool_use_id="t1", is_error=True)),
        ),
        user_message("and more"),
        make_assistant_message(TextBlock(text="")),
        user_message("still here"),
        system=" ",
    )
    assert "system" not in sent
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["tool_use"]
    last = sent["messages"][2]["content"]
    assert [block["type"] for block in last] == ["tool_result", "text", "text", "text"]
    assert last[0]["content"]
    assert not re.search(r'"text": ?"\s*"', json.dumps(sent))


def test_images_are_replaced_by_a_marker_for_models_without_vision() -> None:
    blind = get_model_card(
        "anthropic", "claude-sonnet-4-5", overrides={"claude-sonnet-4-5": _entry(images=False)}
    )
    image = ImageBlock(source=UrlImageSource(url="https://x/y.png"))
    sent = build_messages_request_body(Message(role="user", content=(image,)), card=blind)
    assert "omitted" in sent["messages"][0]["content"][0]["text"]


def _entry(**fields: Any) -> Any:
    from shoal.models.catalogue import ModelCatalogueEntry

    return ModelCatalogueEntry(**fields)


def test_thinking_is_requested_in_the_form_of_each_model_generation() -> None:
    old = build_messages_request_body("Hi.", thinking_tokens=8_000, max_tokens=4_000, temperature=0.5)
    assert old["thinking"] == {"type": "enabled", "budget_tokens": 8_000}
    assert old["max_tokens"] > 8_000
    assert "temperature" not in old
    unknown = build_messages_request_body(
        "Hi.", thinking_tokens=16_000, card=get_model_card("anthropic", "gateway-model")
    )
    assert unknown["max_tokens"] - unknown["thinking"]["budget_tokens"] == 4_096
    new = build_messages_request_body(
        "Hi.", thinking_tokens=8_000, temperature=0.5, card=get_model_card("anthropic", "claude-opus-5-5")
    )
    assert new["thinking"] == {"type": "adaptive"}
    assert new["output_config"] == {"effort": "medium"}
    assert "temperature" not in new
    for tokens, name, effort in (
        (32_768, "claude-opus-5-5", "xhigh"),
        (32_768, "claude-opus-4-6", "high"),
        (65_536, "claude-opus-4-6", "max"),
    ):
        card = get_model_card("anthropic", name)
        body = build_messages_request_body("Hi.", thinking_tokens=tokens, card=card)
        assert body["output_config"] == {"effort": effort}
    plain = build_messages_request_body("Hi.", temperature=0.5)
    assert plain["temperature"] == 0.5
    assert plain["max_tokens"] == CARD.max_output


async def test_a_bearer_token_or_an_api_key_is_sent_in_its_header() -> None:
    async with messages_server(["Hi.", "Hi."]) as server:
        for options in ({"api_key": " sk-1\n"}, {"api_key": None, "auth_token": "tok"}):
            model = create_anthropic_model(server.url, **options)
            await model.generate_reply(make_request("Hi."), ignore_stream_delta)
            await model.aclose()
        assert server.requests[0].headers["x-api-key"] == "sk-1"
        assert "authorization" not in server.requests[0].headers
        assert server.requests[1].headers["authorization"] == "Bearer tok"
