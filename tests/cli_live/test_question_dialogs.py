"""Questions at the prompt: what is shown, which lines answer them, and their queue."""

from __future__ import annotations

import io
from typing import Any

import pytest

from cli_live.typed_terminal import TypedPrompt
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.permission_changes import AddPermissionRulesSuggestion, SuggestedPermissionRule
from shoal.core.permissions.questions import (
    AllowAnswer,
    ChoiceAnswer,
    ChoiceOption,
    ChoiceQuestion,
    DenyAnswer,
    MultipleChoice,
    PermissionQuestion,
    PlanApprovalQuestion,
    PlanApprovedAnswer,
    Question,
)
from shoal.surfaces.cli.plain.question_dialog import TerminalQuestionDialog
from shoal.surfaces.cli.plain.question_queue import TerminalQuestionDialogQueue
from shoal.surfaces.terminal.screen import PlainTerminalScreen

SAVE = AddPermissionRulesSuggestion(
    rules=(SuggestedPermissionRule(tool_name="Bash", rule_content="make:*"),), destination="localSettings"
)
NO = DenyAnswer(reason="the user said no.")


def make_permission(ident: str = "q", **facts: Any) -> PermissionQuestion:
    known: dict[str, Any] = {"agent": LEAD_ID, "tool_use_id": "t", "tool": "Bash", "reason": "a rule asks"}
    return PermissionQuestion(**{"id": ident, "input": {"command": "make"}} | known | facts)


PLAN = PlanApprovalQuestion(
    id="p", agent=LEAD_ID, plan="one\ntwo", path="/p.md", digest="d", wishes=("run tests",)
)
WAY = MultipleChoice(
    question="Which way?",
    header="way",
    options=(ChoiceOption(label="left", description="the short one"), ChoiceOption(label="right")),
)
PARTS = MultipleChoice(question="Which parts?", header="parts", options=WAY.options, multi_select=True)


def make_choice(*choices: MultipleChoice) -> ChoiceQuestion:
    return ChoiceQuestion(id="c", agent=LEAD_ID, choices=choices)


def show(question: Question, asker: str = "") -> list[str]:
    stream = io.StringIO()
    TerminalQuestionDialog(question, asker).show(PlainTerminalScreen(stream))
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(
    ("question", "asker", "lines"),
    [
        (
            make_permission(),
            "",
            ["? Bash asks to run: a rule asks", "    command: make", "  y once · n no · or type a reason"],
        ),
        (
            make_permission(rule="Bash(make:*)", suggestions=(SAVE,)),
            "joe",
            [
                "? Bash asks to run for joe: a rule asks",
                "    command: make",
                "  s save in your settings for this project: allow Bash(make:*)",
                "  y once · a for this session: Bash(make:*) · n no · or type a reason",
            ],
        ),
        (
            make_permission(rule="x" * 31, input={}),
            "",
            [
                "? Bash asks to run: a rule asks",
                "  y once · a for this session: only this call · n no · or type a reason",
            ],
        ),
        (
            PLAN,
            "",
            [
                "? The plan (/p.md)",
                "    one",
                "    two",
                "  will ask for run tests",
                "  y approve · e approve and accept edits · n no · or type what to change",
            ],
        ),
        (
            make_choice(WAY),
            "joe",
            [
                "? joe asks: Which way?",
                "  1  left  the short one",
                "  2  right",
                "  a number, or your own answer",
            ],
        ),
        (
            make_choice(PARTS),
            "",
            [
                "? Which parts?",
                "  1  left  the short one",
                "  2  right",
                "  numbers, with commas, or your own answer",
            ],
        ),
    ],
)
def test_a_question_is_shown_with_its_answers(question: Question, asker: str, lines: list[str]) -> None:
    assert show(question, asker) == lines


def test_the_plan_of_an_agent_is_named() -> None:
    assert show(PLAN, "joe")[0] == "? Plan of joe (/p.md)"


@pytest.mark.parametrize(("rows", "is_long"), [(20, False), (21, True)])
def test_only_a_text_longer_than_the_screen_is_announced(rows: int, is_long: bool) -> None:
    text = "\n".join(["x"] * rows)
    for lines in (
        show(make_permission(input={"old_string": text}, tool="Edit")),
        show(PlanApprovalQuestion(id="p", agent=LEAD_ID, plan=text, path="/p", digest="d")),
    ):
        assert any("Scroll up to read all of it: 21 rows, " in line for line in lines) is is_long
    wide = show(make_permission(input={"old_string": "x" * (76 * rows - 2)}, tool="Edit"))
    assert any(f"{rows} rows, {76 * rows:,} characters" in line for line in wide) is is_long


