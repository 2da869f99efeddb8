"""Questions of agents shown at the prompt, and the answers parsed from typed lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.core.permissions.permission_changes import find_permission_suggestion
from shoal.core.permissions.questions import (
    AllowAnswer,
    Answer,
    ChoiceAnswer,
    ChoiceQuestion,
    DenyAnswer,
    MultipleChoice,
    PermissionQuestion,
    PlanApprovalQuestion,
    PlanApprovedAnswer,
    Question,
)
from shoal.core.text.text_format import make_visible_in_one_line, split_into_visible_lines
from shoal.surfaces.terminal.question_text import (
    DEFAULT_DENIAL_REASON,
    describe_permission_suggestion,
    format_tool_input_value,
    list_remember_options,
)
from shoal.surfaces.terminal.screen import TerminalScreen
from shoal.surfaces.terminal.text_styles import BOLD, DIM, GREEN, RED, YELLOW, measure_text_width

_LONG_INPUT_LINES = 20
"""The question says how long an input with more lines than this is: its beginning may be off the screen."""
_CHANGE_MARKS = {"old_string": ("-", RED), "new_string": ("+", GREEN)}
_MAX_RULE_WIDTH = 30


def show_permission_question(screen: TerminalScreen, question: PermissionQuestion, asker: str = "") -> None:
    screen.end_line()
    screen.write("? ", YELLOW)
    screen.write(question.tool, BOLD)
    screen.write(f" asks to run for {asker}" if asker else " asks to run")
    screen.write(f": {question.reason}\n", DIM)
    lines = format_tool_input(question.tool, question.input)
    for line, style in lines:
        screen.write(f"    {line}\n", style)
    _write_length_of_long_text(screen, [line for line, _ in lines])
    suggestion = find_permission_suggestion(question.suggestions, "localSettings")
    if suggestion is not None:
        screen.write(
            f"  s save in your settings for this project: {describe_permission_suggestion(suggestion)}\n", DIM
        )
    screen.write(
        f"  y once · {_format_allow_for_session_option(question.rule)}n no · or type a reason\n", DIM
    )


def _format_allow_for_session_option(rule: str) -> str:
    if not rule:
        return ""
    can_be_shown = len(rule) <= _MAX_RULE_WIDTH and rule.isprintable()
    return f"a for this session: {rule if can_be_shown else 'only this call'} · "


def format_tool_input(tool: str, tool_input: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Format the whole input of a call as lines with their styles, nothing is left out."""
    lines: list[tuple[str, str]] = []
    for key, value in tool_input.items():
        text = format_tool_input_value(value)
        mark, style = _CHANGE_MARKS.get(key, ("", "")) if tool == "Edit" else ("", "")
        if mark:
            lines.extend((f"{mark} {line}", style) for line in split_into_visible_lines(text))
        elif "\n" in text:
            lines.append((f"{make_visible_in_one_line(key)}:", ""))
            lines.extend((f"  {line}", "") for line in split_into_visible_lines(text))
        else:
            lines.append((f"{make_visible_in_one_line(key)}: {make_visible_in_one_line(text)}", ""))
    return lines


