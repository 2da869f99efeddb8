"""Agents that repeat a call or exchange messages without a change: told once, then paused or stopped."""

from __future__ import annotations

import asyncio
import json
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
from agent_harness import AgentHarness, FakeQuestionBroker, create_harness

from shoal.agent.agent_runner import LoopLimits
from shoal.agent.loop import run_agent_loop
from shoal.agent.repetition_guard import CONTINUE_LABEL, STOP_LABEL, is_reading_command
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock, ToolResultBlock, ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.conversation.tools import ToolContext, ToolOutput
from shoal.core.events import NoteAdded, RepetitionStopped, TaskChanged, ToolFinished
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import Answer, ChoiceAnswer, ChoiceQuestion, Question
from shoal.models.scripted_model import ScriptedReply
from shoal.testing import FakeClock
from shoal.tools.edit_tool import edit_tool
from shoal.tools.file_tools import write_tool
from shoal.tools.function_tool import FunctionTool, tool
from shoal.tools.notebook_tool import notebook_edit
from shoal.tools.read_tool import read_tool

LIMITS = LoopLimits(max_repeated_calls=5, max_unproductive_messages=20)
TOLD = "with the same input and got the same result"
_numbers = count()


@tool(name="Look", reads_only=True)
async def look(at: str) -> str:
    """Look at it."""
    return f"{at} is unchanged"


@tool(name="Poll", reads_only=True)
async def poll(context: ToolContext) -> str:
    """Wait for a build."""
    await context.clock.sleep(10)
    return "still running"


@tool(name="Write")
async def write(text: str, changed: bool = True) -> ToolOutput:
    """Write a file."""
    return ToolOutput(content=text, data={"changed": changed})


@tool(name="SendMessage")
async def send_message(to: str, message: str) -> str:
    """Send it."""
    return f"{next(_numbers)} sent to {to}: {message}"


@tool(name="Bash")
async def run_command(command: str, description: str = "", run_in_background: bool = False) -> str:
    """Run it."""
    if run_in_background:
        return f"Running in the background as bash_{next(_numbers)}."
    return f"{' '.join(command.partition('#')[0].split())}: ok"


@tool(name="Agent")
async def start_agent(prompt: str, run_in_background: bool = False) -> str:
    """Start it."""
    number = next(_numbers)
    return f"no\n\nagentId: a{number:016x} (SendMessage resumes it)\n<usage>duration_ms: {number}</usage>"


def call(name: str, **arguments: Any) -> ToolUseBlock:
    return ToolUseBlock(id=f"call-{next(_numbers)}", name=name, input=arguments)


class DecidingQuestionBroker(FakeQuestionBroker):
    """Gives one answer after the other, and then denies."""

    def __init__(self, *labels: str) -> None:
        super().__init__()
        self.labels = list(labels)

    async def ask_person_or_deny(self, question: Question) -> Answer:
        self.questions.append(question)
        assert isinstance(question, ChoiceQuestion)
        label = self.labels.pop(0) if self.labels else STOP_LABEL
        return ChoiceAnswer(answers={question.choices[0].question: label})


def create_guarded_harness(script: Any, **options: Any) -> AgentHarness:
    tools: list[FunctionTool] = [look, poll, write, send_message, run_command, start_agent]
    return create_harness(script, tools=tools, loop_limits=LIMITS, **options)


def list_texts(harness: AgentHarness) -> list[str]:
    return [message.text for message in harness.agent.conversation.messages]


@pytest.mark.spec("LIM-04")
async def test_a_repeated_call_is_told_to_the_agent_once_and_then_stops_it() -> None:
    broker = FakeQuestionBroker()
    harness = create_guarded_harness(lambda _: call("Look", at="door"), question_broker=broker)
    ended = await harness.run_prompt()
    assert (ended.reason, ended.requests) == ("blocked", 6)
    assert "it called Look 6 times in a row with the same input and the same result" in ended.detail
    assert sum(TOLD in text for text in list_texts(harness)) == 1
    assert len(broker.questions) == 1
    assert len(harness.list_events(NoteAdded)) == 1
    (stopped,) = harness.list_events(RepetitionStopped)
    assert stopped.reason == ended.detail