@pytest.mark.parametrize(
    ("question", "line", "answer"),
    [
        (make_permission(), "", None),
        (make_permission(), "  ", None),
        (make_permission(), " Y ", AllowAnswer()),
        (make_permission(), "yes", AllowAnswer()),
        (make_permission(), "n", NO),
        (make_permission(), "NO", NO),
        (make_permission(), " Not now ", DenyAnswer(reason="Not now")),
        (make_permission(), "a", None),
        (make_permission(rule="Bash"), "a", AllowAnswer(remember="session")),
        (make_permission(rule="Bash"), "always", AllowAnswer(remember="session")),
        (make_permission(rule="Bash"), "s", None),
        (make_permission(suggestions=(SAVE,)), "s", AllowAnswer(remember="settings")),
        (PLAN, "", None),
        (PLAN, "y", PlanApprovedAnswer(digest="d")),
        (PLAN, "Yes", PlanApprovedAnswer(digest="d")),
        (PLAN, "e", PlanApprovedAnswer(digest="d", mode="acceptEdits")),
        (PLAN, "n", NO),
        (PLAN, "no", NO),
        (PLAN, " Use less ", DenyAnswer(reason="Use less")),
        (make_choice(WAY), "", None),
        (make_choice(WAY), "0", None),
        (make_choice(WAY), "1", ChoiceAnswer(answers={"Which way?": "left"})),
        (make_choice(WAY), "2", ChoiceAnswer(answers={"Which way?": "right"})),
        (make_choice(WAY), "3", None),
        (make_choice(WAY), "1, 2", None),
        (make_choice(WAY), "1 km", ChoiceAnswer(answers={"Which way?": "1 km"})),
        (make_choice(PARTS), "1,2", ChoiceAnswer(answers={"Which parts?": "left, right"})),
        (make_choice(PARTS), "2 1", ChoiceAnswer(answers={"Which parts?": "right, left"})),
        (make_choice(PARTS), "1 3", None),
    ],
)
def test_a_line_answers_or_does_not(question: Question, line: str, answer: Any) -> None:
    assert TerminalQuestionDialog(question).parse_answer_line(line) == answer


def test_several_choices_are_answered_in_turn() -> None:
    dialog = TerminalQuestionDialog(make_choice(WAY, PARTS))
    assert dialog.prompt_label == "way?"
    assert dialog.parse_answer_line("9") is None
    assert dialog.prompt_label == "way?"
    assert dialog.parse_answer_line("1") is None
    assert dialog.prompt_label == "parts?"
    answers = {"Which way?": "left", "Which parts?": "left, right"}
    assert dialog.parse_answer_line("1 2") == ChoiceAnswer(answers=answers)
    assert TerminalQuestionDialog(make_choice(WAY, WAY)).parse_answer_line("2") is not None
    assert TerminalQuestionDialog(make_permission()).prompt_label == "allow?"
    assert TerminalQuestionDialog(PLAN).prompt_label == "approve?"


class ShownQuestions:
    """A queue at a prompt, and the questions that were shown."""

    def __init__(self) -> None:
        self.prompt = TypedPrompt()
        self.shown: list[str] = []
        self.can_show = True
        self.queue = TerminalQuestionDialogQueue(
            self.prompt, lambda dialog: self.shown.append(dialog.question.id), lambda: self.can_show
        )

    def add(self, *names: str) -> None:
        for name in names:
            self.queue.add(TerminalQuestionDialog(make_permission(name)))


async def test_questions_are_shown_one_after_the_other() -> None:
    asked = ShownQuestions()
    assert (len(asked.queue), asked.queue.first) == (0, None)
    asked.add("a", "b", "c")
    assert (asked.shown, len(asked.queue), asked.prompt.questions) == (["a"], 3, ["allow?"])
    asked.queue.remove_question("b")
    assert asked.shown == ["a"]
    assert asked.prompt.is_question_open
    asked.queue.remove_question("a")
    assert asked.shown == ["a", "c"]
    assert asked.queue.first is not None
    assert asked.queue.first.question.id == "c"
    asked.queue.remove_question("unknown")
    assert asked.shown == ["a", "c"]
    asked.queue.remove_question("c")
    assert (len(asked.queue), asked.prompt.is_question_open) == (0, False)
    asked.queue.show_first()
    assert asked.shown == ["a", "c"]
    asked.add("d")
    asked.queue.clear()
    assert len(asked.queue) == 0


async def test_no_question_is_shown_while_another_answer_is_awaited() -> None:
    asked = ShownQuestions()
    asked.can_show = False
    asked.prompt.begin_question("own question")
    asked.add("a", "b")
    asked.queue.remove_question("a")
    assert asked.shown == []
    assert asked.prompt.is_question_open
    asked.can_show = True
    asked.queue.show_first()
    assert asked.shown == ["b"]
