"""Tool calls over servers that know none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from model_helpers import GREP_SCHEMA, READ_SCHEMA, DeltaRecorder, create_openai_model, make_request

from shoal.core.budgets.usage import ModelCard, Usage
from shoal.core.conversation.messages import (
    MALFORMED_INPUT_KEY,
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
    ignore_stream_delta,
)
from shoal.models.tool_emulation import (
    build_emulated_reply_schema,
    emulate_tools_in_prompt,
    parse_emulated_reply,
)
from shoal.testing import chat_server
from shoal.testing.mock_replies import HttpErrorFault

PLAIN = ModelCard(id="tiny", provider="openai", tools=False)


def make_text_reply(text: str, **fields: Any) -> ModelReply:
    message = Message(role="assistant", content=(ThinkingBlock(thinking="hm"), TextBlock(text=text)))
    return ModelReply(message=message, usage=Usage(), stop_reason="end_turn", model="tiny", **fields)


async def test_a_tool_call_is_requested_by_schema_and_parsed() -> None:
    content = {
        "turn": {"calls": [{"tool": "Read", "arguments": {"path": "a"}}, {"tool": "Grep", "arguments": {}}]}
    }
    async with chat_server([json.dumps(content), json.dumps({"turn": {"answer": "It says 7."}})]) as server:
        model, recorder = create_openai_model(server.url, card=PLAIN), DeltaRecorder()
        first = await model.generate_reply(make_request("Look.", tools=[READ_SCHEMA, GREP_SCHEMA]), recorder)
        assert not recorder.list_deltas(TextDelta)
        results = tuple(ToolResultBlock(tool_use_id=use.id, content="7") for use in first.message.tool_uses)
        history = (user_message("Look."), first.message, Message(role="user", content=results))
        second = await model.generate_reply(
            make_request(*history, tools=[READ_SCHEMA, GREP_SCHEMA]), recorder
        )
        await model.aclose()
        sent = [request.body for request in server.requests]
    assert [(use.name, use.input) for use in first.message.tool_uses] == [
        ("Read", {"path": "a"}),
        ("Grep", {}),
    ]
    assert first.stop_reason == "tool_use"
    assert second.message.text == recorder.join_text(TextDelta) == "It says 7."
    assert second.stop_reason == "end_turn"
    assert all("tools" not in body and body["response_format"]["type"] == "json_schema" for body in sent)
    assert {message["role"] for message in sent[1]["messages"]} == {"system", "user", "assistant"}
    assert "Read gave:\n7" in sent[1]["messages"][-1]["content"]


async def test_without_tools_nothing_is_emulated() -> None:
    async with chat_server(["Plain."]) as server:
        model = create_openai_model(server.url, card=PLAIN)
        assert (await model.generate_reply(make_request("Hi."), ignore_stream_delta)).message.text == "Plain."
        await model.aclose()
        assert "response_format" not in server.requests[0].body


@pytest.mark.parametrize(
    "words",
    [
        "registry.ollama.ai/library/gemma3:4b does not support tools",
        "tools param requires --jinja flag",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "Function tools with reasoning_effort are not supported for gpt-7 in /v1/chat/completions.",
    ],
)
async def test_a_server_without_tool_support_is_emulated_after_its_first_error(words: str) -> None:
    def script(body: Mapping[str, Any]) -> Any:
        status = 500 if "jinja" in words else 400
        return (
            HttpErrorFault(status=status, message=words) if "tools" in body else '{"turn": {"answer": "Hi."}}'
        )

    async with chat_server(script) as server:
        model, recorder = create_openai_model(server.url), DeltaRecorder()
        replies = [
            await model.generate_reply(make_request("Hi.", tools=[READ_SCHEMA]), recorder) for _ in range(2)
        ]
        await model.aclose()
        assert server.request_count == 3
    assert [reply.message.text for reply in replies] == ["Hi.", "Hi."]
    assert len(recorder.list_deltas(ModelAttemptStartedDelta)) == 3


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('{"turn": {"answer": "Yes."}}', (TextBlock(text="Yes."),)),
        ('{"answer": "Yes."}', (TextBlock(text="Yes."),)),
        ('```json\n{"answer": "Yes."}\n```', (TextBlock(text="Yes."),)),
        ("It keeps to no form.", (TextBlock(text="It keeps to no form."),)),
        ('{"turn": {"calls": []}}', (TextBlock(text='{"turn": {"calls": []}}'),)),
        (
            '{"turn": {"calls": [{"tool": "Read", "argu',
            (TextBlock(text='{"turn": {"calls": [{"tool": "Read", "argu'),),
        ),
        ('{"calls": [{"tool": "Read"}]}', (ToolUseBlock(id="call_00000", name="Read", input={}),)),
        (
            '{"calls": [{"tool": "Read", "arguments": "a"}]}',
            (ToolUseBlock(id="call_00000", name="Read", input={MALFORMED_INPUT_KEY: '"a"'}),),
        ),
        ("", ()),
    ],
)
def test_a_reply_in_another_format_is_read_by_its_appearance(text: str, content: Any) -> None:
    assert parse_emulated_reply(make_text_reply(text), []).message.content == (
        ThinkingBlock(thinking="hm"),
        *content,
    )


def test_emulated_call_ids_differ_from_those_in_the_history() -> None:
    history = [Message(role="assistant", content=(ToolUseBlock(id="call_00001", name="Read", input={}),))]
    reply = parse_emulated_reply(make_text_reply('{"calls": [{"tool": "Read"}]}'), history)
    assert reply.message.tool_uses[0].id == "call_00002"


def test_history_is_sent_in_the_format_that_the_model_is_asked_to_use() -> None:
    history = (
        user_message("Look."),
        Message(
            role="assistant",
            content=(TextBlock(text="Sure."), ToolUseBlock(id="x", name="Read", input={"path": "a"})),
        ),
        Message(
            role="user",
            content=(ToolResultBlock(tool_use_id="x", content="gone", is_error=True), TextBlock(text="?")),
        ),
        Message(role="assistant", content=(TextBlock(text="Sorry."),)),
    )
    plain = emulate_tools_in_prompt(make_request(*history, tools=[READ_SCHEMA]))
    texts = [message.text for message in plain.messages]
    assert not plain.tools
    assert READ_SCHEMA.name in plain.system
    assert plain.system.startswith("Be brief.")
    assert texts[1] == 'Sure.\n{"turn":{"calls":[{"tool":"Read","arguments":{"path":"a"}}]}}'
    assert texts[2] == "Read failed:\ngone\n?"
    assert texts[3] == '{"turn":{"answer":"Sorry."}}'


def test_the_schema_allows_an_answer_or_calls_of_the_given_tools() -> None:
    schema = build_emulated_reply_schema([READ_SCHEMA, GREP_SCHEMA])["json_schema"]["schema"]
    assert schema["type"] == "object"
    answer, calls = schema["properties"]["turn"]["anyOf"]
    assert answer["required"] == ["answer"]
    allowed = calls["properties"]["calls"]["items"]["anyOf"]
    assert [form["properties"]["tool"]["enum"] for form in allowed] == [["Read"], ["Grep"]]
    assert allowed[0]["properties"]["arguments"] == READ_SCHEMA.input_schema
