"""The model whose replies are written down."""

from __future__ import annotations

import asyncio
import itertools
import json
import time

import pytest
from model_helpers import make_request

from shoal.core.budgets.usage import Usage
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
    ModelReply,
    ModelRequest,
    StreamDelta,
    TextDelta,
    ThinkingDelta,
    ToolInputProgressDelta,
    ToolSchema,
)
from shoal.core.errors import ModelError, RateLimited, SettingsError
from shoal.models.scripted_model import ScriptedModel, ScriptedReply
from shoal.testing import FakeClock

READ = ToolUseBlock(id="", name="Read", input={"file_path": "a.py"})


async def collect_reply(model: ScriptedModel, request: ModelRequest) -> tuple[ModelReply, list[StreamDelta]]:
    deltas: list[StreamDelta] = []

    async def collect_delta(delta: StreamDelta) -> None:
        deltas.append(delta)

    return await model.generate_reply(request, collect_delta), deltas


async def test_replies_of_every_form_come_in_order():
    blocks = Message(role="assistant", content=(ThinkingBlock(thinking="Hm."), TextBlock(text="three")))
    usage = Usage(input_tokens=1, output_tokens=2)
    whole = ModelReply(message=blocks, usage=usage, stop_reason="max_tokens", model="other")
    line = ScriptedReply(content=(TextBlock(text="four"),), usage=usage, stop_reason="refusal")
    model = ScriptedModel(["one", ["two", READ], blocks, whole, line, READ])
    replies = [await model.generate_reply(make_request("?")) for _ in range(6)]
    assert [reply.message.text for reply in replies] == ["one", "two", "three", "three", "four", ""]
    stops = ["end_turn", "tool_use", "end_turn", "max_tokens", "refusal", "tool_use"]
    assert [reply.stop_reason for reply in replies] == stops
    assert replies[3].usage == replies[4].usage == usage
    assert {reply.model for reply in replies} == {"scripted"}
    assert len({reply.id for reply in replies}) == 6


async def test_a_function_sees_the_request():
    model = ScriptedModel(lambda request: f"You said {request.messages[-1].text}")
    assert (await model.generate_reply(make_request("hello"))).message.text == "You said hello"


async def test_scripted_calls_without_an_id_get_unique_ids():
    model = ScriptedModel([[READ, READ], READ, ToolUseBlock(id="mine", name="Read", input={})])
    replies = [await model.generate_reply(make_request("?")) for _ in range(3)]
    ids = [call.id for reply in replies for call in reply.message.tool_uses]
    assert len(set(ids)) == 4
    assert ids[-1] == "mine"


async def test_an_exhausted_script_raises_an_error_with_the_request():
    model = ScriptedModel(["only"])
    await model.generate_reply(make_request("first"))
    with pytest.raises(ModelError, match=r"All 1 scripted replies were used;.*'second question'"):
        await model.generate_reply(make_request("second question"))


async def test_a_scripted_error_is_raised_after_the_request_started():
    model = ScriptedModel([RateLimited("slow down", retry_after=1), "then"])
    deltas = []

    async def collect_delta(delta: StreamDelta) -> None:
        deltas.append(delta)

    with pytest.raises(RateLimited):
        await model.generate_reply(make_request("?"), collect_delta)
    assert deltas == [ModelAttemptStartedDelta()]
    assert (await model.generate_reply(make_request("?"))).message.text == "then"


async def test_streamed_deltas_add_up_to_the_reply():
    text = "  Two spaces first,\nthen  " + "many words " * 20
    said = (ThinkingBlock(thinking="Let me see."), TextBlock(text=text), TextBlock(text=" "), READ)
    for pace in (0.0, 1e-9):
        reply, deltas = await collect_reply(ScriptedModel([said], pace=pace), make_request("?"))
        assert deltas[0] == ModelAttemptStartedDelta()
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == text + " "
        assert "".join(d.text for d in deltas if isinstance(d, ThinkingDelta)) == "Let me see."
        assert [d.name for d in deltas if isinstance(d, ToolInputProgressDelta)] == ["Read"]
        assert reply.message.content[1].text == text


async def test_a_pace_streams_word_by_word_by_the_clock():
    clock = FakeClock()
    model = ScriptedModel(
        [ScriptedReply(content=(TextBlock(text="one two three"),), delay=5)], clock=clock, pace=1
    )
    words = []

    async def collect_delta(delta: StreamDelta) -> None:
        if isinstance(delta, TextDelta):
            words.append((clock.monotonic(), delta.text))

    async with asyncio.TaskGroup() as tasks:
        reply = tasks.create_task(model.generate_reply(make_request("?"), collect_delta))
        await clock.advance(7)
        assert words == [(6, "one "), (7, "two ")]
        assert not reply.done()
        await clock.advance(1)
    assert words[-1] == (8, "three")


async def test_without_a_pace_a_reply_does_not_wait():
    coroutine = ScriptedModel([["text", READ]]).generate_reply(make_request("?"))
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    assert ended.value.value.message.text == "text"


async def test_scripted_usage_is_deterministic_and_grows_with_the_conversation():
    tools = [ToolSchema(name="Read", description="Reads a file.", input_schema={"type": "object"})]
    messages = [user_message("hello " * 10)]

    async def sizes(model: ScriptedModel) -> list[Usage]:
        conversation = list(messages)
        usages = []
        for _ in range(5):
            request = ModelRequest(system="Be brief.", messages=conversation, tools=tools)
            reply = await model.generate_reply(request)
            usages.append(reply.usage)
            conversation += [reply.message, user_message("go on")]
        return usages

    once = await sizes(ScriptedModel(lambda _: "x" * 400))
    many = ScriptedModel(lambda _: "x" * 400)
    assert await sizes(many) == once
    assert await sizes(many) == once, "a conversation with the same beginning is counted anew"
    assert [usage.output_tokens for usage in once] == [100] * 5
    prompts = [usage.input_tokens for usage in once]
    assert all(later - earlier >= 100 for earlier, later in itertools.pairwise(prompts))


