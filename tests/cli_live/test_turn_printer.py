"""A turn's events as printed text: on a terminal, in a pipe, and in one live line."""

from __future__ import annotations

import io
import os
import pty
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_live.pty_terminal import EmulatedScreen, PtyTerminal, build_environment
from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.core.budgets.usage import Usage
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import ToolResultBlock
from shoal.core.events import (
    PREVIEW_LENGTH,
    AgentMovedToBackground,
    AssistantReplied,
    BudgetThresholdReached,
    Event,
    ModelRequestSent,
    ModelRequestSettled,
    NoteAdded,
    PartialReplyDiscarded,
    PermissionDenied,
    QuestionAnswered,
    QuestionAsked,
    RepetitionStopped,
    RunFinished,
    TextStreamed,
    ToolFinished,
    ToolOutputReturned,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from shoal.core.ids import LEAD_ID, AgentId, EntryId, RequestId
from shoal.core.permissions.questions import (
    AllowAnswer,
    ChoiceAnswer,
    ChoiceOption,
    ChoiceQuestion,
    DenyAnswer,
    MultipleChoice,
    PermissionQuestion,
    PlanApprovalQuestion,
)
from shoal.surfaces.cli.headless.progress_display import create_progress_display
from shoal.surfaces.cli.plain.question_dialog import TerminalQuestionDialog, format_tool_input
from shoal.surfaces.cli.plain.turn_printer import RunEventPrinter
from shoal.surfaces.terminal.screen import LiveTerminalScreen, PlainTerminalScreen
from shoal.surfaces.terminal.text_styles import measure_text_width, truncate_at_word
from shoal.surfaces.terminal.tool_outcomes import describe_tool_outcome
from shoal.surfaces.terminal.turn_activity import TurnActivity
from shoal.testing import FakeClock


def make_text(text: str, kind: Any = "text") -> TextStreamed:
    return TextStreamed(agent=LEAD_ID, kind=kind, text=text)


def make_tool_start(call: str, tool: str, preview: str) -> ToolStarted:
    return ToolStarted(agent=LEAD_ID, call=call, tool=tool, preview=preview)


def make_tool_return(call: str, tool: str, text: str, **data: Any) -> ToolOutputReturned:
    return ToolOutputReturned(
        agent=LEAD_ID,
        call=call,
        tool=tool,
        result=ToolResultBlock(tool_use_id=call, content=text),
        data=data or None,
    )


def make_tool_finish(call: str, tool: str, preview: str = "", *, is_error: bool = False) -> ToolFinished:
    return ToolFinished(
        agent=LEAD_ID, call=call, tool=tool, is_error=is_error, size=1, duration_ms=1, preview=preview
    )


def print_events(*events: Event, is_observer: bool = False) -> str:
    stream, statuses = io.StringIO(), RunViewAgentsState()
    printer = RunEventPrinter(PlainTerminalScreen(stream), is_observer=is_observer, statuses=statuses)
    for at, event in enumerate(events):
        statuses.apply_event(event, float(at))
        printer.print_event(event)
    return stream.getvalue()


def test_an_observer_sees_no_empty_prompt_for_a_triggered_turn() -> None:
    assert print_events(TurnStarted(agent=LEAD_ID, turn=2, prompt=""), is_observer=True) == ""


def test_text_is_streamed_and_each_call_is_one_line() -> None:
    text = print_events(
        make_text("I look"),
        make_text(" first."),
        AssistantReplied(agent=LEAD_ID, entry=EntryId("1"), preview="I look first.", tool_uses=2),
        make_tool_start("a", "Read", "x.py"),
        make_tool_start("b", "Bash", "pytest -q"),
        make_tool_return("b", "Bash", "2 failed\n[Exit code 1.]", exit_code=1),
        make_tool_return("a", "Read", "1\n2\n3"),
        make_tool_finish("a", "Read"),
        make_tool_finish("b", "Bash", is_error=True),
        make_text("Done."),
    )
    assert text == "\nI look first.\n\n● Read x.py  3 lines\n● Bash pytest -q  → exit 1 · 2 failed\n\nDone."


def test_two_answers_in_a_row_are_separated() -> None:
    text = print_events(
        make_text("One."),
        AssistantReplied(agent=LEAD_ID, entry=EntryId("1"), preview="One.", tool_uses=0),
        make_text("Two."),
        AssistantReplied(agent=LEAD_ID, entry=EntryId("2"), preview="Two.", tool_uses=0),
    )
    assert text == "\nOne.\n\nTwo."


@pytest.mark.parametrize("was_streamed", [True, False])
def test_the_preview_of_an_answer_that_was_not_streamed_is_printed(was_streamed: bool) -> None:
    text = print_events(
        *([make_text("One.")] if was_streamed else []),
        AssistantReplied(agent=LEAD_ID, entry=EntryId("1"), preview="One.", tool_uses=0),
        AssistantReplied(agent=LEAD_ID, entry=EntryId("2"), preview="Two.", tool_uses=0),
        AssistantReplied(agent=LEAD_ID, entry=EntryId("3"), preview="", tool_uses=1),
        AssistantReplied(agent=LEAD_ID, entry=EntryId("4"), preview="Three.", tool_uses=0),
    )
    assert text == "\nOne.\n\nTwo.\n\nThree."


def test_a_journal_without_deltas_is_printed_from_its_previews() -> None:
    text = print_events(
        TurnStarted(agent=LEAD_ID, turn=1, prompt="Fix it."),
        AssistantReplied(agent=LEAD_ID, entry=EntryId("1"), preview="I look.", tool_uses=1),
        make_tool_start("a", "Bash", "make"),
        make_tool_finish("a", "Bash", "ok"),
        TurnEnded(agent=LEAD_ID, turn=1, reason="done", requests=1),
        is_observer=True,
    )
    assert text == "\n› Fix it.\n\nI look.\n\n● Bash make  → exit 0\n"


def test_a_truncated_preview_ends_with_a_whole_word_and_an_ellipsis() -> None:
    long_text = " ".join(["marvellous"] * 30)
    text = print_events(
        TurnStarted(agent=LEAD_ID, turn=1, prompt=long_text[:PREVIEW_LENGTH]),
        AssistantReplied(agent=LEAD_ID, entry=EntryId("1"), preview=long_text[:PREVIEW_LENGTH], tool_uses=0),
        is_observer=True,
    )
    prompt, answer = text.replace("› ", "").split("\n\n")
    assert prompt.strip() == answer.strip() == " ".join(["marvellous"] * 18) + " …"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (17, "one two three"),
        (13, "one two three"),
        (12, "one two …"),
        (9, "one two …"),
        (8, "one …"),
        (3, "on…"),
    ],
)
def test_a_line_is_cut_after_a_whole_word_where_there_is_one(columns: int, expected: str) -> None:
    assert truncate_at_word("one two three", columns) == expected


