"""The agent loop: requests, tool calls and results."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agent_harness import (
    AgentHarness,
    FakeQuestionBroker,
    FixedPermissionPolicy,
    RecordingTranscript,
    create_harness,
)

from shoal.agent.agent_runner import LoopLimits
from shoal.agent.conversation import Conversation
from shoal.agent.loop import run_agent_loop
from shoal.agent.tool_calls import preview_tool_call
from shoal.backends.sandbox.sandbox_selection import (
    DriverSelectingSandbox,
    SandboxPreferences,
    SandboxSelection,
)
from shoal.core.agents.identity import current_identity
from shoal.core.budgets.limits import BudgetLimits
from shoal.core.budgets.usage import ModelCard, TokenPrice, Usage
from shoal.core.conversation.messages import (
    MALFORMED_INPUT_KEY,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    ModelRetryScheduledDelta,
    TextDelta,
)
from shoal.core.conversation.tools import ToolContext
from shoal.core.errors import BudgetError, StateFileError
from shoal.core.events import (
    PREVIEW_LENGTH,
    MessageAdded,
    ModelRequestFailed,
    ModelRequestSent,
    ModelRequestSettled,
    PartialReplyDiscarded,
    PermissionDenied,
    TextStreamed,
    ToolFinished,
    ToolOutputReturned,
    ToolProgressed,
    ToolStarted,
)
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.permission_decisions import AskDecision, DenyDecision
from shoal.core.permissions.questions import AllowAnswer, DenyAnswer
from shoal.core.permissions.sandbox import SandboxPolicy
from shoal.models.scripted_model import SCRIPTED_CARD, ScriptedModel, ScriptedReply
from shoal.testing import FakeClock
from shoal.tools.function_tool import tool
from shoal.tools.question_tool import get_question_tools


def make_call(tool_name: str, call_id: str = "c1", **arguments: Any) -> ToolUseBlock:
    return ToolUseBlock(id=call_id, name=tool_name, input=arguments)


@tool(reads_only=True)
async def echo(text: str) -> str:
    """Say it back."""
    return f"echo: {text}"


def list_tool_results(harness: AgentHarness) -> list[ToolResultBlock]:
    return [
        block
        for message in harness.agent.conversation.messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


@pytest.mark.spec("RUN-01")
async def test_the_model_is_asked_again_until_it_makes_no_calls() -> None:
    harness = create_harness(
        [make_call("echo", text="a"), make_call("echo", "c2", text="b"), "done"], tools=[echo]
    )
    ended = await harness.run_prompt("please")
    assert (ended.reason, ended.text, ended.requests) == ("done", "done", 3)
    assert [extract_tool_result_text(r) for r in list_tool_results(harness)] == ["echo: a", "echo: b"]
    assert [m.role for m in harness.agent.conversation.messages] == ["user", "assistant"] * 3
    assert [type(e) for e in harness.events if isinstance(e, (ToolStarted, ToolFinished))] == [
        ToolStarted,
        ToolFinished,
    ] * 2


async def test_tools_get_the_workspace_and_sandbox_of_their_agent() -> None:
    seen: list[ToolContext] = []

    @tool(reads_only=True)
    async def look(context: ToolContext) -> str:
        """Look around."""
        seen.append(context)
        return "seen"

    harness = create_harness([make_call("look"), "done"], tools=[look])
    selection = SandboxSelection(
        SandboxPreferences(), build_policy=lambda _: SandboxPolicy(writable=()), drivers=(), note=print
    )
    own = DriverSelectingSandbox(selection)
    harness.agent.environment = msgspec.structs.replace(harness.agent.environment, sandbox=own)
    await harness.run_prompt()
    (tool_context,) = seen
    assert tool_context.sandbox is own
    assert tool_context.workspace is harness.agent.environment.workspace


@pytest.mark.spec("RUN-02")
async def test_read_only_calls_of_one_message_run_concurrently() -> None:
    meet = asyncio.Barrier(3)

    @tool(reads_only=True, deadline=5)
    async def look(n: int) -> str:
        await meet.wait()  # none goes on before all three are here
        return str(n)

    harness = create_harness([[make_call("look", f"c{n}", n=n) for n in range(3)], "done"], tools=[look])
    await harness.run_prompt()
    assert [extract_tool_result_text(r) for r in list_tool_results(harness)] == ["0", "1", "2"]


@pytest.mark.spec("RUN-02")
async def test_writing_calls_run_sequentially_between_the_reads_around_them() -> None:
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
        make_call("look", "a", n=1),
        make_call("look", "b", n=2),
        make_call("change", "c", n=3),
        make_call("change", "d", n=4),
        make_call("look", "e", n=5),
    ]
    await create_harness([calls, "done"], tools=[look, change]).run_prompt()
    assert log[:4] == ["look 1", "look 2", "looked 1", "looked 2"]
    assert log[4:8] == ["change 3", "changed 3", "change 4", "changed 4"]
    assert log[8:] == ["look 5", "looked 5"], "a read sees what was written before it"


@pytest.mark.spec("USR-30")
async def test_the_journal_does_not_depend_on_which_read_was_faster() -> None:
    async def record(*, slow: int) -> bytes:
        gates = [asyncio.Event(), asyncio.Event()]

        @tool(reads_only=True)
        async def look(n: int) -> str:
            if n == slow:
                await gates[1 - n].wait()
            gates[n].set()
            return f"seen {n}"

        harness = create_harness(
            [[make_call("look", "a", n=0), make_call("look", "b", n=1)], "done"],
            tools=[look],
            clock=FakeClock(),
        )
        await harness.run_prompt()
        return msgspec.json.encode(list(harness.journal.read_records())) + msgspec.json.encode(
            harness.transcript.entries
        )

    assert await record(slow=0) == await record(slow=1)


@pytest.mark.spec("USR-30")
async def test_another_seed_or_prompt_gives_another_transcript() -> None:
    async def record(seed: int, prompt: str) -> bytes:
        harness = create_harness(["done"], seed=seed, clock=FakeClock())
        await harness.run_prompt(prompt)
        return msgspec.json.encode(harness.transcript.entries)

    assert await record(1, "a") == await record(1, "a")
    assert await record(1, "a") != await record(2, "a")
    assert await record(1, "a") != await record(1, "b")


async def test_steering_during_tool_calls_is_delivered_after_the_tool_round() -> None:
    steered: list[AgentHarness] = []

    @tool
    async def work() -> str:
        steered[0].send_steering("use tabs instead")
        return "worked"

    seen: list[Message] = []

    def choose_reply(request: ModelRequest) -> Any:
        seen.append(request.messages[-1])
        return make_call("work") if len(seen) == 1 else "done"

    harness = create_harness(choose_reply, tools=[work])
    steered.append(harness)
    await harness.run_prompt()
    last = seen[1]
    assert [type(b) for b in last.content] == [ToolResultBlock, TextBlock]
    assert last.text == "use tabs instead"


async def test_steering_at_the_end_of_a_turn_is_answered_in_the_same_turn() -> None:
    def choose_reply(request: ModelRequest) -> str:
        if "second" in request.messages[-1].text:
            return "answered both"
        harness.send_steering("a second thing")
        return "answered one"

    harness = create_harness(choose_reply)
    ended = await harness.run_prompt()
    assert ended.requests == 2
    assert ended.text == "answered both"


async def test_the_turn_limit_ends_the_loop_with_a_reason() -> None:
    harness = create_harness(
        lambda _: make_call("echo", text="again"), tools=[echo], loop_limits=LoopLimits(max_turns=3)
    )
    ended = await harness.run_prompt()
    assert (ended.reason, ended.requests) == ("max_turns", 3)
    assert ended.detail == "stopped after 3 requests"


async def test_a_turn_limit_of_one_is_reported_in_the_singular() -> None:
    harness = create_harness(
        lambda _: make_call("echo", text="again"), tools=[echo], loop_limits=LoopLimits(max_turns=1)
    )
    assert (await harness.run_prompt()).detail == "stopped after 1 request"


PRICED = ModelCard(id="dear", provider="x", price=TokenPrice(input=1_000_000, output=0), window=10**9)


@pytest.mark.spec("RUN-01")
async def test_a_spent_budget_stops_the_next_request() -> None:
    line = ScriptedReply(content=(make_call("echo", text="x"),), usage=Usage(input_tokens=1, output_tokens=1))
    harness = create_harness(
        None,
        model=ScriptedModel(lambda _: line, card=PRICED),
        tools=[echo],
        budget_limits=BudgetLimits(max_usd=2.5),
    )
    ended = await harness.run_prompt()
    assert ended.reason == "budget"
    assert harness.agent.budget.usd == 3.0  # the request that passed it was the last
    assert "$2.5" in ended.detail


@pytest.mark.spec("USR-19")
def test_a_budget_in_dollars_with_a_model_of_unknown_price_is_refused() -> None:
    unpriced = ModelCard(id="stranger", provider="x")
    with pytest.raises(BudgetError, match="price of stranger is unknown"):
        create_harness(None, model=ScriptedModel([], card=unpriced), budget_limits=BudgetLimits(max_usd=1))


async def test_a_truncated_answer_is_continued_and_joined() -> None:
    harness = create_harness(
        [ScriptedReply(content=(TextBlock(text="first "),), stop_reason="max_tokens"), "second"]
    )
    ended = await harness.run_prompt()
    assert ended.text == "first second"
    assert ended.requests == 2


async def test_two_empty_answers_end_the_turn_and_leave_a_valid_history() -> None:
    harness = create_harness([ScriptedReply(content=()), ScriptedReply(content=()), "here"])
    assert (await harness.run_prompt("one")).text == ""
    assert (await harness.run_prompt("two")).text == "here"
    assert [m.role for m in harness.agent.conversation.messages] == ["user", "assistant"]


async def test_a_call_of_an_unknown_tool_gets_a_suggestion() -> None:
    harness = create_harness([make_call("ecko", text="x"), "done"], tools=[echo])
    await harness.run_prompt()
    (result,) = list_tool_results(harness)
    assert result.is_error
    assert "Did you mean echo?" in extract_tool_result_text(result)


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
def test_the_preview_of_a_call_shows_its_main_argument(given: dict[str, Any], words: str) -> None:
    assert preview_tool_call(ToolUseBlock(id="c", name="x", input=given)) == words
    assert (
        len(preview_tool_call(ToolUseBlock(id="c", name="x", input={"long": "x" * 9_999}))) == PREVIEW_LENGTH
    )


async def test_a_call_with_malformed_json_is_not_run() -> None:
    ran: list[str] = []

    @tool
    async def write(text: str) -> str:
        ran.append(text)
        return ""

    harness = create_harness(
        [make_call("write", **{MALFORMED_INPUT_KEY: '{"text": "half'}), "done"], tools=[write]
    )
    await harness.run_prompt()
    (result,) = list_tool_results(harness)
    assert result.is_error
    assert "not valid JSON" in extract_tool_result_text(result)
    assert not ran


async def test_the_error_names_the_wrong_argument() -> None:
    harness = create_harness([make_call("echo", txt="x"), "done"], tools=[echo])
    await harness.run_prompt()
    (result,) = list_tool_results(harness)
    assert result.is_error
    assert "txt" in extract_tool_result_text(result)


async def test_a_crash_of_a_tool_becomes_its_result() -> None:
    @tool
    async def explode() -> str:
        raise ZeroDivisionError("by zero")

    harness = create_harness([make_call("explode"), "done"], tools=[explode])
    ended = await harness.run_prompt()
    assert ended.text == "done"
    assert "ZeroDivisionError: by zero" in extract_tool_result_text(list_tool_results(harness)[0])


@pytest.mark.spec("USR-07")
async def test_a_tool_that_hangs_is_stopped_at_its_deadline() -> None:
    clock = FakeClock()
    hanging = asyncio.Event()

    @tool(deadline=30)
    async def hang() -> str:
        hanging.set()
        await asyncio.Event().wait()
        return ""

    harness = create_harness([make_call("hang"), "done"], tools=[hang], clock=clock)
    async with asyncio.TaskGroup() as group:
        turn = group.create_task(harness.run_prompt())
        await hanging.wait()
        await clock.advance(30)
    assert turn.result().text == "done"
    assert "did not finish within 30 s" in extract_tool_result_text(list_tool_results(harness)[0])


async def test_a_store_error_in_a_tool_stops_the_turn() -> None:
    @tool
    async def keep(context: ToolContext) -> str:
        raise StateFileError("the disk is full", path=context.workspace.root)

    with pytest.raises(StateFileError):
        await create_harness([make_call("keep"), "done"], tools=[keep]).run_prompt()


@pytest.mark.spec("USR-10")
async def test_a_large_result_is_stored_in_a_file_and_cut_with_a_marker() -> None:
    @tool(reads_only=True)
    async def flood() -> str:
        return "x" * 10_000_000 + "THE END"

    harness = create_harness(
        [make_call("flood"), "done"], tools=[flood], loop_limits=LoopLimits(result_limit=1000)
    )
    await harness.run_prompt()
    shown = extract_tool_result_text(list_tool_results(harness)[0])
    (path, whole), *_ = harness.results.saved.items()
    assert len(whole) == 10_000_007
    assert len(shown) < 1500
    assert "10,000,007 characters" in shown
    assert str(path) in shown
    assert shown.endswith("THE END")


async def test_a_result_without_text_says_so() -> None:
    @tool
    async def quiet() -> str:
        return ""

    harness = create_harness([make_call("quiet"), "done"], tools=[quiet])
    await harness.run_prompt()
    assert extract_tool_result_text(list_tool_results(harness)[0]) == "(no output)"


async def test_a_denied_call_is_not_run_and_returns_the_reason() -> None:
    harness = create_harness(
        [make_call("echo", text="x"), "done"],
        tools=[echo],
        permissions=FixedPermissionPolicy(lambda _: DenyDecision("a rule forbids it.")),
    )
    await harness.run_prompt()
    assert "was not run: a rule forbids it." in extract_tool_result_text(list_tool_results(harness)[0])
    assert [e.reason for e in harness.list_events(PermissionDenied)] == ["a rule forbids it."]


async def test_an_unattended_permission_question_is_denied() -> None:
    harness = create_harness(
        [make_call("echo", text="x"), "done"],
        tools=[echo],
        permissions=FixedPermissionPolicy(lambda _: AskDecision("not known")),
    )
    await harness.run_prompt()
    assert list_tool_results(harness)[0].is_error


async def test_a_person_can_allow_a_call_with_changed_input() -> None:
    person = FakeQuestionBroker(AllowAnswer(input={"text": "changed"}, remember="session"))
    policy = FixedPermissionPolicy(lambda _: AskDecision("not known"))
    harness = create_harness(
        [make_call("echo", text="x"), "done"], tools=[echo], permissions=policy, question_broker=person
    )
    await harness.run_prompt()
    assert extract_tool_result_text(list_tool_results(harness)[0]) == "echo: changed"
    assert policy.remembered == [person.answer]
    assert person.questions[0].tool_use_id == "c1"  # type: ignore[union-attr]


async def test_a_person_can_deny_with_a_reason() -> None:
    harness = create_harness(
        [make_call("echo", text="x"), "done"],
        tools=[echo],
        permissions=FixedPermissionPolicy(lambda _: AskDecision("not known")),
        question_broker=FakeQuestionBroker(DenyAnswer(reason="use the other one")),
    )
    await harness.run_prompt()
    assert "use the other one" in extract_tool_result_text(list_tool_results(harness)[0])


@pytest.mark.spec("TRN-03")
async def test_progress_is_a_live_event_only() -> None:
    @tool
    async def slow(context: ToolContext) -> str:
        await context.report_progress("half way")
        return "result"

    harness = create_harness([["thinking aloud", make_call("slow")], "done"], tools=[slow])
    await harness.run_prompt()
    assert [e.text for e in harness.list_events(ToolProgressed)] == ["half way"]
    assert [extract_tool_result_text(e.result) for e in harness.list_events(ToolOutputReturned)] == ["result"]
    assert b"half way" not in msgspec.json.encode(harness.transcript.entries)
    assert b"half way" not in msgspec.json.encode(list(harness.journal.read_records()))
    assert b"half way" not in msgspec.json.encode(harness.agent.conversation.messages)
    assert "".join(e.text for e in harness.list_events(TextStreamed) if e.kind == "text").startswith(
        "thinking aloud"
    )


@pytest.mark.spec("RUN-10")
async def test_the_current_identity_is_available_inside_a_tool() -> None:
    from shoal.core.agents.identity import assume_identity

    seen: dict[str, str] = {}

    @tool(reads_only=True)
    async def who(context: ToolContext) -> str:
        await asyncio.sleep(0)
        identity = await asyncio.to_thread(current_identity)
        seen[context.agent.name] = identity.name
        return identity.name

    async def one(name: str) -> None:
        harness = create_harness([[make_call("who", "a"), make_call("who", "b")], "done"], tools=[who])
        harness.agent.identity = msgspec.structs.replace(harness.agent.identity, name=name)
        assume_identity(harness.agent.identity)
        await harness.run_prompt()

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(one(f"agent-{number}"))
    assert seen == {f"agent-{n}": f"agent-{n}" for n in range(20)}


class Flaky:
    """Fails once in the middle of its answer like a cut stream, and retries."""

    card = SCRIPTED_CARD

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        await on_delta(ModelAttemptStartedDelta())
        await on_delta(TextDelta("half an ans"))
        await on_delta(
            ModelRetryScheduledDelta(reason="the stream was cut", delay=1.0, attempt=1, billed=True)
        )
        await on_delta(ModelAttemptStartedDelta())
        await on_delta(TextDelta("whole"))
        message = Message(role="assistant", content=(TextBlock(text="whole"),))
        return ModelReply(
            message=message, usage=Usage(input_tokens=9, output_tokens=3), stop_reason="end_turn", model="m"
        )

    async def aclose(self) -> None: ...


@pytest.mark.spec("USR-19")
async def test_a_retry_is_a_new_request_and_the_failed_one_is_recorded() -> None:
    harness = create_harness(None, model=Flaky())
    await harness.run_prompt()
    sent = [e.request for e in harness.list_events(ModelRequestSent)]
    failed = harness.list_events(ModelRequestFailed)
    settled = harness.list_events(ModelRequestSettled)
    assert len(set(sent)) == 2
    assert [(e.request, e.billed) for e in failed] == [(sent[0], True)]
    assert [e.request for e in settled] == [sent[1]]
    assert len(harness.list_events(PartialReplyDiscarded)) == 1
    assert [m.message.text for m in harness.list_events(MessageAdded)][-1] == "whole"


@pytest.mark.spec("RUN-03")
async def test_text_is_streamed_before_the_complete_message() -> None:
    harness = create_harness(["one two three four"])
    await harness.run_prompt()
    kinds = [type(e).__name__ for e in harness.events]
    assert kinds.index("TextStreamed") < kinds.index("AssistantReplied")
    assert "".join(e.text for e in harness.list_events(TextStreamed)) == "one two three four"


@pytest.mark.spec("USR-04")
async def test_steering_that_could_not_be_written_is_delivered_later() -> None:
    class FullOnce(RecordingTranscript):
        full = True

        def append(self, entry: Any) -> None:
            if self.full and getattr(entry, "delivered", ""):
                self.full = False
                raise StateFileError("full", path=Path())
            super().append(entry)

    harness = create_harness(["one", "two"])
    harness.agent.conversation = Conversation(FullOnce(), harness.agent.clock, harness.agent.ids)
    harness.send_steering("look here")
    with pytest.raises(StateFileError):
        await harness.run_prompt()
    assert harness.queue.count_waking_items(LEAD_ID) == 1
    await harness.run_prompt("go on")
    assert "look here" in str(harness.agent.conversation.messages)


async def test_an_empty_pause_ends_the_turn() -> None:
    harness = create_harness(
        lambda _: ScriptedReply(content=(), stop_reason="pause_turn"), loop_limits=LoopLimits(max_turns=5)
    )
    ended = await harness.run_prompt()
    assert (ended.reason, ended.requests) == ("done", 1)


async def test_no_request_is_sent_without_new_input() -> None:
    """The item that woke the agent may have been withdrawn; providers reject a request without new input."""
    harness = create_harness(["first", "second"])
    assert (await run_agent_loop(harness.agent, None)).requests == 0
    await harness.run_prompt()
    ended = await run_agent_loop(harness.agent, None)
    assert (ended.reason, ended.requests) == ("done", 0)
    harness.send_steering("and now?")
    assert (await run_agent_loop(harness.agent, None)).text == "second"


async def test_a_denial_can_end_the_turn() -> None:
    (ask,) = get_question_tools()
    given = {"questions": [{"question": "Which?", "header": "H", "options": [{"label": a} for a in "ab"]}]}
    person = FakeQuestionBroker(DenyAnswer(reason="enough", ends_turn=True))
    harness = create_harness(
        [ToolUseBlock(id="c", name=ask.schema.name, input=given), "I go on."],
        tools=[ask],
        question_broker=person,
    )
    ended = await harness.run_prompt()
    assert person.questions
    assert (ended.reason, ended.detail) == ("blocked", "it was told to stop: enough")
