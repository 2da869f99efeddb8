from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import (
    Base64ImageSource,
    ImageBlock,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    user_message,
)
from shoal.core.conversation.transcript_entries import (
    ModelReplyMetadata,
    TranscriptCompactionMarker,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.ids import AgentId, EntryId, RequestId, SessionId
from shoal.wire.transcript_codec import (
    TranscriptEncoder,
    TranscriptTitleEntry,
    UnknownTranscriptEntry,
    parse_transcript_line,
)

AT = 1_700_000_000_123
LINES = TranscriptEncoder(session=SessionId("s-1"), cwd='/work dir/"q"', version="0.1.0", git_branch="main")

# Halves of surrogate pairs are what Python makes of file names that are not UTF-8.
texts = st.text(max_size=40) | st.sampled_from(["\ud800", "caf\udce9.txt", "\0", "\u2028"])
ids = st.text(st.characters(codec="ascii"), min_size=1, max_size=12)
pictures = st.builds(
    ImageBlock, source=st.builds(Base64ImageSource, media_type=st.just("image/png"), data=ids)
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
blocks = st.one_of(
    st.builds(TextBlock, text=texts),
    st.builds(ThinkingBlock, thinking=texts, signature=ids),
    st.builds(RedactedThinkingBlock, data=ids),
    pictures,
    st.builds(ToolUseBlock, id=ids, name=ids, input=st.dictionaries(texts, json_values, max_size=3)),
    st.builds(
        ToolResultBlock,
        tool_use_id=ids,
        content=texts | st.lists(st.builds(TextBlock, text=texts) | pictures, max_size=2).map(tuple),
        is_error=st.booleans(),
    ),
)
counts = st.integers(0, 10**9)
billings = st.builds(
    ModelReplyMetadata,
    message_id=ids,
    model=ids,
    stop_reason=ids,
    usage=st.builds(
        Usage,
        input_tokens=counts,
        output_tokens=counts,
        cache_creation_input_tokens=counts,
        cache_read_input_tokens=counts,
    ),
    request=st.none() | ids.map(RequestId),
)
contents = st.lists(blocks, max_size=4).map(tuple)
times = st.integers(0, 4_000_000_000_000)
entries = st.one_of(
    st.builds(
        TranscriptMessageEntry,
        id=ids,
        parent=st.none() | ids,
        at=times,
        message=st.builds(Message, role=st.just("user"), content=contents),
        meta=st.booleans(),
        summary=st.booleans(),
    ),
    st.builds(
        TranscriptMessageEntry,
        id=ids,
        parent=st.none() | ids,
        at=times,
        message=st.builds(Message, role=st.just("assistant"), content=contents),
        billing=st.none() | billings,
    ),
    st.builds(
        TranscriptCompactionMarker,
        id=ids,
        before=st.none() | ids,
        at=times,
        trigger=ids,
        tokens_before=counts,
    ),
    st.builds(TranscriptRewindMarker, id=ids, parent=st.none() | ids, at=times, turn=counts),
)


@given(entries)
def test_a_written_entry_reads_back_unchanged(entry):
    line = LINES.encode_entry(entry)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    read = parse_transcript_line(line)
    assert read.entry == entry
    assert read.left_out == ()


@pytest.mark.spec("HOM-02")
def test_a_line_has_the_keys_that_other_programs_read():
    reply = TranscriptMessageEntry(
        id=EntryId("e-2"),
        parent=EntryId("e-1"),
        at=AT,
        message=Message(role="assistant", content=(TextBlock(text="hé"),)),
        billing=ModelReplyMetadata(
            message_id="msg_1",
            model="m",
            stop_reason="end_turn",
            usage=Usage(input_tokens=3, output_tokens=4),
            request=RequestId("req-1"),
        ),
    )
    assert json.loads(LINES.encode_entry(reply)) == {
        "parentUuid": "e-1",
        "isSidechain": False,
        "userType": "external",
        "cwd": '/work dir/"q"',
        "sessionId": "s-1",
        "version": "0.1.0",
        "gitBranch": "main",
        "type": "assistant",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": "hé"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 3,
                "output_tokens": 4,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        },
        "requestId": "req-1",
        "uuid": "e-2",
        "timestamp": "2023-11-14T22:13:20.123Z",
    }
    prompt = TranscriptMessageEntry(
        id=EntryId("e-1"), parent=None, at=AT, message=user_message("hi"), meta=True, summary=True
    )
    raw = json.loads(LINES.encode_entry(prompt))
    assert raw["parentUuid"] is None
    assert (raw["type"], raw["isMeta"], raw["isCompactSummary"]) == ("user", True, True)
    assert raw["message"] == {"role": "user", "content": [{"type": "text", "text": "hi"}]}


def test_a_compaction_and_a_rewind_are_system_lines():
    compacted = TranscriptCompactionMarker(
        id=EntryId("e-3"), before=EntryId("e-2"), at=AT, trigger="manual", tokens_before=9000
    )
    raw = json.loads(LINES.encode_entry(compacted))
    assert (raw["type"], raw["subtype"]) == ("system", "compact_boundary")
    assert (raw["parentUuid"], raw["logicalParentUuid"]) == (None, "e-2")
    assert raw["content"] == "Conversation compacted"
    assert raw["compactMetadata"] == {"trigger": "manual", "preTokens": 9000}
    raw = json.loads(
        LINES.encode_entry(TranscriptRewindMarker(id=EntryId("e-4"), parent=EntryId("e-1"), at=AT, turn=2))
    )
    assert (raw["subtype"], raw["parentUuid"], raw["turn"]) == ("shoal_rewind", "e-1", 2)


def test_lines_of_a_sub_agent_have_its_agent_id():
    lines = TranscriptEncoder(session=SessionId("s"), cwd="/", version="0", agent=AgentId("a1"))
    line = lines.encode_entry(
        TranscriptMessageEntry(id=EntryId("e"), parent=None, at=AT, message=user_message("hi"))
    )
    raw = json.loads(line)
    assert (raw["isSidechain"], raw["agentId"]) == (True, "a1")
    assert "gitBranch" not in raw
    assert parse_transcript_line(line).agent == "a1"


FOREIGN = {"uuid": "e", "parentUuid": "d", "timestamp": "2026-01-01T00:00:00.000Z", "sessionId": "s"}


def test_known_fields_of_a_foreign_line_are_read():
    content = [
        {"type": "text", "text": "hello", "citations": None},
        {"type": "hologram", "data": 1},
        {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": [{"type": "text", "text": "a"}, {"type": "pdf"}],
        },
    ]
    line = {**FOREIGN, "type": "user", "message": {"role": "user", "content": content}, "new": {"x": 1}}
    read = parse_transcript_line(json.dumps(line).encode())
    assert isinstance(read.entry, TranscriptMessageEntry)
    assert read.left_out == ("hologram", "tool_result")
    assert read.entry.message.content == (
        TextBlock(text="hello"),
        ToolResultBlock(tool_use_id="t", content=(TextBlock(text="a"), TextBlock(text="[pdf]"))),
    )
    line = {**FOREIGN, "type": "user", "message": {"role": "user", "content": "plain"}}
    assert parse_transcript_line(json.dumps(line).encode()).entry.message == user_message("plain")


@pytest.mark.parametrize(
    "line",
    [
        {**FOREIGN, "type": "progress"},
        {**FOREIGN, "type": "system", "subtype": "local_command", "content": "x"},
        {**FOREIGN, "type": "user", "message": "no object"},
        {**FOREIGN, "type": "user", "message": {"role": "assistant", "content": []}},
        {**FOREIGN, "type": "user", "message": {"role": "user", "content": []}, "timestamp": "never"},
        {**FOREIGN, "type": "assistant", "message": {"role": "assistant", "content": 5}},
        {**FOREIGN, "type": 7},
    ],
)
def test_an_unknown_line_stays_in_the_parent_chain(line):
    entry = parse_transcript_line(json.dumps(line).encode()).entry
    assert isinstance(entry, UnknownTranscriptEntry)
    assert (entry.id, entry.parent) == ("e", "d")


def test_a_summary_line_is_a_title():
    assert parse_transcript_line(
        b'{"type":"summary","summary":"Fix it","leafUuid":"e"}'
    ).entry == TranscriptTitleEntry(text="Fix it")


@pytest.mark.parametrize("line", [b"", b"nonsense", b"[1]", b"\xff\xfe", b'{"a":', b"[" * 100_000])
def test_a_line_that_is_not_a_json_object_raises_a_value_error(line):
    with pytest.raises(ValueError):  # noqa: PT011 - the callers count, they do not look at the text
        parse_transcript_line(line)


def test_encoding_a_line_is_fast():
    message = Message(
        role="assistant",
        content=(TextBlock(text="word " * 40), ToolUseBlock(id="t", name="Bash", input={"command": "ls"})),
    )
    billing = ModelReplyMetadata(
        message_id="m", model="m", stop_reason="tool_use", usage=Usage(), request=RequestId("r")
    )
    entry = TranscriptMessageEntry(
        id=EntryId("a" * 36), parent=EntryId("b" * 36), at=AT, message=message, billing=billing
    )
    best = float("inf")
    for _ in range(20):
        start = time.process_time()
        for _ in range(500):
            LINES.encode_entry(entry)
        best = min(best, (time.process_time() - start) / 500)
    assert best < 20e-6  # about 3 µs on a quiet machine
