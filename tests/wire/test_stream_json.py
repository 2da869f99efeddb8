"""The lines that programs read from and write to a headless run."""

from __future__ import annotations

import json

import pytest

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import (
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from shoal.core.events import MessageAdded
from shoal.core.ids import LEAD_ID, EntryId
from shoal.wire.json_codec import encode_json
from shoal.wire.stream_input_codec import (
    ControlRequestInputStreamLine,
    ControlResponseInputStreamLine,
    IgnoredInputStreamLine,
    InvalidInputStreamLineError,
    UserPromptInputStreamLine,
    parse_stream_input_line,
)
from shoal.wire.stream_output_codec import (
    RunResultPermissionDenial,
    RunResultSpending,
    RunResultStreamLine,
    RunResultWork,
    SessionInitStreamLine,
    build_control_cancel_request,
    build_control_error_response,
    build_control_success_response,
    build_model_usage_totals,
    build_permission_request,
    build_stream_message_line,
    encode_stream_line,
    get_result_subtype,
)


def encode_line(line: object) -> dict:
    return json.loads(encode_json(line))


def make_message_event(message: Message, **more: object) -> MessageAdded:
    return MessageAdded(agent=LEAD_ID, entry=EntryId("e-1"), message=message, **more)


def test_an_assistant_line_has_the_transcript_id_and_the_provider_metadata() -> None:
    message = Message(
        role="assistant", content=(TextBlock(text="hi"), ToolUseBlock(id="t1", name="Read", input={}))
    )
    usage = Usage(input_tokens=3, output_tokens=2, cache_read_input_tokens=1)
    line = encode_line(
        build_stream_message_line(
            make_message_event(message, model="m-1", message_id="msg_1", usage=usage, stop_reason="tool_use"),
            "s-1",
        )
    )
    assert line == {
        "type": "assistant",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m-1",
            "content": [
                {"type": "text", "text": "hi"},
                {"type": "tool_use", "id": "t1", "name": "Read", "input": {}},
            ],
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 3,
                "output_tokens": 2,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 1,
            },
        },
        "parent_tool_use_id": None,
        "session_id": "s-1",
        "uuid": "e-1",
    }


def test_thinking_always_has_a_signature() -> None:
    message = Message(
        role="assistant", content=(ThinkingBlock(thinking="hm"), RedactedThinkingBlock(data="xx"))
    )
    content = encode_line(build_stream_message_line(make_message_event(message, model="m"), "s"))["message"][
        "content"
    ]
    assert content == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "redacted_thinking", "data": "xx"},
    ]


def test_a_tool_result_is_a_user_line() -> None:
    message = Message(role="user", content=(ToolResultBlock(tool_use_id="t1", content="no", is_error=True),))
    line = encode_line(build_stream_message_line(make_message_event(message), "s-1"))
    assert line["type"] == "user"
    assert line["message"] == {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}],
    }
    assert line["parent_tool_use_id"] is None
    assert line["uuid"] == "e-1"


def test_the_init_line_has_the_documented_fields() -> None:
    init = SessionInitStreamLine(
        cwd="/p",
        session_id="s",
        tools=("Read",),
        model="m",
        permission_mode="plan",
        shoal_version="1",
        uuid="u",
    )
    line = encode_line(init)
    assert list(line)[:2] == ["type", "subtype"]
    assert (line["type"], line["subtype"], line["permissionMode"]) == ("system", "init", "plan")
    assert line["agents"] == line["mcp_servers"] == line["slash_commands"] == []
    assert line["apiKeySource"] == "none"