@pytest.mark.spec("LIM-04")
async def test_an_agent_that_changes_its_way_after_the_notice_is_not_asked_about() -> None:
    script = [*(call("Look", at="door") for _ in range(5)), call("Look", at="window"), "The door is shut."]
    broker = FakeQuestionBroker()
    harness = create_guarded_harness(script, question_broker=broker)
    ended = await harness.run_prompt()
    assert (ended.reason, ended.text) == ("done", "The door is shut.")
    assert sum(TOLD in text for text in list_texts(harness)) == 1
    assert not broker.questions


@pytest.mark.spec("LIM-04")
async def test_a_person_can_let_a_looping_agent_continue_and_the_count_starts_again() -> None:
    broker = DecidingQuestionBroker(CONTINUE_LABEL, "look at the window instead", STOP_LABEL)
    harness = create_guarded_harness(lambda _: call("Look", at="door"), question_broker=broker)
    ended = await harness.run_prompt()
    assert (ended.reason, ended.requests) == ("blocked", 18)
    assert len(broker.questions) == 3
    assert sum("says: look at the window instead" in text for text in list_texts(harness)) == 1


@pytest.mark.spec("LIM-04")
async def test_a_pair_of_calls_that_repeats_counts_too() -> None:
    harness = create_guarded_harness(lambda _: [call("Look", at="door"), call("Look", at="window")])
    ended = await harness.run_prompt()
    assert (ended.reason, ended.requests) == ("blocked", 6)


@pytest.mark.spec("LIM-04")
@pytest.mark.parametrize("length", [2, 3, 4])
async def test_a_sequence_of_calls_that_repeats_counts_too(length: int) -> None:
    places = cycle(["door", "window", "roof", "cellar"][:length])
    broker = FakeQuestionBroker()
    harness = create_guarded_harness(lambda _: call("Look", at=next(places)), question_broker=broker)
    ended = await harness.run_prompt()
    # Told after the fifth time, stopped after the sixth.
    assert (ended.reason, ended.requests) == ("blocked", 6 * length)
    assert sum(TOLD in text for text in list_texts(harness)) == 1
    assert len(broker.questions) == 1


@pytest.mark.spec("LIM-04")
async def test_a_sequence_with_one_new_call_is_not_a_repetition() -> None:
    pair = [call("Look", at="door"), call("Look", at="window")]
    script = [*(pair * 4), call("Look", at="roof"), *(pair * 4), "All is shut."]
    harness = create_guarded_harness(script)
    assert (await harness.run_prompt()).text == "All is shut."
    assert not harness.list_events(NoteAdded)


@pytest.mark.spec("LIM-04")
async def test_calls_that_wait_may_be_repeated() -> None:
    clock = FakeClock()
    script = [*(call("Poll") for _ in range(30)), "Built."]
    harness = create_guarded_harness(script, clock=clock)
    running = asyncio.create_task(harness.run_prompt())
    while not running.done():
        await clock.advance(10)
    assert running.result().text == "Built."
    assert not harness.list_events(NoteAdded)


@pytest.mark.spec("LIM-04")
@pytest.mark.parametrize("kind", ["command", "spaces", "comment", "background command", "agent"])
async def test_descriptions_spaces_and_new_ids_make_no_other_call(kind: str) -> None:
    def repeat(_: object) -> ToolUseBlock:
        match kind:
            case "spaces":
                return call("Bash", command=f"make {' ' * next(_numbers)} all")
            case "comment":
                return call("Bash", command=f"make all # try {next(_numbers)}")
            case "command":
                return call("Bash", command="make", description=f"Try {next(_numbers)}")
            case "background command":
                return call("Bash", command="make", run_in_background=True)
            case _:
                return call("Agent", prompt="dig")

    ended = await create_guarded_harness(repeat).run_prompt()
    assert (ended.reason, ended.requests) == ("blocked", 6)


@pytest.mark.spec("LIM-04")
async def test_calls_that_all_fail_are_a_loop_whatever_they_are() -> None:
    harness = create_guarded_harness(lambda _: call(f"Tool{next(_numbers)}"))
    ended = await harness.run_prompt()
    assert (ended.reason, ended.requests) == ("blocked", 26)
    (told,) = harness.list_events(NoteAdded)
    assert "its calls failed 25 times in a row" in told.text