def test_a_todo_list_is_shown_as_a_list() -> None:
    todos = [
        {"content": "Read the code", "status": "completed", "activeForm": "Reading"},
        {"content": "Run the tests", "status": "in_progress", "activeForm": "Running"},
        {"content": "Write it down", "status": "pending", "activeForm": "Writing"},
    ]
    text = print_events(
        make_tool_start("a", "TodoWrite", '{"todos": []}'),
        make_tool_return("a", "TodoWrite", "The list is now:", todos=todos),
        make_tool_finish("a", "TodoWrite"),
    )
    assert text == (
        "● TodoWrite  1 of 3 done\n    ☑ Read the code\n    ▸ Run the tests\n    ☐ Write it down\n"
    )


def test_a_retried_answer_is_marked_as_broken_off() -> None:
    text = print_events(
        make_text("Half an ans"),
        PartialReplyDiscarded(agent=LEAD_ID, reason="529 overloaded", retry_in=2.0, attempt=1),
        make_text("A whole answer."),
    )
    assert "Half an ans [interrupted]\n  ⟳ retrying in 2.0 s (attempt 1): 529 overloaded\n" in text
    assert text.endswith("\nA whole answer.")


def test_a_denied_call_is_reported_once() -> None:
    question = PermissionQuestion(id="q", agent=LEAD_ID, tool_use_id="a", tool="Bash", input={}, reason="why")
    text = print_events(
        make_tool_start("a", "Bash", "rm x"),
        QuestionAsked(agent=LEAD_ID, question=question),
        QuestionAnswered(agent=LEAD_ID, question="q", answer=DenyAnswer(reason="not today")),
        PermissionDenied(agent=LEAD_ID, call="a", tool="Bash", reason="not today"),
        make_tool_finish("a", "Bash", "Bash was not run: not today", is_error=True),
    )
    assert text.count("not today") == 1