def test_a_result_line_has_every_field_even_if_empty() -> None:
    result = RunResultStreamLine(
        subtype="success",
        is_error=False,
        work=RunResultWork(duration_ms=5, duration_api_ms=4, num_turns=2),
        result="done",
        session_id="s",
        spending=RunResultSpending(
            total_cost_usd=None,
            usage=Usage(input_tokens=7),
            model_usage=build_model_usage_totals({"m": (Usage(input_tokens=7, output_tokens=1), 0.5)}),
        ),
        permission_denials=[
            RunResultPermissionDenial(tool_name="Bash", tool_use_id="t", tool_input={"command": "ls"})
        ],
        uuid="u",
    )
    line = json.loads(encode_stream_line(result))
    needed = (
        "type subtype is_error duration_ms duration_api_ms num_turns result stop_reason session_id "
        "total_cost_usd usage modelUsage permission_denials api_error_status errors uuid"
    )
    assert list(line) == needed.split()
    assert (line["num_turns"], line["total_cost_usd"]) == (2, None)
    assert line["modelUsage"]["m"]["costUSD"] == 0.5
    assert line["modelUsage"]["m"]["inputTokens"] == 7
    assert line["usage"]["input_tokens"] == 7
    assert line["permission_denials"] == [
        {"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "ls"}}
    ]


@pytest.mark.parametrize(
    ("reason", "subtype"),
    [
        ("done", "success"),
        ("model_error", "success"),
        ("max_turns", "error_max_turns"),
        ("budget", "error_max_budget_usd"),
        ("deadline", "error_during_execution"),
        ("interrupted", "error_during_execution"),
        ("store_error", "error_during_execution"),
    ],
)
def test_the_subtype_follows_the_reason(reason: str, subtype: str) -> None:
    assert get_result_subtype(reason) == subtype


def test_control_responses_contain_the_request_id() -> None:
    assert build_control_success_response("r1", {"a": 1}) == {
        "type": "control_response",
        "response": {"subtype": "success", "request_id": "r1", "response": {"a": 1}},
    }
    assert build_control_error_response("r2", "no")["response"] == {
        "subtype": "error",
        "request_id": "r2",
        "error": "no",
    }


def test_a_user_line_with_text_or_blocks_is_a_prompt() -> None:
    line = (
        b'{"type":"user","message":{"role":"user","content":"go"},"session_id":"","parent_tool_use_id":null}'
    )
    assert parse_stream_input_line(line) == UserPromptInputStreamLine(
        message=Message(role="user", content=(TextBlock(text="go"),)), raw={"role": "user", "content": "go"}
    )
    blocks = (
        b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":"go"},{"type":"odd"}]}}'
    )
    assert parse_stream_input_line(blocks) == UserPromptInputStreamLine(
        message=Message(role="user", content=(TextBlock(text="go"),)),
        raw={"role": "user", "content": [{"type": "text", "text": "go"}, {"type": "odd"}]},
        left_out=("odd",),
    )
    given = "5b3a5c1e-0000-4000-8000-000000000001"
    for uuid, kept in ((given, given), (given.upper(), given), ("no-uuid", ""), (5, "")):
        parsed = parse_stream_input_line(json.dumps(json.loads(line) | {"uuid": uuid}).encode())
        assert isinstance(parsed, UserPromptInputStreamLine)
        assert parsed.uuid == kept


def test_control_requests_are_distinguished_from_other_lines() -> None:
    control = parse_stream_input_line(
        b'{"type":"control_request","request_id":"r","request":{"subtype":"interrupt"}}'
    )
    assert control == ControlRequestInputStreamLine(
        id="r", subtype="interrupt", body={"subtype": "interrupt"}
    )
    assert parse_stream_input_line(b'{"type":"keep_alive"}') == IgnoredInputStreamLine(type="keep_alive")


def test_a_permission_request_and_its_responses() -> None:
    assert build_permission_request("q1", "Bash", "toolu_1", {"command": "ls"}) == {
        "type": "control_request",
        "request_id": "q1",
        "request": {
            "subtype": "can_use_tool",
            "tool_name": "Bash",
            "input": {"command": "ls"},
            "tool_use_id": "toolu_1",
        },
    }
    assert build_control_cancel_request("q1") == {"type": "control_cancel_request", "request_id": "q1"}
    yes = b'{"subtype":"success","request_id":"q1","response":{"behavior":"allow"}}'
    assert parse_stream_input_line(
        b'{"type":"control_response","response":%b}' % yes
    ) == ControlResponseInputStreamLine(id="q1", body={"behavior": "allow"})
    failed = b'{"type":"control_response","response":{"subtype":"error","request_id":"q1","error":"gone"}}'
    assert parse_stream_input_line(failed) == ControlResponseInputStreamLine(id="q1", error="gone")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{half", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[1]", "not a JSON object"),
        (b"{}", 'no "type"'),
        (b'{"type":"user"}', 'needs "message"'),
        (b'{"type":"user","message":{"content":7}}', 'needs "message"'),
        (b'{"type":"user","message":{"role":"user","content":[{"type":"odd"}]}}', "no known content"),
        (b'{"type":"user","message":{"role":"user","content":"  "}}', "no known content"),
        (b'{"type":"control_request","request_id":"r"}', 'needs "request"'),
        (b'{"type":"control_response","response":{}}', 'needs "response"'),
    ],
)
def test_an_invalid_line_is_refused_with_the_reason(line: bytes, complaint: str) -> None:
    with pytest.raises(InvalidInputStreamLineError, match=complaint):
        parse_stream_input_line(line)