@pytest.mark.spec("LIM-04")
async def test_one_call_that_succeeds_ends_a_row_of_failures() -> None:
    failing = [call(f"Tool{number}") for number in range(24)]
    harness = create_guarded_harness([*failing, call("Look", at="it"), *failing, "Found it."])
    assert (await harness.run_prompt()).text == "Found it."
    assert not harness.list_events(NoteAdded)


@pytest.mark.spec("LIM-04")
async def test_another_command_with_the_same_output_is_another_call() -> None:
    script = [*(call("Bash", command=f"make {number}") for number in range(9)), "Built."]
    assert (await create_guarded_harness(script).run_prompt()).text == "Built."


@pytest.mark.spec("LIM-04")
async def test_agents_with_the_same_job_that_start_together_are_no_loop() -> None:
    together = [call("Agent", prompt="dig") for _ in range(8)]
    one_by_one = [call("Agent", prompt="fill", run_in_background=True) for _ in range(8)]
    harness = create_guarded_harness([together, *one_by_one, "All of them work."])
    assert (await harness.run_prompt()).text == "All of them work."
    assert not harness.list_events(NoteAdded)


def add_notification(harness: AgentHarness) -> None:
    item = InboxItem(
        id=f"n{next(_numbers)}",
        to=LEAD_ID,
        content=(TextBlock(text="It failed."),),
        by="runtime",
        mode="task-notification",
    )
    harness.queue.put(item)


@pytest.mark.spec("LIM-04")
@pytest.mark.parametrize(("seconds", "turns"), [(1, 6), (10, 12)])
async def test_background_work_that_is_started_again_at_each_end_is_a_loop_unless_it_takes_long(
    seconds: float, turns: int
) -> None:
    def reply(request: ModelRequest) -> Any:
        is_answered = any(isinstance(block, ToolResultBlock) for block in request.messages[-1].content)
        return "I wait." if is_answered else call("Agent", prompt="dig", run_in_background=True)

    clock = FakeClock()
    harness = create_guarded_harness(reply, clock=clock)
    ended = await harness.run_prompt()
    count_of_turns = 1
    while ended.reason == "done" and count_of_turns < 12:
        await clock.advance(seconds)
        add_notification(harness)
        ended = await run_agent_loop(harness.agent, None)
        count_of_turns += 1
    assert count_of_turns == turns
    assert ended.reason == ("blocked" if turns == 6 else "done")


@pytest.mark.spec("LIM-04")
async def test_an_answer_that_is_paused_again_and_again_is_a_loop() -> None:
    paused = ScriptedReply(content=(TextBlock(text="hm"),), stop_reason="pause_turn")
    broker = FakeQuestionBroker()
    harness = create_guarded_harness(lambda _: paused, question_broker=broker)
    ended = await harness.run_prompt()
    assert (ended.reason, ended.requests) == ("blocked", 6)
    assert "its answer was paused 6 times in a row" in ended.detail
    assert len(broker.questions) == 1


@pytest.mark.spec("LIM-05")
async def test_a_recipient_counts_once_however_its_name_is_written() -> None:
    names = cycle(["ann", "Ann", "ann@crew"])
    harness = create_guarded_harness(
        lambda _: call("SendMessage", to=next(names), message=f"what now {next(_numbers)}")
    )
    ended = await harness.run_prompt()
    assert (ended.reason, ended.requests) == ("blocked", 21)


@pytest.mark.spec("LIM-05")
async def test_messages_without_a_change_are_told_and_then_stop_the_sender() -> None:
    broker = FakeQuestionBroker()
    harness = create_guarded_harness(
        lambda _: call("SendMessage", to="ann", message=f"what now {next(_numbers)}"), question_broker=broker
    )
    ended = await harness.run_prompt()
    assert (ended.reason, ended.requests) == ("blocked", 21)
    assert "it sent 21 messages to ann, and no task or file changed in the meantime" in ended.detail
    assert sum("no task or file has changed in the meantime" in text for text in list_texts(harness)) == 1
    assert len(broker.questions) == 1


