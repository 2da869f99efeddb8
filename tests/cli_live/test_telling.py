"""What a person is told of a turn's events: on a terminal, in a pipe, and in one live line."""

from __future__ import annotations

import io
import os
import pty
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_live.terminal import Screen as Seen
from cli_live.terminal import Terminal, environment
from shoal.app.picture.standing import Standings
from shoal.core.clock import SystemClock
from shoal.core.events import (
    PREVIEW,
    Answered,
    Asked,
    AssistantSaid,
    BudgetWarned,
    Discarded,
    Event,
    Finished,
    Heard,
    Noted,
    PermissionDenied,
    RequestSent,
    RequestSettled,
    ToolFinished,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from shoal.core.ids import LEAD, EntryId, RequestId
from shoal.core.messages import ToolResult
from shoal.core.questions import Allowed, Choice, Choose, Chosen, Denied, MayRun, Option
from shoal.core.usage import Usage
from shoal.surfaces.cli.headless.progress import progress_for
from shoal.surfaces.cli.plain.asking import Asking, shown_input
from shoal.surfaces.cli.plain.telling import Telling
from shoal.surfaces.terminal.activity import Activity
from shoal.surfaces.terminal.outcomes import outcome
from shoal.surfaces.terminal.paint import cut_at_word, width
from shoal.surfaces.terminal.screen import LiveScreen, PlainScreen


def heard(text: str, kind: Any = "text") -> Heard:
    return Heard(agent=LEAD, kind=kind, text=text)


def started(call: str, tool: str, preview: str) -> ToolStarted:
    return ToolStarted(agent=LEAD, call=call, tool=tool, preview=preview)


def returned(call: str, tool: str, text: str, **data: Any) -> ToolReturned:
    return ToolReturned(
        agent=LEAD, call=call, tool=tool, result=ToolResult(tool_use_id=call, content=text), data=data or None
    )


def finished(call: str, tool: str, preview: str = "", *, is_error: bool = False) -> ToolFinished:
    return ToolFinished(
        agent=LEAD, call=call, tool=tool, is_error=is_error, size=1, duration_ms=1, preview=preview
    )


def told(*events: Event, onlooker: bool = False) -> str:
    stream = io.StringIO()
    telling = Telling(PlainScreen(stream), onlooker=onlooker)
    for event in events:
        telling.hear(event)
    return stream.getvalue()


def test_a_turn_that_no_person_asked_for_shows_no_empty_prompt_to_onlookers() -> None:
    assert told(TurnStarted(agent=LEAD, turn=2, prompt=""), onlooker=True) == ""


def test_words_come_as_they_are_heard_and_calls_are_one_line_each() -> None:
    text = told(
        heard("I look"),
        heard(" first."),
        AssistantSaid(agent=LEAD, entry=EntryId("1"), preview="I look first.", tool_uses=2),
        started("a", "Read", "x.py"),
        started("b", "Bash", "pytest -q"),
        returned("b", "Bash", "2 failed\n[Exit code 1.]", exit_code=1),
        returned("a", "Read", "1\n2\n3"),
        finished("a", "Read"),
        finished("b", "Bash", is_error=True),
        heard("Done."),
    )
    assert text == "\nI look first.\n\n● Read x.py  3 lines\n● Bash pytest -q  → exit 1 · 2 failed\n\nDone."


def test_two_answers_in_a_row_stand_apart() -> None:
    text = told(
        heard("One."),
        AssistantSaid(agent=LEAD, entry=EntryId("1"), preview="One.", tool_uses=0),
        heard("Two."),
        AssistantSaid(agent=LEAD, entry=EntryId("2"), preview="Two.", tool_uses=0),
    )
    assert text == "\nOne.\n\nTwo."


def test_a_journal_without_deltas_is_told_from_its_previews() -> None:
    text = told(
        TurnStarted(agent=LEAD, turn=1, prompt="Fix it."),
        AssistantSaid(agent=LEAD, entry=EntryId("1"), preview="I look.", tool_uses=1),
        started("a", "Bash", "make"),
        finished("a", "Bash", "ok"),
        TurnEnded(agent=LEAD, turn=1, reason="done", requests=1),
        onlooker=True,
    )
    assert text == "\n› Fix it.\n\nI look.\n\n● Bash make  → exit 0\n"


def test_what_a_journal_cut_short_ends_with_a_whole_word_and_a_mark() -> None:
    long = " ".join(["marvellous"] * 30)
    text = told(
        TurnStarted(agent=LEAD, turn=1, prompt=long[:PREVIEW]),
        AssistantSaid(agent=LEAD, entry=EntryId("1"), preview=long[:PREVIEW], tool_uses=0),
        onlooker=True,
    )
    asked, said = text.replace("› ", "").split("\n\n")
    assert asked.strip() == said.strip() == " ".join(["marvellous"] * 18) + " …"


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (17, "one two three"),
        (13, "one two three"),
        (12, "one two …"),
        (9, "one two …"),
        (8, "one …"),
        (3, "on…"),
    ],
)
def test_a_line_is_cut_after_a_whole_word_where_there_is_one(columns: int, shown: str) -> None:
    assert cut_at_word("one two three", columns) == shown