async def test_a_scripted_reply_takes_as_long_in_a_long_conversation_as_in_a_short_one():
    model = ScriptedModel(lambda _: ("I read it.", READ))
    times: dict[int, list[float]] = {10: [], 5_000: []}
    requests = {
        count: ModelRequest(system=f"s{count}", messages=[user_message("x" * 100) for _ in range(count)])
        for count in times
    }
    for count, request in [*requests.items()] * 8:
        # The first reply counts the whole conversation.
        await model.generate_reply(request)
        started = time.thread_time()
        for _ in range(100):
            await model.generate_reply(request)
        times[count].append(time.thread_time() - started)
    assert min(times[5_000]) < 8 * min(times[10]), "counting all 5,000 again takes a hundred times as long"


@pytest.mark.parametrize("name", ["script.json", "script.toml"])
async def test_a_script_file_answers_matching_requests(tmp_path, name):
    script = tmp_path / name
    if name.endswith(".json"):
        steps = [
            {"match": "fix", "text": "I look.", "tools": [{"name": "Read", "input": {"file_path": "a"}}]},
            {"pattern": r"\b1 failed", "thinking": "One left.", "text": "Again."},
            {"system": "reviewer", "text": "Looks good.", "repeat": True},
            {"at": 2, "text": "Third answer."},
        ]
        script.write_text(json.dumps(steps))
    else:
        script.write_text(
            '[[steps]]\nmatch = "fix"\ntext = "I look."\n[[steps.tools]]\nname = "Read"\n'
            'input = { file_path = "a" }\n'
            '[[steps]]\npattern = \'\\b1 failed\'\nthinking = "One left."\ntext = "Again."\n'
            '[[steps]]\nsystem = "reviewer"\ntext = "Looks good."\nrepeat = true\n'
            '[[steps]]\nat = 2\ntext = "Third answer."\n'
        )
    model = ScriptedModel.from_file(script)
    review = make_request("anything", system="You are a reviewer.")
    assert (await model.generate_reply(review)).message.text == "Looks good."
    first = await model.generate_reply(make_request("please fix it"))
    assert first.message.tool_uses[0].input == {"file_path": "a"}
    result = ToolResultBlock(tool_use_id=first.message.tool_uses[0].id, content="1 failed, 2 passed")
    answered = Message(role="user", content=(result,))
    second = await model.generate_reply(
        ModelRequest(system="", messages=[user_message("fix"), first.message, answered])
    )
    assert second.message.content[0] == ThinkingBlock(thinking="One left.", signature="scripted")
    history = [user_message("a"), first.message, answered, second.message, user_message("b")]
    third = await model.generate_reply(ModelRequest(system="", messages=history))
    assert third.message.text == "Third answer."
    assert (await model.generate_reply(review)).message.text == "Looks good."
    with pytest.raises(ModelError, match=rf"{name} matches the request.*'please fix it'"):
        await model.generate_reply(make_request("please fix it"))


async def test_a_script_rule_may_match_messages_since_the_last_answer(tmp_path):
    script = tmp_path / "script.json"
    step = {
        "pattern": r"request (?P<number>\w+)",
        "text": "About {{number}} and {{nothing}}.",
        "tools": [{"name": "Send", "input": {"to": ["x"], "message": {"id": "{{number}}", "approve": True}}}],
    }
    script.write_text(json.dumps([step]))
    said = Message(role="assistant", content=(TextBlock(text="Yes?"),))
    messages = [
        user_message("request old"),
        said,
        user_message("request 7f, please"),
        user_message("and hurry"),
    ]
    reply = await ScriptedModel.from_file(script).generate_reply(ModelRequest(system="", messages=messages))
    assert reply.message.text == "About 7f and {{nothing}}."
    assert reply.message.tool_uses[0].input == {"to": ["x"], "message": {"id": "7f", "approve": True}}


async def test_a_script_may_have_a_pace_and_a_price(tmp_path):
    script = tmp_path / "script.toml"
    manner = "pace = 0.5\nprice = { input = 3.0, output = 15.0 }\n"
    script.write_text(manner + '[[steps]]\ntext = "three short words"\n')
    clock = FakeClock()
    model = ScriptedModel.from_file(script, clock=clock)
    assert (model.card.price.input, model.card.price.output) == (3.0, 15.0)
    async with asyncio.TaskGroup() as group:
        saying = group.create_task(model.generate_reply(make_request("go")))
        await clock.advance(1.4)
        assert not saying.done()
        await clock.advance(0.2)
    assert saying.result().message.text == "three short words"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[{", "not valid"),
        ('[{"text": 3}]', "text"),
        ('[{"txt": "x"}]', "txt"),
        ('{"lines": []}', "steps"),
        ('[{"pattern": "("}]', "not valid"),
    ],
)
def test_an_invalid_script_is_named_in_the_error(tmp_path, content, said):
    script = tmp_path / "script.json"
    script.write_text(content)
    with pytest.raises(SettingsError, match=said) as caught:
        ScriptedModel.from_file(script)
    assert caught.value.path == script
    assert str(script) in str(caught.value)


def test_a_missing_script_is_named_in_the_error(tmp_path):
    with pytest.raises(SettingsError, match="Cannot read"):
        ScriptedModel.from_file(tmp_path / "none.json")


def test_a_single_text_is_refused_as_a_script():
    with pytest.raises(TypeError, match="in a list"):
        ScriptedModel("hello")
