"""Questions of agents shown at the prompt, and the answers parsed from typed lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.core.permissions import lasting
from shoal.core.questions import (
    Allowed,
    Answer,
    Approved,
    ApprovePlan,
    Choice,
    Choose,
    Chosen,
    Denied,
    MayRun,
    Question,
)
from shoal.core.wording import clean
from shoal.surfaces.terminal.paint import BOLD, DIM, GREEN, RED, YELLOW, cut
from shoal.surfaces.terminal.question_words import SAID_NO, can_hold, change_words, text_of
from shoal.surfaces.terminal.screen import Screen

_MOST_LINES = 20
_WIDEST = 400
_CHANGES = {"old_string": ("-", RED), "new_string": ("+", GREEN)}
_WIDEST_RULE = 30


def show_permission(screen: Screen, question: MayRun, asker: str = "") -> None:
    screen.fresh_line()
    screen.write("? ", YELLOW)
    screen.write(question.tool, BOLD)
    screen.write(f" asks to run for {asker}" if asker else " asks to run")
    screen.write(f": {question.reason}\n", DIM)
    for line, style in shown_input(question.tool, question.input):
        screen.write(f"    {line}\n", style)
    kept = lasting(question.suggestions, "localSettings")
    if kept is not None:
        screen.write(f"  s kept in your settings for this project: {cut(change_words(kept), _WIDEST)}\n", DIM)
    screen.write(f"  y once · {_for_session(question.rule)}n no · or say why not\n", DIM)


def _for_session(rule: str) -> str:
    if not rule:
        return ""
    can_be_shown = len(rule) <= _WIDEST_RULE and rule.isprintable()
    return f"a for this session: {rule if can_be_shown else 'just this'} · "


def shown_input(tool: str, given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Format the whole input of a call as lines with their styles, cut to a readable length."""
    lines: list[tuple[str, str]] = []
    for key, value in given.items():
        text = text_of(value)
        mark, style = _CHANGES.get(key, ("", "")) if tool == "Edit" else ("", "")
        if mark:
            lines.extend((f"{mark} {line}", style) for line in _read(text))
        elif "\n" in text:
            lines.append((f"{key}:", ""))
            lines.extend((f"  {line}", "") for line in _read(text))
        else:
            lines.append((f"{key}: {cut(text, _WIDEST)}", ""))
    return lines


def _read(text: str) -> list[str]:
    """Split a text into lines; a cut is marked with the full length."""
    lines = text.removesuffix("\n").split("\n")
    shown = [cut(line, _WIDEST) for line in lines[:_MOST_LINES]]
    if len(shown) < len(lines):
        shown.append(f"… {len(lines) - len(shown)} more lines ({len(text)} characters in all)")
    return shown


def show_plan(screen: Screen, question: ApprovePlan, asker: str = "") -> None:
    screen.fresh_line()
    screen.write("? ", YELLOW)
    screen.write(f"The plan of {asker}" if asker else "The plan", BOLD)
    screen.write(f" ({question.path})\n", DIM)
    for line in question.plan.splitlines():
        screen.write(f"    {clean(line)}\n")
    for wish in question.wishes:
        screen.write(f"  will ask for {clean(wish)}\n", DIM)
    screen.write("  y carry it out · e carry it out and accept edits · n no · or say what to change\n", DIM)


def approval(question: ApprovePlan, line: str) -> Answer | None:
    """Return the answer; None if the line is empty."""
    match line.strip().lower():
        case "":
            return None
        case "y" | "yes":
            return Approved(digest=question.digest)
        case "e":
            return Approved(digest=question.digest, mode="acceptEdits")
        case "n" | "no":
            return Denied(reason=SAID_NO)
        case _:
            return Denied(reason=line.strip())


def permission(question: MayRun, line: str) -> Answer | None:
    """Return the answer; None if the line is empty or not an option."""
    match line.strip().lower():
        case "":
            return None
        case "y" | "yes":
            return Allowed()
        case "a" | "always":
            return Allowed(remember="session") if "session" in can_hold(question) else None
        case "s":
            return Allowed(remember="settings") if "settings" in can_hold(question) else None
        case "n" | "no":
            return Denied(reason=SAID_NO)
        case _:
            return Denied(reason=line.strip())


def show_choice(screen: Screen, choice: Choice, asker: str = "") -> None:
    screen.fresh_line()
    screen.write("? ", YELLOW)
    screen.write(f"{asker} asks: " if asker else "")
    screen.write(f"{choice.question}\n", BOLD)
    for number, option in enumerate(choice.options, 1):
        screen.write(f"  {number}  {option.label}")
        screen.write(f"  {option.description}\n" if option.description else "\n", DIM)
    how = "numbers, with commas" if choice.multi_select else "a number"
    screen.write(f"  {how}, or your own words\n", DIM)


def chosen(choice: Choice, line: str) -> str | None:
    """Return the chosen labels or the typed text; None if the line is not usable."""
    words = line.strip()
    if not words:
        return None
    parts = [part.strip() for part in words.replace(",", " ").split()]
    if all(part.isdigit() for part in parts):
        numbers = [int(part) for part in parts]
        if not all(1 <= number <= len(choice.options) for number in numbers):
            return None
        if len(numbers) > 1 and not choice.multi_select:
            return None
        return ", ".join(choice.options[number - 1].label for number in numbers)
    return words


class Asking:
    """Question being shown: a permission takes one line, choices take one line each."""

    def __init__(self, question: Question, asker: str = "") -> None:
        self.question = question
        self._asker = asker
        """Name of the agent that asks; empty for the lead."""
        self._answers: dict[str, str] = {}

    @property
    def label(self) -> str:
        match self.question:
            case MayRun():
                return "allow?"
            case ApprovePlan():
                return "approve?"
            case Choose() as choose:
                return f"{self._choice(choose).header}?"

    def show(self, screen: Screen) -> None:
        match self.question:
            case MayRun() as may_run:
                show_permission(screen, may_run, self._asker)
            case ApprovePlan() as plan:
                show_plan(screen, plan, self._asker)
            case Choose() as choose:
                show_choice(screen, self._choice(choose), self._asker)

    def take(self, line: str) -> Answer | None:
        """Return the answer once the question is fully answered; None while more input is needed."""
        if isinstance(self.question, MayRun):
            return permission(self.question, line)
        if isinstance(self.question, ApprovePlan):
            return approval(self.question, line)
        choice = self._choice(self.question)
        words = chosen(choice, line)
        if words is None:
            return None
        self._answers[choice.question] = words
        done = len(self._answers) >= len({each.question for each in self.question.choices})
        return Chosen(answers=self._answers) if done else None

    def _choice(self, question: Choose) -> Choice:
        return next((c for c in question.choices if c.question not in self._answers), question.choices[-1])
