"""The Messages API: what is sent, what is understood, what goes wrong."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from model_kit import GREP, READ, Ear, anthropic_at, asking, events, http, saying

from shoal.core.errors import BadReply, ConnectionLost, Overloaded, RateLimited, StreamCut, Transient
from shoal.core.messages import (
    MALFORMED,
    Image,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UrlSource,
    user,
)
from shoal.core.requests import Sent, TextDelta, ThinkingDelta, ToolInputDelta, unheard
from shoal.core.usage import Usage
from shoal.models.catalogue import card_of
from shoal.models.json_text import encoded
from shoal.models.messages_api import body_of
from shoal.testing import Answer, call, messages_server
from shoal.testing.messages_form import MessagesForm
from shoal.testing.replies import BrokenToolJson, Cut, Garbage, Pings, StreamError

CARD = card_of("anthropic", "claude-sonnet-4-5")
MARK = b',"cache_control":{"type":"ephemeral"}'


def body(*messages: Message | str, **fields: Any) -> dict[str, Any]:
    card = fields.pop("card", CARD)
    return json.loads(encoded(body_of(asking(*messages, **fields), card)))


def answered(call_id: str, content: Any = "ok", **fields: Any) -> Message:
    return Message(role="user", content=(ToolResult(tool_use_id=call_id, content=content, **fields),))


def said(*blocks: Any) -> Message:
    return Message(role="assistant", content=blocks)


async def test_a_reply_carries_all_its_blocks_and_is_heard_while_it_comes() -> None:
    content = (
        Thinking(thinking="Two files, side by side.", signature="sig=="),
        RedactedThinking(data="b64"),
        Text(text="I read both files. Žluťoučký 🐎"),
        ToolUse(id="toolu_1", name="Read", input={"path": "a\n\"b'"}),
        ToolUse(id="toolu_2", name="Grep", input={}),
    )
    async with messages_server([Answer(content=content)]) as server:
        model, ear = anthropic_at(server.url), Ear()
        reply = await model.reply(asking("Go.", tools=[READ, GREP]), ear)
        await model.aclose()
    assert reply.message.content == content
    assert reply.stop_reason == "tool_use"
    assert ear.heard[0] == Sent()
    assert ear.text(TextDelta) == "I read both files. Žluťoučký 🐎"
    assert ear.text(ThinkingDelta) == "Two files, side by side."
    assert {delta.name for delta in ear.of(ToolInputDelta)} <= {"Read", "Grep"}


@pytest.mark.spec("USR-19")
async def test_usage_is_what_the_provider_reported_to_the_token() -> None:
    usage = Usage(
        input_tokens=12, output_tokens=345, cache_creation_input_tokens=67, cache_read_input_tokens=8_901
    )
    async with messages_server([Answer(content=(Text(text="Hi."),), usage=usage), "Again."]) as server:
        model = anthropic_at(server.url)
        first = await model.reply(asking("Hi."), unheard)
        second = await model.reply(asking("Hi."), unheard)
        await model.aclose()
        assert first.usage == usage
        assert first.usage + second.usage == server.reported
        assert first.counted


@pytest.mark.spec("USR-14")
async def test_the_model_that_answered_is_named_even_where_another_was_asked() -> None:
    async with messages_server([Answer(content=(Text(text="Hi."),), model="claude-other-1")]) as server:
        model = anthropic_at(server.url)
        reply = await model.reply(asking("Hi."), unheard)
        await model.aclose()
    assert reply.model == "claude-other-1"
    assert reply.id


async def test_requests_follow_each_other_on_one_connection() -> None:
    async with messages_server(["One.", StreamError(after=2), "Two.", "Three."]) as server:
        model = anthropic_at(server.url)
        await model.reply(asking("Hi."), unheard)
        with pytest.raises(Overloaded):
            await model.reply(asking("Hi."), unheard)
        await model.reply(asking("Hi."), unheard)
        await model.reply(asking("Hi."), unheard)
        await model.aclose()
        assert [request.connection for request in server.requests] == [1, 1, 2, 2]


@pytest.mark.parametrize("how", ["close", "reset", "clean"])
async def test_a_stream_cut_anywhere_is_a_cut_and_never_half_a_reply(how: str) -> None:
    answer = Answer(
        content=(Text(text="Reading now."), ToolUse(id="t1", name="Read", input={"path": "abcdef"}))
    )
    cuts = len(MessagesForm().events(answer, {}, 1, Usage()))
    minds = [Answer(content=answer.content, faults=(Cut(after=after, how=how),)) for after in range(cuts)]
    async with messages_server([*minds, answer]) as server:
        model = anthropic_at(server.url)
        for _ in range(cuts):
            # A reset may overtake the head of the response, and then nothing came at all.
            with pytest.raises((StreamCut, ConnectionLost) if how == "reset" else StreamCut):
                await model.reply(asking("Go.", tools=[READ]), unheard)
        assert (await model.reply(asking("Go.", tools=[READ]), unheard)).message.content == answer.content
        await model.aclose()


async def test_broken_arguments_are_kept_as_they_came() -> None:
    answer = Answer(content=(call("Read", call_id="t1"),), faults=(BrokenToolJson(arguments='{"path": "a'),))
    not_an_object = Answer(content=(call("Read", call_id="t1"),), faults=(BrokenToolJson(arguments="[1]"),))
    async with messages_server([answer, not_an_object]) as server:
        model = anthropic_at(server.url)
        replies = [await model.reply(asking("Go.", tools=[READ]), unheard) for _ in range(2)]
        await model.aclose()
    assert replies[0].message.tool_uses[0].input == {MALFORMED: '{"path": "a'}
    assert replies[1].message.tool_uses[0].input == {MALFORMED: "[1]"}


async def test_a_call_cut_by_the_token_limit_is_not_taken_for_one_without_arguments() -> None:
    wipe = {"type": "tool_use", "id": "a", "name": "Wipe", "input": {}}
    stream = events(
        {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": wipe},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )
    async with saying(http(stream, "Content-Type: text/event-stream")) as url:
        reply = await anthropic_at(url).reply(asking("Go."), unheard)
    assert reply.stop_reason == "max_tokens"
    assert reply.message.tool_uses[0].input == {MALFORMED: ""}


async def test_pings_and_garbage_between_events_change_nothing() -> None:
    answer = Answer(
        content=(Text(text="All of it."),),
        faults=(
            Pings(),
            Garbage(after=1),
            Garbage(after=2, line="<!-- proxy -->"),
            Garbage(after=3, line="data: ok"),
        ),
    )
    async with messages_server([answer]) as server:
        model = anthropic_at(server.url)
        reply = await model.reply(asking("Hi."), unheard)
        await model.aclose()
    assert reply.message.text == "All of it."


@pytest.mark.parametrize(("code", "kind"), [("overloaded", Overloaded), ("rate_limit", RateLimited)])
async def test_an_error_in_the_middle_of_a_stream_is_that_error(code: str, kind: type[Transient]) -> None:
    async with messages_server([["Half an answer", StreamError(after=3, code=code)]]) as server:
        model = anthropic_at(server.url)
        with pytest.raises(kind) as caught:
            await model.reply(asking("Hi."), unheard)
        await model.aclose()
    assert caught.value.billed


async def test_a_reply_without_content_is_an_empty_reply() -> None:
    async with messages_server([Answer(content=())]) as server:
        model = anthropic_at(server.url)
        reply = await model.reply(asking("Hi."), unheard)
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
async def test_an_event_that_makes_no_sense_is_a_bad_reply(event: Any) -> None:
    async with saying(http(events(event), "Content-Type: text/event-stream")) as url:
        with pytest.raises(BadReply, match="makes no sense"):
            await anthropic_at(url).reply(asking("Hi."), unheard)


async def test_a_lone_half_of_a_surrogate_pair_is_replaced_not_fatal() -> None:
    stream = events(
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        '{"type":"content_block_delta","index":0,'
        '"delta":{"type":"text_delta","text":"a\\ud83db \\ud83d\\ude00"}}',
        {"type": "message_stop"},
    )
    async with saying(http(stream, "Content-Type: text/event-stream")) as url:
        reply = await anthropic_at(url).reply(asking("a \udc80 lone half"), unheard)
    assert reply.message.text == "a\ufffdb 😀"
    assert not reply.counted


def test_breakpoints_stand_on_tools_system_and_the_last_two_user_messages() -> None:
    sent = body(
        "One.",
        said(Text(text="1")),
        "Two.",
        said(Text(text="2")),
        "Three.",
        tools=[READ, GREP],
        system="Be brief.",
    )
    assert [("cache_control" in tool) for tool in sent["tools"]] == [False, True]
    assert sent["system"] == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    marked = ["cache_control" in message["content"][-1] for message in sent["messages"]]
    assert marked == [False, False, True, False, True]


def test_words_after_results_have_a_breakpoint_before_them_in_place_of_that_on_the_tools() -> None:
    calls = [ToolUse(id=f"t{n}", name="Read", input={}) for n in range(2)]
    results = [ToolResult(tool_use_id=f"t{n}", content="x") for n in range(2)]
    words = Message(role="user", content=(*results, Text(text="Go on with a."), Text(text="Soon.")))
    sent = body("One.", said(*calls), words, tools=[READ, GREP], system="Be brief.")
    marked = [["cache_control" in block for block in m["content"]] for m in sent["messages"][::2]]
    assert marked == [[True], [False, True, False, True]]
    assert not any("cache_control" in tool for tool in sent["tools"])
    assert sent["system"][0]["cache_control"]
    assert encoded(sent).count(MARK) == 4


def test_the_prefix_is_the_same_bytes_from_turn_to_turn() -> None:
    turns = [
        user("Look at a."),
        said(Thinking(thinking="hm", signature="s"), ToolUse(id="t1", name="Read", input={"path": "a"})),
        answered("t1", "content of a"),
        said(Text(text="Done.")),
        user("And b?"),
        said(ToolUse(id="t2", name="Read", input={"path": "b"})),
        answered("t2", (Text(text="content"), Image(source=UrlSource(url="https://x/y.png"))), is_error=True),
    ]
    asked = [
        encoded(body_of(asking(*turns[:n], tools=[READ]), CARD)).replace(MARK, b"") for n in (1, 3, 5, 7)
    ]
    for shorter, longer in itertools.pairwise(asked):
        assert longer.startswith(shorter.removesuffix(b"]}"))
    assert b"cache_control" not in asked[-1]


def test_what_the_api_refuses_is_not_sent() -> None:
    sent = body(
        Message(role="user", content=(Text(text=" \n"), Text(text="Go."))),
        said(
            Thinking(thinking="of another provider"), Text(text=""), ToolUse(id="t1", name="Read", input={})
        ),
        Message(role="user", content=(Text(text="by the way"), ToolResult(tool_use_id="t1", is_error=True))),
        user("and more"),
        said(Text(text="")),
        user("still here"),
        system=" ",
    )
    assert "system" not in sent
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["tool_use"]
    last = sent["messages"][2]["content"]
    assert [block["type"] for block in last] == ["tool_result", "text", "text", "text"]
    assert last[0]["content"]
    assert not re.search(r'"text": ?"\s*"', json.dumps(sent))


def test_images_are_left_out_with_a_mark_for_models_that_do_not_see() -> None:
    blind = card_of("anthropic", "claude-sonnet-4-5", own={"claude-sonnet-4-5": _entry(images=False)})
    image = Image(source=UrlSource(url="https://x/y.png"))
    sent = body(Message(role="user", content=(image,)), card=blind)
    assert "left out" in sent["messages"][0]["content"][0]["text"]


def _entry(**fields: Any) -> Any:
    from shoal.models.catalogue import CardEntry

    return CardEntry(**fields)


def test_thinking_is_asked_for_as_each_generation_wants_it() -> None:
    old = body("Hi.", thinking_tokens=8_000, max_tokens=4_000, temperature=0.5)
    assert old["thinking"] == {"type": "enabled", "budget_tokens": 8_000}
    assert old["max_tokens"] > 8_000
    assert "temperature" not in old
    new = body("Hi.", thinking_tokens=8_000, temperature=0.5, card=card_of("anthropic", "claude-opus-5-5"))
    assert new["thinking"] == {"type": "adaptive"}
    assert new["output_config"] == {"effort": "medium"}
    assert "temperature" not in new
    plain = body("Hi.", temperature=0.5)
    assert plain["temperature"] == 0.5
    assert plain["max_tokens"] == CARD.max_output


async def test_a_bearer_token_or_a_key_is_sent_as_such() -> None:
    async with messages_server(["Hi.", "Hi."]) as server:
        for options in ({"api_key": " sk-1\n"}, {"api_key": None, "auth_token": "tok"}):
            model = anthropic_at(server.url, **options)
            await model.reply(asking("Hi."), unheard)
            await model.aclose()
        assert server.requests[0].headers["x-api-key"] == "sk-1"
        assert "authorization" not in server.requests[0].headers
        assert server.requests[1].headers["authorization"] == "Bearer tok"
