"""The loop: what it asks, what it runs, and how it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rig import HeldTranscript, Judge, Person, Rig, rig

from shoal.agent.agent import Bounds
from shoal.agent.calls import preview
from shoal.agent.conversation import Conversation
from shoal.agent.loop import run
from shoal.backends.sandbox.choosing import ChosenSandbox, Wish
from shoal.core.caps import Limits
from shoal.core.decisions import Ask, Deny
from shoal.core.errors import BudgetError, StoreError
from shoal.core.events import (
    PREVIEW,
    Discarded,
    Heard,
    MessageAdded,
    PermissionDenied,
    RequestFailed,
    RequestSent,
    RequestSettled,
    ToolFinished,
    ToolProgress,
    ToolReturned,
    ToolStarted,
)
from shoal.core.identity import current_identity
from shoal.core.ids import LEAD
from shoal.core.messages import MALFORMED, Message, Text, ToolResult, ToolUse, result_text
from shoal.core.questions import Allowed, Denied
from shoal.core.requests import Hear, Reply, Request, Retrying, Sent, TextDelta
from shoal.core.sandbox import Confines
from shoal.core.tools import Site
from shoal.core.usage import ModelCard, Price, Usage
from shoal.models.scripted import CARD, Line, ScriptedModel
from shoal.testing import FakeClock
from shoal.tools.askuser import ask_tools
from shoal.tools.define import tool
from shoal.wire.journal import journal_line


def call(tool_name: str, call_id: str = "c1", **arguments: Any) -> ToolUse:
    return ToolUse(id=call_id, name=tool_name, input=arguments)


@tool(reads_only=True)
async def echo(text: str) -> str:
    """Say it back."""
    return f"echo: {text}"


def results_of(made: Rig) -> list[ToolResult]:
    return [
        block
        for message in made.agent.conversation.messages
        for block in message.content
        if isinstance(block, ToolResult)
    ]


@pytest.mark.spec("RUN-01")
async def test_the_model_is_asked_again_until_it_makes_no_calls() -> None:
    made = rig([call("echo", text="a"), call("echo", "c2", text="b"), "done"], tools=[echo])
    ended = await made.run("please")
    assert (ended.reason, ended.text, ended.requests) == ("done", "done", 3)
    assert [result_text(r) for r in results_of(made)] == ["echo: a", "echo: b"]
    assert [m.role for m in made.agent.conversation.messages] == ["user", "assistant"] * 3
    assert [type(e) for e in made.heard if isinstance(e, (ToolStarted, ToolFinished))] == [
        ToolStarted,
        ToolFinished,
    ] * 2


async def test_tools_reach_what_the_agent_was_given_and_its_own_sandbox_too() -> None:
    seen: list[Site] = []

    @tool(reads_only=True)
    async def look(site: Site) -> str:
        """Look around."""
        seen.append(site)
        return "seen"

    made = rig([call("look"), "done"], tools=[look])
    own = ChosenSandbox(Wish(), confines=lambda: Confines(writable=()), kinds=(), note=print)
    made.agent.surroundings = msgspec.structs.replace(made.agent.surroundings, sandbox=own)
    await made.run()
    (site,) = seen
    assert site.sandbox is own
    assert site.workspace is made.agent.surroundings.workspace


@pytest.mark.spec("RUN-02")
async def test_reads_of_one_message_run_side_by_side() -> None:
    meet = asyncio.Barrier(3)

    @tool(reads_only=True, deadline=5)
    async def look(n: int) -> str:
        await meet.wait()  # none goes on before all three are here
        return str(n)

    made = rig([[call("look", f"c{n}", n=n) for n in range(3)], "done"], tools=[look])
    await made.run()
    assert [result_text(r) for r in results_of(made)] == ["0", "1", "2"]


@pytest.mark.spec("RUN-02")
async def test_writes_run_one_after_another_between_the_reads_before_and_after_them() -> None:
    log: list[str] = []

    @tool(reads_only=True)
    async def look(n: int) -> str:
        log.append(f"look {n}")
        await asyncio.sleep(0)
        log.append(f"looked {n}")
        return ""

    @tool
    async def change(n: int) -> str:
        log.append(f"change {n}")
        await asyncio.sleep(0)
        log.append(f"changed {n}")
        return ""

    calls = [
        call("look", "a", n=1),
        call("look", "b", n=2),
        call("change", "c", n=3),
        call("change", "d", n=4),
        call("look", "e", n=5),
    ]
    await rig([calls, "done"], tools=[look, change]).run()
    assert log[:4] == ["look 1", "look 2", "looked 1", "looked 2"]
    assert log[4:8] == ["change 3", "changed 3", "change 4", "changed 4"]
    assert log[8:] == ["look 5", "looked 5"], "a read sees what was written before it"


@pytest.mark.spec("USR-30")
async def test_the_record_does_not_depend_on_which_read_was_faster() -> None:
    async def record(*, slow: int) -> bytes:
        gates = [asyncio.Event(), asyncio.Event()]

        @tool(reads_only=True)
        async def look(n: int) -> str:
            if n == slow:
                await gates[1 - n].wait()
            gates[n].set()
            return f"seen {n}"

        made = rig(
            [[call("look", "a", n=0), call("look", "b", n=1)], "done"], tools=[look], clock=FakeClock()
        )
        await made.run()
        lines = (journal_line(e, t) for e, t in zip(made.journal.events, made.journal.times, strict=True))
        return b"".join(lines) + msgspec.json.encode(made.transcript.entries)

    assert await record(slow=0) == await record(slow=1)


@pytest.mark.spec("USR-30")
async def test_another_seed_gives_other_ids_and_another_prompt_another_record() -> None:
    async def record(seed: int, prompt: str) -> bytes:
        made = rig(["done"], seed=seed, clock=FakeClock())
        await made.run(prompt)
        return msgspec.json.encode(made.transcript.entries)

    assert await record(1, "a") == await record(1, "a")
    assert await record(1, "a") != await record(2, "a")
    assert await record(1, "a") != await record(1, "b")


async def test_what_arrives_while_tools_run_is_given_at_the_next_boundary() -> None:
    steered: list[Rig] = []

    @tool
    async def work() -> str:
        steered[0].steer("use tabs instead")
        return "worked"

    seen: list[Message] = []

    def mind(request: Request) -> Any:
        seen.append(request.messages[-1])
        return call("work") if len(seen) == 1 else "done"

    made = rig(mind, tools=[work])
    steered.append(made)
    await made.run()
    last = seen[1]
    assert [type(b) for b in last.content] == [ToolResult, Text]
    assert last.text == "use tabs instead"


async def test_what_arrives_at_the_end_of_a_turn_is_answered_in_the_same_turn() -> None:
    def mind(request: Request) -> str:
        if "second" in request.messages[-1].text:
            return "answered both"
        made.steer("a second thing")
        return "answered one"

    made = rig(mind)
    ended = await made.run()
    assert ended.requests == 2
    assert ended.text == "answered both"


async def test_the_turn_limit_ends_the_loop_with_a_reason() -> None:
    made = rig(lambda _: call("echo", text="again"), tools=[echo], bounds=Bounds(max_turns=3))
    ended = await made.run()
    assert (ended.reason, ended.requests) == ("max_turns", 3)
    assert "3 requests" in ended.detail


PRICED = ModelCard(id="dear", provider="x", price=Price(input=1_000_000, output=0), window=10**9)


@pytest.mark.spec("RUN-01")
async def test_a_spent_budget_stops_the_next_request() -> None:
    line = Line(content=(call("echo", text="x"),), usage=Usage(input_tokens=1))
    made = rig(
        None,
        model=ScriptedModel(lambda _: line, card=PRICED),
        tools=[echo],
        limits=Limits(max_usd=2.5),
    )
    ended = await made.run()
    assert ended.reason == "budget"
    assert made.agent.purse.usd == 3.0  # the request that passed it was the last
    assert "$2.5" in ended.detail


@pytest.mark.spec("USR-19")
def test_a_budget_in_dollars_with_a_model_of_unknown_price_is_refused() -> None:
    unpriced = ModelCard(id="stranger", provider="x")
    with pytest.raises(BudgetError, match="price of stranger is not known"):
        rig(None, model=ScriptedModel([], card=unpriced), limits=Limits(max_usd=1))


async def test_a_cut_answer_is_asked_to_go_on_and_joined() -> None:
    made = rig([Line(content=(Text(text="first "),), stop_reason="max_tokens"), "second"])
    ended = await made.run()
    assert ended.text == "first second"
    assert ended.requests == 2


async def test_an_empty_answer_ends_the_turn_and_leaves_a_valid_history() -> None:
    made = rig([Line(content=()), "here"])
    assert (await made.run("one")).text == ""
    assert (await made.run("two")).text == "here"
    assert [m.role for m in made.agent.conversation.messages] == ["user", "assistant"]


async def test_an_unknown_tool_is_a_result_that_names_the_known_ones() -> None:
    made = rig([call("ecko", text="x"), "done"], tools=[echo])
    await made.run()
    (result,) = results_of(made)
    assert result.is_error
    assert "Did you mean echo?" in result_text(result)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"command": "make", "description": "Build it"}, "make"),
        ({"subject": "Fix it", "description": "All of it"}, "Fix it"),
        ({"plan": "# Dig"}, "# Dig"),
        ({"questions": [{"question": "Which colour?", "options": []}]}, "Which colour?"),
        ({"taskId": "1", "status": "completed"}, "taskId: 1, status: completed"),
        ({"todos": [{"n": 1}], "deep": {"x": None}}, 'todos: [{"n":1}], deep: {"x":null}'),
        ({"questions": "none", "n": 3}, "questions: none, n: 3"),
        ({}, ""),
    ],
)
def test_what_a_call_is_about_is_told_in_words(given: dict[str, Any], words: str) -> None:
    assert preview(ToolUse(id="c", name="x", input=given)) == words
    assert len(preview(ToolUse(id="c", name="x", input={"long": "x" * 9_999}))) == PREVIEW


async def test_arguments_that_are_not_json_are_never_run() -> None:
    ran: list[str] = []

    @tool
    async def write(text: str) -> str:
        ran.append(text)
        return ""

    made = rig([call("write", **{MALFORMED: '{"text": "half'}), "done"], tools=[write])
    await made.run()
    (result,) = results_of(made)
    assert result.is_error
    assert "not valid JSON" in result_text(result)
    assert not ran


async def test_wrong_arguments_are_named_to_the_model() -> None:
    made = rig([call("echo", txt="x"), "done"], tools=[echo])
    await made.run()
    (result,) = results_of(made)
    assert result.is_error
    assert "txt" in result_text(result)


async def test_a_tool_that_crashes_is_a_result_and_the_loop_goes_on() -> None:
    @tool
    async def explode() -> str:
        raise ZeroDivisionError("by zero")

    made = rig([call("explode"), "done"], tools=[explode])
    ended = await made.run()
    assert ended.text == "done"
    assert "ZeroDivisionError: by zero" in result_text(results_of(made)[0])


@pytest.mark.spec("USR-07")
async def test_a_tool_that_hangs_is_ended_at_its_deadline() -> None:
    clock = FakeClock()
    hanging = asyncio.Event()

    @tool(deadline=30)
    async def hang() -> str:
        hanging.set()
        await asyncio.Event().wait()
        return ""

    made = rig([call("hang"), "done"], tools=[hang], clock=clock)
    async with asyncio.TaskGroup() as group:
        turn = group.create_task(made.run())
        await hanging.wait()
        await clock.advance(30)
    assert turn.result().text == "done"
    assert "did not finish within 30 s" in result_text(results_of(made)[0])


async def test_a_store_that_fails_inside_a_tool_stops_the_turn() -> None:
    @tool
    async def keep(site: Site) -> str:
        raise StoreError("the disk is full", path=site.workspace.root)

    with pytest.raises(StoreError):
        await rig([call("keep"), "done"], tools=[keep]).run()


@pytest.mark.spec("USR-10")
async def test_a_large_result_goes_to_a_file_and_is_cut_with_a_mark() -> None:
    @tool(reads_only=True)
    async def flood() -> str:
        return "x" * 10_000_000 + "THE END"

    made = rig([call("flood"), "done"], tools=[flood], bounds=Bounds(result_limit=1000))
    await made.run()
    shown = result_text(results_of(made)[0])
    (path, whole), *_ = made.results.kept.items()
    assert len(whole) == 10_000_007
    assert len(shown) < 1500
    assert "10,000,007 characters" in shown
    assert str(path) in shown
    assert shown.endswith("THE END")


async def test_a_result_without_text_says_so() -> None:
    @tool
    async def quiet() -> str:
        return ""

    made = rig([call("quiet"), "done"], tools=[quiet])
    await made.run()
    assert result_text(results_of(made)[0]) == "(no output)"


async def test_a_denied_call_is_not_run_and_the_reason_is_told() -> None:
    made = rig(
        [call("echo", text="x"), "done"], tools=[echo], judge=Judge(lambda _: Deny("a rule forbids it."))
    )
    await made.run()
    assert "was not run: a rule forbids it." in result_text(results_of(made)[0])
    assert [e.reason for e in made.of(PermissionDenied)] == ["a rule forbids it."]


async def test_with_nobody_there_a_question_is_answered_no() -> None:
    made = rig([call("echo", text="x"), "done"], tools=[echo], judge=Judge(lambda _: Ask("not known")))
    await made.run()
    assert results_of(made)[0].is_error


async def test_a_person_can_allow_a_call_with_changed_input() -> None:
    person = Person(Allowed(input={"text": "changed"}, remember="session"))
    judge = Judge(lambda _: Ask("not known"))
    made = rig([call("echo", text="x"), "done"], tools=[echo], judge=judge, person=person)
    await made.run()
    assert result_text(results_of(made)[0]) == "echo: changed"
    assert judge.remembered == [person.answer]
    assert person.asked[0].tool_use_id == "c1"  # type: ignore[union-attr]


async def test_a_person_can_deny_with_a_reason() -> None:
    made = rig(
        [call("echo", text="x"), "done"],
        tools=[echo],
        judge=Judge(lambda _: Ask("not known")),
        person=Person(Denied(reason="use the other one")),
    )
    await made.run()
    assert "use the other one" in result_text(results_of(made)[0])


@pytest.mark.spec("TRN-03")
async def test_progress_is_for_people_the_result_for_the_model_and_both_differ_from_the_transcript() -> None:
    @tool
    async def slow(site: Site) -> str:
        await site.progress("half way")
        return "result"

    made = rig([["thinking aloud", call("slow")], "done"], tools=[slow])
    await made.run()
    assert [e.text for e in made.of(ToolProgress)] == ["half way"]
    assert [result_text(e.result) for e in made.of(ToolReturned)] == ["result"]
    assert b"half way" not in msgspec.json.encode(made.transcript.entries)
    assert b"half way" not in msgspec.json.encode(list(made.journal.events))
    assert b"half way" not in msgspec.json.encode(made.agent.conversation.messages)
    assert "".join(e.text for e in made.of(Heard) if e.kind == "text").startswith("thinking aloud")


@pytest.mark.spec("RUN-10")
async def test_a_tool_deep_inside_knows_which_agent_it_serves() -> None:
    from shoal.core.identity import assume

    seen: dict[str, str] = {}

    @tool(reads_only=True)
    async def who(site: Site) -> str:
        await asyncio.sleep(0)
        identity = await asyncio.to_thread(current_identity)
        seen[site.agent.name] = identity.name
        return identity.name

    async def one(name: str) -> None:
        made = rig([[call("who", "a"), call("who", "b")], "done"], tools=[who])
        made.agent.identity = msgspec.structs.replace(made.agent.identity, name=name)
        assume(made.agent.identity)
        await made.run()

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(one(f"agent-{number}"))
    assert seen == {f"agent-{n}": f"agent-{n}" for n in range(20)}


class Flaky:
    """Fails once in the middle of its answer, as a cut stream does, and asks again itself."""

    card = CARD

    async def reply(self, request: Request, hear: Hear) -> Reply:
        await hear(Sent())
        await hear(TextDelta("half an ans"))
        await hear(Retrying(reason="the stream was cut", delay=1.0, attempt=1, billed=True))
        await hear(Sent())
        await hear(TextDelta("whole"))
        message = Message(role="assistant", content=(Text(text="whole"),))
        return Reply(message=message, usage=Usage(output_tokens=3), stop_reason="end_turn", model="m")

    async def aclose(self) -> None: ...


@pytest.mark.spec("USR-19")
async def test_a_retried_request_is_a_new_request_and_the_lost_one_is_on_the_record() -> None:
    made = rig(None, model=Flaky())
    await made.run()
    sent = [e.request for e in made.of(RequestSent)]
    failed = made.of(RequestFailed)
    settled = made.of(RequestSettled)
    assert len(set(sent)) == 2
    assert [(e.request, e.billed) for e in failed] == [(sent[0], True)]
    assert [e.request for e in settled] == [sent[1]]
    assert len(made.of(Discarded)) == 1
    assert [m.message.text for m in made.of(MessageAdded)][-1] == "whole"


@pytest.mark.spec("RUN-03")
async def test_text_is_told_as_it_arrives_and_the_whole_message_after_it() -> None:
    made = rig(["one two three four"])
    await made.run()
    kinds = [type(e).__name__ for e in made.heard]
    assert kinds.index("Heard") < kinds.index("AssistantSaid")
    assert "".join(e.text for e in made.of(Heard)) == "one two three four"


@pytest.mark.spec("USR-04")
async def test_what_could_not_be_written_down_waits_on_and_is_heard_later() -> None:
    class FullOnce(HeldTranscript):
        full = True

        def append(self, entry: Any) -> None:
            if self.full and getattr(entry, "delivered", ""):
                self.full = False
                raise StoreError("full", path=Path())
            super().append(entry)

    made = rig(["one", "two"])
    made.agent.conversation = Conversation(FullOnce(), made.agent.clock, made.agent.ids)
    made.steer("look here")
    with pytest.raises(StoreError):
        await made.run()
    assert made.queue.size(LEAD) == 1
    await made.run("go on")
    assert "look here" in str(made.agent.conversation.messages)


async def test_a_pause_in_which_nothing_was_said_is_an_end_and_not_asked_about_for_ever() -> None:
    made = rig(lambda _: Line(content=(), stop_reason="pause_turn"), bounds=Bounds(max_turns=5))
    ended = await made.run()
    assert (ended.reason, ended.requests) == ("done", 1)


async def test_nobody_is_asked_where_nothing_was_said_since_the_last_answer() -> None:
    """What was to wake it may have been taken back meanwhile; providers refuse to answer an answer."""
    made = rig(["first", "second"])
    assert (await run(made.agent, None)).requests == 0
    await made.run()
    ended = await run(made.agent, None)
    assert (ended.reason, ended.requests) == ("done", 0)
    made.steer("and now?")
    assert (await run(made.agent, None)).text == "second"


async def test_a_no_to_a_question_of_a_tool_ends_the_turn_where_it_says_so() -> None:
    (ask,) = ask_tools()
    given = {"questions": [{"question": "Which?", "header": "H", "options": [{"label": a} for a in "ab"]}]}
    person = Person(Denied(reason="enough", ends_turn=True))
    made = rig([ToolUse(id="c", name=ask.schema.name, input=given), "I go on."], tools=[ask], person=person)
    ended = await made.run()
    assert person.asked
    assert (ended.reason, ended.detail) == ("blocked", "it was told to stop: enough")