@pytest.mark.spec("LIM-05")
@pytest.mark.parametrize("change", ["own file", "task of another agent"])
async def test_a_change_of_a_file_or_a_task_resets_the_count_of_messages(change: str) -> None:
    sent = count()

    def reply(_: object) -> Any:
        number = next(sent)
        if number == 60:
            return "Done."
        if number % 15 == 14:
            if change == "own file":
                return call("Write", text=str(number))
            harness.journal.append(
                TaskChanged(
                    agent=LEAD_ID, board="b", task="1", subject="s", status="in_progress", owner=str(number)
                )
            )
        return call("SendMessage", to="ann", message=str(number))

    harness = create_guarded_harness(reply)
    ended = await harness.run_prompt()
    assert (ended.reason, ended.text) == ("done", "Done.")
    assert not harness.list_events(NoteAdded)


@pytest.mark.spec("LIM-05")
@pytest.mark.parametrize("change", ["the same content", "a task that goes back and forth"])
async def test_a_change_that_changes_nothing_does_not_keep_an_exchange_alive(change: str) -> None:
    numbers = count()

    def reply(_: ModelRequest) -> Any:
        number = next(numbers)
        if number > 400:
            return "Done."
        if number % 10 == 9:
            if change == "the same content":
                return call("Write", text="f: 1 line", changed=False)
            owner = "ann" if number % 20 == 9 else ""
            status = "in_progress" if owner else "pending"
            harness.journal.append(
                TaskChanged(agent=LEAD_ID, board="b", task="1", subject="s", status=status, owner=owner)
            )
        return call("SendMessage", to="ann", message=str(number))

    harness = create_guarded_harness(reply)
    ended = await harness.run_prompt()
    assert ended.reason == "blocked"
    assert len(harness.list_events(RepetitionStopped)) == 1
    assert next(numbers) < 100


@pytest.mark.spec("LIM-05")
@pytest.mark.parametrize("name", ["f", "a" * 200 + "/" + "b" * 200], ids=["short path", "long path"])
@pytest.mark.parametrize("tool_name", ["Write", "NotebookEdit", "Edit"])
async def test_a_repeated_write_changes_nothing_however_long_its_path_is(
    tmp_path: Path, name: str, tool_name: str
) -> None:
    path, numbers = tmp_path / f"{name}.ipynb", count()
    path.parent.mkdir(exist_ok=True)
    notebook = {"cells": [{"cell_type": "code", "id": "c1", "source": "x", "metadata": {}, "outputs": []}]}
    path.write_text(json.dumps({**notebook, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}))
    if tool_name == "Edit":
        path.write_bytes(b"one\r\ntwo\r\n")

    def reply(_: ModelRequest) -> Any:
        number = next(numbers)
        if number > 100:
            return "Done."
        if number == 0:
            return call("Read", file_path=str(path))
        if number % 10 != 9:
            return call("SendMessage", to="ann", message=str(number))
        if tool_name == "Edit":
            # The same text, because the file has other line ends.
            return call("Edit", file_path=str(path), old_string="one\ntwo", new_string="one\r\ntwo")
        if tool_name == "NotebookEdit":
            return call("NotebookEdit", notebook_path=str(path), cell_id="c1", new_source="y")
        return call("Write", file_path=str(path), content="the same\n")

    tools = [read_tool, write_tool, edit_tool, notebook_edit, send_message]
    harness = create_harness(reply, tools=tools, loop_limits=LIMITS, root=tmp_path)
    ended = await harness.run_prompt()
    finished = [each for each in harness.list_events(ToolFinished) if each.tool == tool_name]
    assert not any(each.is_error for each in finished), finished
    # The first write changes the file, but the edit never does.
    assert [each.may_change_files for each in finished][:2] == [tool_name != "Edit", False]
    assert ended.reason == "blocked"
    assert next(numbers) < 60


@pytest.mark.spec("LIM-05")
async def test_a_long_command_that_writes_at_its_end_is_a_change() -> None:
    sent = count()

    def reply(_: object) -> Any:
        number = next(sent)
        if number == 60:
            return "Done."
        if number % 15 == 14:
            return call("Bash", command=f"echo {'word ' * 200} {number} > file")
        return call("SendMessage", to="ann", message=str(number))

    ended = await create_guarded_harness(reply).run_prompt()
    assert (ended.reason, ended.text) == ("done", "Done.")


def test_only_plain_commands_that_read_are_no_change() -> None:
    assert is_reading_command("ls -la src")
    assert not any(map(is_reading_command, ("", "make", "ls > out", "echo x | tee y", "cat $(rm x)")))