def test_an_observer_sees_that_a_question_is_open() -> None:
    question = PermissionQuestion(id="q", agent=LEAD_ID, tool_use_id="a", tool="Bash", input={}, reason="why")
    assert "may Bash run?" in print_events(QuestionAsked(agent=LEAD_ID, question=question), is_observer=True)
    assert print_events(QuestionAsked(agent=LEAD_ID, question=question)) == ""


@pytest.mark.parametrize("is_observer", [False, True])
def test_other_agents_have_one_line_for_each_notice_and_none_for_their_text(is_observer: bool) -> None:
    joe, ann = AgentId("joe"), AgentId("ann")
    question = PermissionQuestion(id="q", agent=joe, tool_use_id="a", tool="Bash", input={}, reason="why")
    text = print_events(
        TextStreamed(agent=joe, kind="text", text="hidden"),
        AssistantReplied(agent=joe, entry=EntryId("1"), preview="hidden", tool_uses=1),
        ToolStarted(agent=joe, call="a", tool="Bash", preview="hidden"),
        QuestionAsked(agent=joe, question=question),
        QuestionAnswered(agent=joe, question="q", answer=AllowAnswer()),
        QuestionAnswered(agent=joe, question="q", answer=DenyAnswer(reason="hidden")),
        NoteAdded(agent=joe, text="The server\nis gone."),
        NoteAdded(agent=ann, text="The server\nis gone."),
        BudgetThresholdReached(agent=joe, limit="requests", percent=50, spent=2, of=4),
        RepetitionStopped(agent=joe, reason="It looped."),
        AgentMovedToBackground(agent=joe),
        is_observer=is_observer,
    )
    assert text.splitlines() == [
        *(["  ? joe is waiting for an answer: may Bash run?"] if is_observer else []),
        "  joe: allowed once",
        "  The server is gone.",
        HALF,
        "  stopped: It looped.",
        "● agent joe continues in the background",
    ]


def test_a_failed_turn_is_reported_once_for_two_events() -> None:
    end = RunFinished(
        agent=LEAD_ID,
        reason="model_error",
        text="",
        detail="The key is wrong.",
        requests=0,
        usage=Usage(),
        cost_usd=None,
        duration_ms=1,
        duration_api_ms=1,
    )
    # A participant receives both events; the journal, and so an observer, has only the second.
    ended = TurnEnded(agent=LEAD_ID, turn=1, reason="model_error", requests=0, detail="The key is wrong.")
    assert print_events(ended, end).count("The key is wrong.") == 1
    assert print_events(ended, is_observer=True).count("The key is wrong.") == 1


def test_tool_output_is_shown_without_control_codes() -> None:
    text = print_events(
        make_tool_start("a", "Bash", "printf '\x1b[2J'"),
        make_tool_return("a", "Bash", "\x1b[31mred\x1b[0m\x07", exit_code=0),
        make_tool_finish("a", "Bash"),
    )
    assert "\x1b" not in text
    assert text.endswith("→ exit 0 · red\n")


def test_a_call_with_a_permission_question_has_one_line_on_a_terminal() -> None:
    question = PermissionQuestion(id="q", agent=LEAD_ID, tool_use_id="a", tool="Bash", input={}, reason="why")
    screen = draw_on_terminal(
        make_tool_start("a", "Bash", "rm x"),
        QuestionAsked(agent=LEAD_ID, question=question),
        QuestionAnswered(agent=LEAD_ID, question="q", answer=AllowAnswer()),
        make_tool_return("a", "Bash", "", exit_code=0),
        make_tool_finish("a", "Bash"),
    )
    assert screen.lines == ["  allowed once", "● Bash rm x  → exit 0", ""]


HALF = "  50% of the budget is spent: 2 requests of 4 requests"