def test_a_list_of_steps_is_shown_as_one() -> None:
    todos = [
        {"content": "Read the code", "status": "completed", "activeForm": "Reading"},
        {"content": "Run the tests", "status": "in_progress", "activeForm": "Running"},
        {"content": "Write it down", "status": "pending", "activeForm": "Writing"},
    ]
    text = told(
        started("a", "TodoWrite", '{"todos": []}'),
        returned("a", "TodoWrite", "The list is now:", todos=todos),
        finished("a", "TodoWrite"),
    )
    assert text == (
        "● TodoWrite  1 of 3 done\n    ☑ Read the code\n    ▸ Run the tests\n    ☐ Write it down\n"
    )


def test_an_answer_that_is_asked_again_is_marked_as_broken_off() -> None:
    text = told(
        heard("Half an ans"),
        Discarded(agent=LEAD, reason="529 overloaded", retry_in=2.0, attempt=1),
        heard("A whole answer."),
    )
    assert "Half an ans [broken off]\n  ⟳ asked again in 2.0 s (attempt 1): 529 overloaded\n" in text
    assert text.endswith("\nA whole answer.")


def test_a_denied_call_says_so_once() -> None:
    question = MayRun(id="q", agent=LEAD, tool_use_id="a", tool="Bash", input={}, reason="why")
    text = told(
        started("a", "Bash", "rm x"),
        Asked(agent=LEAD, question=question),
        Answered(agent=LEAD, question="q", answer=Denied(reason="not today")),
        PermissionDenied(agent=LEAD, call="a", tool="Bash", reason="not today"),
        finished("a", "Bash", "Bash was not run: not today", is_error=True),
    )
    assert text.count("not today") == 1


def test_one_who_looks_on_is_told_that_a_question_is_open() -> None:
    question = MayRun(id="q", agent=LEAD, tool_use_id="a", tool="Bash", input={}, reason="why")
    assert "may Bash run?" in told(Asked(agent=LEAD, question=question), onlooker=True)
    assert told(Asked(agent=LEAD, question=question)) == ""


def test_an_end_is_told_once_though_two_events_tell_it() -> None:
    end = Finished(
        agent=LEAD,
        reason="model_error",
        text="",
        detail="The key is wrong.",
        requests=0,
        usage=Usage(),
        cost_usd=None,
        duration_ms=1,
        duration_api_ms=1,
    )
    # Who takes part hears both; a journal, and so one who looks on, has only the second.
    ended = TurnEnded(agent=LEAD, turn=1, reason="model_error", requests=0, detail="The key is wrong.")
    assert told(ended, end).count("The key is wrong.") == 1
    assert told(ended, onlooker=True).count("The key is wrong.") == 1


def test_what_a_tool_wrote_is_shown_without_its_control_codes() -> None:
    text = told(
        started("a", "Bash", "printf '\x1b[2J'"),
        returned("a", "Bash", "\x1b[31mred\x1b[0m\x07", exit_code=0),
        finished("a", "Bash"),
    )
    assert "\x1b" not in text
    assert text.endswith("→ exit 0 · red\n")