def _write_length_of_long_text(screen: TerminalScreen, lines: list[str]) -> None:
    rows = sum(max(1, -(-measure_text_width(line) // max(screen.columns - 4, 1))) for line in lines)
    if rows > _LONG_INPUT_LINES:
        characters = sum(map(len, lines))
        screen.write(f"  Scroll up to read all of it: {rows:,} rows, {characters:,} characters.\n", YELLOW)


def show_plan_question(screen: TerminalScreen, question: PlanApprovalQuestion, asker: str = "") -> None:
    screen.end_line()
    screen.write("? ", YELLOW)
    screen.write(f"Plan of {asker}" if asker else "The plan", BOLD)
    screen.write(f" ({question.path})\n", DIM)
    lines = split_into_visible_lines(question.plan)
    for line in lines:
        screen.write(f"    {line}\n")
    _write_length_of_long_text(screen, lines)
    for requested_permission in question.wishes:
        screen.write(f"  will ask for {make_visible_in_one_line(requested_permission)}\n", DIM)
    screen.write("  y approve · e approve and accept edits · n no · or type what to change\n", DIM)


def parse_plan_approval(question: PlanApprovalQuestion, line: str) -> Answer | None:
    """Return the answer; None if the line is empty."""
    match line.strip().lower():
        case "":
            return None
        case "y" | "yes":
            return PlanApprovedAnswer(digest=question.digest)
        case "e":
            return PlanApprovedAnswer(digest=question.digest, mode="acceptEdits")
        case "n" | "no":
            return DenyAnswer(reason=DEFAULT_DENIAL_REASON)
        case _:
            return DenyAnswer(reason=line.strip())


def parse_permission_answer(question: PermissionQuestion, line: str) -> Answer | None:
    """Return the answer; None if the line is empty or not an option."""
    match line.strip().lower():
        case "":
            return None
        case "y" | "yes":
            return AllowAnswer()
        case "a" | "always":
            return AllowAnswer(remember="session") if "session" in list_remember_options(question) else None
        case "s":
            return AllowAnswer(remember="settings") if "settings" in list_remember_options(question) else None
        case "n" | "no":
            return DenyAnswer(reason=DEFAULT_DENIAL_REASON)
        case _:
            return DenyAnswer(reason=line.strip())


def show_multiple_choice(screen: TerminalScreen, choice: MultipleChoice, asker: str = "") -> None:
    screen.end_line()
    screen.write("? ", YELLOW)
    screen.write(f"{asker} asks: " if asker else "")
    screen.write(f"{choice.question}\n", BOLD)
    for number, option in enumerate(choice.options, 1):
        screen.write(f"  {number}  {option.label}")
        screen.write(f"  {option.description}\n" if option.description else "\n", DIM)
    input_hint = "numbers, with commas" if choice.multi_select else "a number"
    screen.write(f"  {input_hint}, or your own answer\n", DIM)


def parse_choice_answer(choice: MultipleChoice, line: str) -> str | None:
    """Return the chosen labels or the typed text; None if the line is not usable."""
    answer_text = line.strip()
    if not answer_text:
        return None
    parts = [part.strip() for part in answer_text.replace(",", " ").split()]
    if all(part.isdigit() for part in parts):
        numbers = [int(part) for part in parts]
        if not all(1 <= number <= len(choice.options) for number in numbers):
            return None
        if len(numbers) > 1 and not choice.multi_select:
            return None
        return ", ".join(choice.options[number - 1].label for number in numbers)
    return answer_text


class TerminalQuestionDialog:
    """Question being shown: a permission takes one line, choices take one line each."""

    def __init__(self, question: Question, asker: str = "") -> None:
        self.question = question
        self._asker = asker
        """Name of the agent that asks; empty for the lead."""
        self._answers: dict[str, str] = {}

    @property
    def prompt_label(self) -> str:
        match self.question:
            case PermissionQuestion():
                return "allow?"
            case PlanApprovalQuestion():
                return "approve?"
            case ChoiceQuestion() as choice_question:
                return f"{self._next_unanswered_choice(choice_question).header}?"

    def show(self, screen: TerminalScreen) -> None:
        match self.question:
            case PermissionQuestion() as permission_question:
                show_permission_question(screen, permission_question, self._asker)
            case PlanApprovalQuestion() as plan:
                show_plan_question(screen, plan, self._asker)
            case ChoiceQuestion() as choice_question:
                show_multiple_choice(screen, self._next_unanswered_choice(choice_question), self._asker)

    def parse_answer_line(self, line: str) -> Answer | None:
        """Return the answer once the question is fully answered; None while more input is needed."""
        if isinstance(self.question, PermissionQuestion):
            return parse_permission_answer(self.question, line)
        if isinstance(self.question, PlanApprovalQuestion):
            return parse_plan_approval(self.question, line)
        choice = self._next_unanswered_choice(self.question)
        answer_text = parse_choice_answer(choice, line)
        if answer_text is None:
            return None
        self._answers[choice.question] = answer_text
        is_complete = len(self._answers) >= len({each.question for each in self.question.choices})
        return ChoiceAnswer(answers=self._answers) if is_complete else None

    def _next_unanswered_choice(self, question: ChoiceQuestion) -> MultipleChoice:
        return next((c for c in question.choices if c.question not in self._answers), question.choices[-1])