def test_a_note_leaves_the_running_call_one_line() -> None:
    screen = draw_on_terminal(
        make_tool_start("a", "Bash", "make"),
        NoteAdded(agent=LEAD_ID, text="Something to know."),
        BudgetThresholdReached(agent=LEAD_ID, limit="requests", percent=50, spent=2, of=4),
        make_tool_return("a", "Bash", "", exit_code=0),
        make_tool_finish("a", "Bash"),
    )
    assert screen.lines == ["  Something to know.", HALF, "● Bash make  → exit 0", ""]


def test_a_call_with_long_output_stays_on_one_line() -> None:
    screen = draw_on_terminal(
        make_tool_start("a", "Bash", "x" * 300),
        make_tool_return("a", "Bash", "y" * 300, exit_code=1),
        make_tool_finish("a", "Bash", is_error=True),
    )
    assert len([line for line in screen.lines if line]) == 1
    assert all(len(line) < 80 for line in screen.lines)


LAST = "\x1b[0h"
"""A code without effect that marks the end of the output for the reader."""


def draw_on_terminal(*events: Event) -> EmulatedScreen:
    """Print the events on a real terminal device of 80 columns, and return its screen."""
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w", encoding="utf-8") as stream, os.fdopen(leader, "rb", buffering=0) as read:
        printer = RunEventPrinter(LiveTerminalScreen(stream))
        for event in events:
            printer.print_event(event)
        stream.write(LAST)
        stream.flush()
        data = b""
        while not data.endswith(LAST.encode()):
            data += read.read(65_536)
        screen = EmulatedScreen()
        screen.feed_output(data.decode())
    return screen


@pytest.mark.parametrize(
    ("tool", "text", "data", "is_error", "words"),
    [
        ("Edit", "", {"added": 3, "removed": 1}, False, "+3 −1"),
        ("Read", "a\nb\n", None, False, "2 lines"),
        ("Grep", "x", {"count": 4}, False, "4 found"),
        ("Glob", "No file fits.", {"count": 0}, False, "nothing found"),
        ("AskUserQuestion", "The user answered:\nWhich? → b", {"answers": {"Which?": "b"}}, False, "→ b"),
        ("Bash", "(no output)", {"exit_code": 0}, False, "→ exit 0"),
        ("Bash", "x", {"exit_code": None, "timed_out": True}, True, "→ stopped because it took too long"),
        ("Bash", "", {"shell_id": "s1"}, False, "→ running in the background"),
        ("Bash", "Bash was not run: no", None, True, "✗ Bash was not run: no"),
        ("Edit", "The file was not read.\nmore", None, True, "✗ The file was not read."),
        (
            "Agent",
            "",
            {"status": "teammate_spawned", "name": "ann", "team_name": "roof"},
            False,
            "→ ann has joined roof",
        ),
    ],
)
def test_tool_outcomes_are_summarised_in_a_few_words(
    tool: str, text: str, data: Any, is_error: bool, words: str
) -> None:
    assert describe_tool_outcome(tool, text, data, is_error=is_error)[0] == words


async def test_the_live_line_shows_activity_and_usage_within_its_width() -> None:
    clock = FakeClock()
    activity = TurnActivity(clock)
    assert activity.format_activity_line(80) == "⠋ lead · starting · 0 s"
    activity.apply_event(ModelRequestSent(agent=LEAD_ID, request=RequestId("r"), model="m"))
    assert activity.format_activity_line(80) == "⠋ lead · thinking · 0 s"
    activity.apply_event(
        ModelRequestSettled(
            agent=LEAD_ID,
            request=RequestId("r"),
            model="m",
            usage=Usage(input_tokens=12_000, output_tokens=400),
            cost_usd=0.042,
            duration_ms=1,
        )
    )
    activity.apply_event(make_tool_start("a", "Bash", "make\nall " + "x" * 200))
    line = activity.format_activity_line(80)
    assert line.startswith("⠋ lead · Bash make all xxx")
    assert line.endswith("… · 1 request · 12.4k tokens · $0.0420 · 0 s")
    for columns in range(10, 120):
        assert measure_text_width(activity.format_activity_line(columns)) <= columns
    await clock.advance(59.1)
    assert activity.format_activity_line(80).endswith(" · $0.0420 · 59 s")
    await clock.advance(30)
    assert activity.format_activity_line(80).startswith("⠙ lead · Bash make all")
    assert activity.format_activity_line(80).endswith(" · $0.0420 · 1 min 29 s")
    free = ModelRequestSettled(
        agent=LEAD_ID, request=RequestId("s"), model="m", usage=Usage(), cost_usd=None, duration_ms=1
    )
    activity.apply_event(free)
    assert activity.format_activity_line(80).endswith("… · 2 requests · 12.4k tokens · 1 min 29 s")