def test_a_call_that_was_asked_about_has_one_line_on_a_terminal() -> None:
    question = MayRun(id="q", agent=LEAD, tool_use_id="a", tool="Bash", input={}, reason="why")
    screen = on_terminal(
        started("a", "Bash", "rm x"),
        Asked(agent=LEAD, question=question),
        Answered(agent=LEAD, question="q", answer=Allowed()),
        returned("a", "Bash", "", exit_code=0),
        finished("a", "Bash"),
    )
    assert screen.lines == ["  allowed once", "● Bash rm x  → exit 0", ""]


HALF = "  50 % of the budget is spent: 2 requests of 4 requests"


def test_a_note_leaves_the_running_call_one_line() -> None:
    screen = on_terminal(
        started("a", "Bash", "make"),
        Noted(agent=LEAD, text="Something to know."),
        BudgetWarned(agent=LEAD, limit="requests", percent=50, spent=2, of=4),
        returned("a", "Bash", "", exit_code=0),
        finished("a", "Bash"),
    )
    assert screen.lines == ["  Something to know.", HALF, "● Bash make  → exit 0", ""]


def test_a_call_stays_one_line_however_much_it_says() -> None:
    screen = on_terminal(
        started("a", "Bash", "x" * 300),
        returned("a", "Bash", "y" * 300, exit_code=1),
        finished("a", "Bash", is_error=True),
    )
    assert len([line for line in screen.lines if line]) == 1
    assert all(len(line) < 80 for line in screen.lines)


LAST = "\x1b[0h"
"""A code that means nothing, so that the reader knows when it has everything."""


def on_terminal(*events: Event) -> Seen:
    """What 80 columns show, by way of a real terminal device."""
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w", encoding="utf-8") as stream, os.fdopen(leader, "rb", buffering=0) as read:
        telling = Telling(LiveScreen(stream))
        for event in events:
            telling.hear(event)
        stream.write(LAST)
        stream.flush()
        data = b""
        while not data.endswith(LAST.encode()):
            data += read.read(65_536)
        seen = Seen()
        seen.feed(data.decode())
    return seen


