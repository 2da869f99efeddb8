"""Recording a run and playing it back."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from shoal.core.budgets.usage import ModelCard, TokenPrice, Usage
from shoal.core.conversation.messages import (
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    user_message,
)
from shoal.core.conversation.model_requests import (
    ModelAttemptStartedDelta,
    ModelRequest,
    ModelRetryScheduledDelta,
    TextDelta,
    ToolSchema,
)
from shoal.core.errors import ReplayMismatch, SettingsError, StateFileError
from shoal.models.replay_model import RecordingModel, ReplayModel
from shoal.models.scripted_model import ScriptedModel, ScriptedReply

READ = ToolSchema(name="Read", description="Reads a file.\nAll of it.", input_schema={"type": "object"})
CARD = ModelCard(id="recorded-1", provider="somewhere", window=1000, price=TokenPrice(input=1, output=2))


def make_tool_request(*texts, system="Be brief.", tools=(READ,), **more):
    return ModelRequest(system=system, tools=tools, messages=[user_message(text) for text in texts], **more)


async def record_exchanges(path, *exchanges):
    """Record (request, what the model says) pairs."""
    model = RecordingModel(ScriptedModel([said for _, said in exchanges], card=CARD), path)
    replies = [await model.generate_reply(request) for request, _ in exchanges]
    await model.aclose()
    return replies


async def get_mismatch(model, request):
    with pytest.raises(ReplayMismatch) as caught:
        await model.generate_reply(request)
    return str(caught.value)


@pytest.mark.spec("USR-30")
async def test_a_replayed_reply_is_the_recorded_one_with_its_deltas(tmp_path):
    said = (
        ThinkingBlock(thinking="Hm.", signature="s"),
        TextBlock(text="word " * 40),
        ToolUseBlock(id="t1", name="Read", input={"z": 1, "a": [None, 2.5, "é"]}),
        ToolUseBlock(id="t2", name="Read", input={}),
    )
    usage = Usage(input_tokens=3, output_tokens=4, cache_read_input_tokens=5)
    inner = ScriptedModel([ScriptedReply(content=said, usage=usage)], card=CARD)
    recording = RecordingModel(inner, tmp_path / "run.jsonl")
    heard, played = [], []

    async def collect_delta(delta):
        heard.append(delta)

    async def collect_delta_again(delta):
        played.append(delta)

    first = await recording.generate_reply(make_tool_request("hello"), collect_delta)
    replay = ReplayModel(tmp_path / "run.jsonl")
    again = await replay.generate_reply(make_tool_request("hello"), collect_delta_again)
    await recording.aclose()
    assert again == first
    assert list(again.message.tool_uses[0].input) == ["z", "a"], "the order of keys is kept"
    assert played == heard
    assert sum(isinstance(delta, TextDelta) for delta in played) > 1
    assert replay.card == recording.card == CARD


async def test_deltas_of_a_failed_attempt_are_not_replayed(tmp_path):
    class Retried:
        card = CARD

        async def generate_reply(self, request, on_delta):
            inner = ScriptedModel(["Whole answer."], card=CARD)
            await on_delta(ModelAttemptStartedDelta())
            await on_delta(TextDelta("Who"))
            await on_delta(ModelRetryScheduledDelta(reason="cut", delay=0, attempt=1, billed=True))
            return await inner.generate_reply(request, on_delta)

        async def aclose(self): ...

    recording = RecordingModel(Retried(), tmp_path / "run.jsonl")
    await recording.generate_reply(make_tool_request("hello"))
    await recording.aclose()
    played = []

    async def collect_delta(delta):
        played.append(delta)

    await ReplayModel(tmp_path / "run.jsonl").generate_reply(make_tool_request("hello"), collect_delta)
    assert played == [ModelAttemptStartedDelta(), TextDelta("Whole answer.")]


async def test_requests_are_matched_by_content_in_any_order(tmp_path):
    path = tmp_path / "run.jsonl"
    await record_exchanges(
        path,
        (make_tool_request("a"), "for a"),
        (make_tool_request("b"), "for b"),
        (make_tool_request("a", "a2"), "for a2"),
    )
    replay = ReplayModel(path)
    said = [
        (await replay.generate_reply(make_tool_request(*texts))).message.text
        for texts in [("b",), ("a",), ("a", "a2")]
    ]
    assert said == ["for b", "for a", "for a2"]


async def test_equal_requests_get_their_replies_in_the_order_recorded(tmp_path):
    path = tmp_path / "run.jsonl"
    await record_exchanges(path, *[(make_tool_request("same"), f"reply {number}") for number in range(3)])
    replay = ReplayModel(path)
    replies = await asyncio.gather(*[replay.generate_reply(make_tool_request("same")) for _ in range(3)])
    assert [reply.message.text for reply in replies] == ["reply 0", "reply 1", "reply 2"]


async def test_each_parallel_exchange_is_one_complete_line(tmp_path):
    path = tmp_path / "run.jsonl"
    meet = asyncio.Barrier(8)

    class Slow(ScriptedModel):
        async def generate_reply(self, request, on_delta):
            await meet.wait()
            return await super().generate_reply(request, on_delta)

    model = RecordingModel(Slow(lambda request: request.messages[0].text * 1000), path)
    await asyncio.gather(*[model.generate_reply(make_tool_request(f"agent {number}")) for number in range(8)])
    await model.aclose()
    replay = ReplayModel(path)
    for number in range(8):
        reply = await replay.generate_reply(make_tool_request(f"agent {number}"))
        assert reply.message.text == f"agent {number}" * 1000


async def test_a_recorded_request_does_not_contain_messages_added_later(tmp_path):
    path = tmp_path / "run.jsonl"
    messages = [user_message("hello")]
    request = ModelRequest(system="", messages=messages)

    def script(_request):
        messages.append(user_message("more"))
        return "said"

    model = RecordingModel(ScriptedModel(script), path)
    await model.generate_reply(request)
    await model.aclose()
    asked = ModelRequest(system="", messages=[user_message("hello")])
    assert (await ReplayModel(path).generate_reply(asked)).message.text == "said"


async def test_an_exhausted_recording_raises_an_error_that_says_so(tmp_path):
    path = tmp_path / "run.jsonl"
    await record_exchanges(path, (make_tool_request("a"), "x"), (make_tool_request("b"), "y"))
    replay = ReplayModel(path)
    await replay.generate_reply(make_tool_request("a"))
    assert "has no more replies to this request" in await get_mismatch(replay, make_tool_request("a"))
    await replay.generate_reply(make_tool_request("b"))
    text = await get_mismatch(replay, make_tool_request("c"))
    assert "no more replies: all 2 were used" in text
    assert str(path) in text


@pytest.mark.spec("USR-30")
async def test_a_changed_system_prompt_is_shown_as_a_diff(tmp_path):
    path = tmp_path / "run.jsonl"
    await record_exchanges(path, (make_tool_request("a", system="One.\nTwo.\nThree."), "x"))
    text = await get_mismatch(ReplayModel(path), make_tool_request("a", system="One.\n2.\nThree."))
    assert "the system prompt differs:" in text
    assert "-Two." in text
    assert "+2." in text
    assert "message 1" not in text


async def test_a_changed_message_is_named_by_its_number(tmp_path):
    path = tmp_path / "run.jsonl"
    call = Message(
        role="assistant", content=(ToolUseBlock(id="t", name="Read", input={"file_path": "a.py"}),)
    )

    def make_request_with_result(result):
        answer = Message(role="user", content=(ToolResultBlock(tool_use_id="t", content=result),))
        return ModelRequest(system="", messages=[user_message("go"), call, answer])

    long = "x" * 5_000
    await record_exchanges(
        path, (make_tool_request("other"), "o"), (make_request_with_result(f"3 passed\n{long}A{long}"), "x")
    )
    text = await get_mismatch(ReplayModel(path), make_request_with_result(f"3 passed\n{long}B{long}"))
    assert "message 3 (user) differs:" in text
    assert any(line.startswith("+") and "B" in line for line in text.splitlines())
    assert any(line.startswith("-") and "A" in line for line in text.splitlines())


async def test_more_messages_than_recorded_are_shown(tmp_path):
    path = tmp_path / "run.jsonl"
    await record_exchanges(path, (make_tool_request("a"), "x"))
    text = await get_mismatch(ReplayModel(path), make_tool_request("a", "b"))
    assert "the recorded request has 1 messages, this one has 2" in text
    assert "+b" in text


@pytest.mark.spec("USR-30")
async def test_changed_tools_and_settings_are_named(tmp_path):
    path = tmp_path / "run.jsonl"
    bash = ToolSchema(name="Bash", description="Runs.", input_schema={})
    grep = ToolSchema(name="Grep", description="Finds.", input_schema={})
    changed = ToolSchema(name="Read", description="Reads a file.\nA part of it.", input_schema={})
    await record_exchanges(path, (make_tool_request("a", tools=(READ, bash)), "x"))
    text = await get_mismatch(ReplayModel(path), make_tool_request("a", tools=(changed, grep), max_tokens=5))
    assert "tools that were removed: Bash" in text
    assert "tools that were added: Grep" in text
    assert "the tool Read differs:" in text
    assert "max_tokens differs: recorded None, requested 5" in text
    text = await get_mismatch(ReplayModel(path), make_tool_request("a", tools=(bash, READ)))
    assert "the tools are in a different order" in text


async def test_a_reported_difference_is_bounded(tmp_path):
    path = tmp_path / "run.jsonl"
    await record_exchanges(path, (make_tool_request("\n".join(f"old {n}" for n in range(500))), "x"))
    text = await get_mismatch(ReplayModel(path), make_tool_request("\n".join(f"new {n}" for n in range(500))))
    assert len(text.splitlines()) <= 43
    assert text.endswith("… and more")


async def test_a_broken_recording_line_is_named_by_its_number(tmp_path):
    path = tmp_path / "run.jsonl"
    await record_exchanges(path, (make_tool_request("a"), "x"), (make_tool_request("b"), "y"))
    torn = path.read_bytes()[:-20]
    path.write_bytes(torn)
    with pytest.raises(SettingsError, match=r"Line 2 of the recording .*run\.jsonl is not valid") as caught:
        ReplayModel(path)
    assert caught.value.line == 2
    path.write_bytes(b"\xff\xfe\n" + torn)
    with pytest.raises(SettingsError, match="Line 1 of"):
        ReplayModel(path)


async def test_a_missing_or_empty_recording_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"Cannot read .*none\.jsonl: No such file"):
        ReplayModel(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(SettingsError, match="is empty"):
        ReplayModel(tmp_path / "empty.jsonl")


async def test_a_recording_that_cannot_be_written_is_a_store_error(tmp_path):
    with pytest.raises(StateFileError, match=r"Cannot write .*: Is a directory"):
        RecordingModel(ScriptedModel([]), tmp_path)
    model = RecordingModel(ScriptedModel(["x"]), Path("/dev/full"))
    with pytest.raises(StateFileError, match="No space left"):
        await model.generate_reply(make_tool_request("a"))
    await model.aclose()


async def test_a_recording_is_private_and_grows(tmp_path):
    path = tmp_path / "run.jsonl"
    await record_exchanges(path, (make_tool_request("a"), "x"))
    await record_exchanges(path, (make_tool_request("b"), "y"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (await ReplayModel(path).generate_reply(make_tool_request("b"))).message.text == "y"