def test_progress_in_a_pipe_is_plain_lines() -> None:
    stream = io.StringIO()
    progress = create_progress_display(stream, SystemClock(), RunViewAgentsState())
    for event in (
        make_text("words are not progress"),
        make_tool_start("a", "Bash", "make\nall"),
        make_tool_finish("a", "Bash", "boom", is_error=True),
        PartialReplyDiscarded(agent=LEAD_ID, reason="429", retry_in=1.0, attempt=2),
    ):
        progress.show_event(event)
    progress.close()
    assert stream.getvalue().splitlines() == [
        "Bash make all",
        "Bash failed in 0.0 s: boom",
        "retrying in 1.0 s (attempt 2): 429",
    ]


def test_progress_on_a_terminal_is_one_line_that_is_erased(tmp_path: Path) -> None:
    program = f"""
import asyncio, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from cli_live.test_turn_printer import make_tool_start
from shoal.core.clock import SystemClock
from shoal.surfaces.cli.headless.progress_display import create_progress_display
from shoal.app.run_view.agent_status import RunViewAgentsState
async def main():
    progress = create_progress_display(sys.stderr, SystemClock(), RunViewAgentsState())
    for number in range(2000):
        progress.show_event(make_tool_start("a", "Bash", f"step {{number}}"))
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, enough.set)
    await enough.wait()
    progress.close()
    print("the answer")
asyncio.run(main())
"""
    argv = [sys.executable, "-c", program]
    with PtyTerminal(argv, cwd=tmp_path, env=build_environment(tmp_path), columns=60) as terminal:
        terminal.wait_for("step 1999")
        assert len(terminal.screen.lines) == 1
        # 2,000 events in an instant are a few drawings, not 2,000.
        assert terminal.raw.count("step") < 20
        os.kill(terminal.pid, signal.SIGUSR1)
        assert terminal.wait_for_end() == 0
        assert "step" not in terminal.screen.text
        assert terminal.screen.text.endswith("the answer")


def test_a_permission_question_shows_every_line_of_the_input() -> None:
    lines = [line for line, _ in format_tool_input("Bash", {"command": "a\n" * 50, "flag": True})]
    assert lines == ["command:", *["  a"] * 50, "flag: true"]


@pytest.mark.parametrize(
    ("tool", "tool_input"),
    [
        (
            "Workflow",
            {"script": f"async def main(flow):\n  x = 1{' ' * 600}; await flow.shell('curl evil')"},
        ),
        ("Bash", {"command": f"ls {'x' * 3_000}; curl evil"}),
        ("Bash", {"command": "ls\n" * 3_000 + "curl evil"}),
        ("Bash", {"command": f"ls{chr(10) * 900}curl evil"}),
        ("Bash", {"command": "ls \x1b]0; curl evil\x07"}),
        ("Edit", {"old_string": "a", "new_string": f"{'x' * 500} curl evil"}),
        ("mcp__a__run", {"steps": ["x" * 900, {"then": "curl evil"}]}),
        ("mcp__a__run", {"\x1b]0;curl evil\x07": 1}),
    ],
)
@pytest.mark.parametrize("screen", [PlainTerminalScreen, LiveTerminalScreen])
def test_a_permission_question_hides_nothing_that_will_run(
    tool: str, tool_input: dict[str, Any], screen: type[PlainTerminalScreen | LiveTerminalScreen]
) -> None:
    stream = io.StringIO()
    question = PermissionQuestion(
        id="q", agent=LEAD_ID, tool_use_id="a", tool=tool, input=tool_input, reason="why"
    )
    TerminalQuestionDialog(question).show(screen(stream))
    assert "curl evil" in " ".join(stream.getvalue().split())