@pytest.mark.parametrize(
    ("tool", "text", "data", "is_error", "words"),
    [
        ("Edit", "", {"added": 3, "removed": 1}, False, "+3 −1"),
        ("Read", "a\nb\n", None, False, "2 lines"),
        ("Grep", "x", {"count": 4}, False, "4 found"),
        ("Glob", "No file fits.", {"count": 0}, False, "nothing found"),
        ("AskUserQuestion", "The person answered:\nWhich? → b", {"answers": {"Which?": "b"}}, False, "→ b"),
        ("Bash", "(no output)", {"exit_code": 0}, False, "→ exit 0"),
        ("Bash", "x", {"exit_code": None, "timed_out": True}, True, "→ ended: it took too long"),
        ("Bash", "", {"shell_id": "s1"}, False, "→ runs in the background"),
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
def test_outcomes_are_a_few_words(tool: str, text: str, data: Any, is_error: bool, words: str) -> None:
    assert outcome(tool, text, data, is_error=is_error)[0] == words


def test_the_live_line_says_what_is_done_and_what_it_took_within_its_width() -> None:
    activity = Activity(SystemClock())
    activity.hear(RequestSent(agent=LEAD, request=RequestId("r"), model="m"))
    assert "lead · thinking" in activity.line(80)
    activity.hear(
        RequestSettled(
            agent=LEAD,
            request=RequestId("r"),
            model="m",
            usage=Usage(input_tokens=12_000, output_tokens=400),
            cost_usd=0.042,
            duration_ms=1,
        )
    )
    activity.hear(started("a", "Bash", "make\nall " + "x" * 200))
    line = activity.line(80)
    assert line.startswith("⠋ lead · Bash make all xxx")
    assert line.endswith("… · 1 request · 12.4k tokens · $0.0420 · 0 s")
    for columns in range(10, 120):
        assert width(activity.line(columns)) <= columns


def test_progress_in_a_pipe_is_plain_lines() -> None:
    stream = io.StringIO()
    progress = progress_for(stream, SystemClock(), Standings())
    for event in (
        heard("words are not progress"),
        started("a", "Bash", "make\nall"),
        finished("a", "Bash", "boom", is_error=True),
        Discarded(agent=LEAD, reason="429", retry_in=1.0, attempt=2),
    ):
        progress.hear(event)
    progress.close()
    assert stream.getvalue().splitlines() == [
        "Bash make all",
        "Bash failed in 0.0 s: boom",
        "asking again in 1.0 s (attempt 2): 429",
    ]


def test_progress_on_a_terminal_is_one_line_that_goes_away(tmp_path: Path) -> None:
    program = f"""
import asyncio, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from cli_live.test_telling import started
from shoal.core.clock import SystemClock
from shoal.surfaces.cli.headless.progress import progress_for
from shoal.app.picture.standing import Standings
async def main():
    progress = progress_for(sys.stderr, SystemClock(), Standings())
    for number in range(2000):
        progress.hear(started("a", "Bash", f"step {{number}}"))
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, enough.set)
    await enough.wait()
    progress.close()
    print("the answer")
asyncio.run(main())
"""
    argv = [sys.executable, "-c", program]
    with Terminal(argv, cwd=tmp_path, env=environment(tmp_path), columns=60) as terminal:
        terminal.wait_for("step 1999")
        assert len(terminal.screen.lines) == 1
        # 2,000 events in an instant are a few drawings, not 2,000.
        assert terminal.raw.count("step") < 20
        os.kill(terminal.pid, signal.SIGUSR1)
        assert terminal.wait_for_end() == 0
        assert "step" not in terminal.screen.text
        assert terminal.screen.text.endswith("the answer")


def test_what_would_run_is_shown_whole_or_the_cut_is_marked() -> None:
    lines = [line for line, _ in shown_input("Bash", {"command": "a\n" * 50, "flag": True})]
    assert lines[:2] == ["command:", "  a"]
    assert lines[-2:] == ["  … 30 more lines (100 characters in all)", "flag: true"]


def test_an_edit_is_asked_about_as_a_change() -> None:
    given = {"file_path": "a.py", "old_string": "if x:\n    y\n", "new_string": "y", "replace_all": True}
    lines = [line for line, _ in shown_input("Edit", given)]
    assert lines == ["file_path: a.py", "- if x:", "-     y", "+ y", "replace_all: true"]


@pytest.mark.parametrize(
    ("rule", "offered"),
    [
        ("Write(/**)", "  y once · a for this session: Write(/**) · n no · or say why not"),
        (f"Bash({'x' * 90})", "  y once · a for this session: just this · n no · or say why not"),
        ("", "  y once · n no · or say why not"),
    ],
)
def test_a_question_offers_what_can_be_answered_in_one_row(rule: str, offered: str) -> None:
    stream = io.StringIO()
    question = MayRun(id="q", agent=LEAD, tool_use_id="a", tool="Bash", input={}, reason="why", rule=rule)
    Asking(question).show(PlainScreen(stream))
    assert stream.getvalue().splitlines()[-1] == offered
    assert len(offered) < 80


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", Allowed()),
        ("a", Allowed(remember="session")),
        ("n", Denied(reason="the person said no.")),
        ("use git mv instead", Denied(reason="use git mv instead")),
        ("  ", None),
    ],
)
def test_a_permission_is_answered_by_a_letter_or_by_why_not(line: str, answer: Any) -> None:
    question = MayRun(
        id="q", agent=LEAD, tool_use_id="a", tool="Bash", input={}, reason="why", rule="Bash(git mv:*)"
    )
    assert Asking(question).take(line) == answer


@pytest.mark.parametrize("line", ["a", "s"])
def test_a_yes_that_would_keep_nothing_is_not_taken(line: str) -> None:
    question = MayRun(id="q", agent=LEAD, tool_use_id="a", tool="Bash", input={}, reason="why")
    assert Asking(question).take(line) is None


def test_choices_are_answered_one_after_the_other_by_numbers_or_words() -> None:
    options = (Option(label="red"), Option(label="blue"))
    first = Choice(question="Which?", header="Colour", options=options)
    second = Choice(question="Which ones?", header="Colours", options=options, multi_select=True)
    asking = Asking(Choose(id="q", agent=LEAD, choices=(first, second)))
    assert asking.label == "Colour?"
    assert asking.take("1, 2") is None
    assert asking.take("3") is None
    assert asking.take("2") is None
    assert asking.label == "Colours?"
    assert asking.take("1,2") == Chosen(answers={"Which?": "blue", "Which ones?": "red, blue"})