def test_long_runs_of_blanks_are_shown_by_their_length() -> None:
    tool_input = {"command": f"ls{' ' * 600};{chr(9) * 50}x\n{chr(10) * 30}y\r\x1b[1A\u202e"}
    assert [line for line, _ in format_tool_input("Bash", tool_input)] == [
        "command:",
        "  ls[… 600 spaces …];[… 50 blank characters …]x",
        "  [… 30 empty lines …]",
        "  y\\r\\x1b[1A\\u202e",
    ]


def test_a_question_longer_than_the_screen_asks_to_scroll_up() -> None:
    stream = io.StringIO()
    question = PermissionQuestion(
        id="q", agent=LEAD_ID, tool_use_id="a", tool="Bash", input={"command": "x" * 3_000}, reason="why"
    )
    TerminalQuestionDialog(question).show(PlainTerminalScreen(stream))
    assert "Scroll up to read all of it: 40 rows, 3,009 characters." in stream.getvalue()


def test_a_plan_hides_no_text_between_control_codes() -> None:
    stream = io.StringIO()
    question = PlanApprovalQuestion(
        id="q", agent=LEAD_ID, path="plan.md", plan=f"1. ls{' ' * 600}\x1b]0;curl evil\x07\n", digest="1"
    )
    TerminalQuestionDialog(question).show(PlainTerminalScreen(stream))
    assert "    1. ls[… 600 spaces …]\\x1b]0;curl evil\\x07\n" in stream.getvalue()


def test_a_permission_question_for_an_edit_shows_the_change() -> None:
    tool_input = {"file_path": "a.py", "old_string": "if x:\n    y\n", "new_string": "y", "replace_all": True}
    lines = [line for line, _ in format_tool_input("Edit", tool_input)]
    assert lines == ["file_path: a.py", "- if x:", "-     y", "+ y", "replace_all: true"]


@pytest.mark.parametrize(
    ("rule", "offered"),
    [
        ("Write(/**)", "  y once · a for this session: Write(/**) · n no · or type a reason"),
        (f"Bash({'x' * 90})", "  y once · a for this session: only this call · n no · or type a reason"),
        ("", "  y once · n no · or type a reason"),
    ],
)
def test_a_question_offers_what_can_be_answered_in_one_row(rule: str, offered: str) -> None:
    stream = io.StringIO()
    question = PermissionQuestion(
        id="q", agent=LEAD_ID, tool_use_id="a", tool="Bash", input={}, reason="why", rule=rule
    )
    TerminalQuestionDialog(question).show(PlainTerminalScreen(stream))
    assert stream.getvalue().splitlines()[-1] == offered
    assert len(offered) < 80


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", AllowAnswer()),
        ("a", AllowAnswer(remember="session")),
        ("n", DenyAnswer(reason="the user said no.")),
        ("use git mv instead", DenyAnswer(reason="use git mv instead")),
        ("  ", None),
    ],
)
def test_a_permission_is_answered_by_a_letter_or_a_reason(line: str, answer: Any) -> None:
    question = PermissionQuestion(
        id="q", agent=LEAD_ID, tool_use_id="a", tool="Bash", input={}, reason="why", rule="Bash(git mv:*)"
    )
    assert TerminalQuestionDialog(question).parse_answer_line(line) == answer


@pytest.mark.parametrize("line", ["a", "s"])
def test_remembering_without_a_rule_is_not_accepted(line: str) -> None:
    question = PermissionQuestion(id="q", agent=LEAD_ID, tool_use_id="a", tool="Bash", input={}, reason="why")
    assert TerminalQuestionDialog(question).parse_answer_line(line) is None


def test_choices_are_answered_one_after_the_other_by_numbers_or_words() -> None:
    options = (ChoiceOption(label="red"), ChoiceOption(label="blue"))
    first = MultipleChoice(question="Which?", header="Colour", options=options)
    second = MultipleChoice(question="Which ones?", header="Colours", options=options, multi_select=True)
    asking = TerminalQuestionDialog(ChoiceQuestion(id="q", agent=LEAD_ID, choices=(first, second)))
    assert asking.prompt_label == "Colour?"
    assert asking.parse_answer_line("1, 2") is None
    assert asking.parse_answer_line("3") is None
    assert asking.parse_answer_line("2") is None
    assert asking.prompt_label == "Colours?"
    assert asking.parse_answer_line("1,2") == ChoiceAnswer(
        answers={"Which?": "blue", "Which ones?": "red, blue"}
    )
