"""Questions from agents, put to a person at the prompt, and what the typed line answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shoal.core.permissions import AddDirectories, AddRules, Destination, SetMode, Suggestion
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
    Remember,
)
from shoal.surfaces.cli.paint import BOLD, DIM, YELLOW, clean, cut
from shoal.surfaces.cli.screen import Screen

_MOST_LINES = 20
_WIDEST = 400
_LASTING: dict[str, tuple[Destination, str, Remember]] = {
    "a": ("session", "for this session", "session"),
    "s": ("localSettings", "kept in settings", "settings"),
}


def show_permission(screen: Screen, question: MayRun) -> None:
    screen.fresh_line()
    screen.write("? ", YELLOW)
    screen.write(question.tool, BOLD)
    screen.write(" asks to run" if question.agent == "lead" else f" asks to run (for {question.agent})")
    screen.write(f": {question.reason}\n", DIM)
    for line in shown_input(question.input):
        screen.write(f"    {line}\n")
    for line in offered(question.suggestions):
        screen.write(f"  {line}\n", DIM)
    screen.write("  n no · or say why not\n", DIM)


def offered(suggestions: Sequence[Suggestion]) -> Iterator[str]:
    """The ways to say yes, each with what it changes."""
    yield "y once"
    for key, (destination, where, _) in _LASTING.items():
        changes = [_change(each) for each in suggestions if each.destination == destination]
        if changes:
            yield f"{key} {where}: {cut(', '.join(changes), _WIDEST)}"


def _change(suggestion: Suggestion) -> str:
    match suggestion:
        case AddRules(rules=rules, behavior=behavior):
            return f"{behavior} {', '.join(clean(str(rule)) for rule in rules)}"
        case AddDirectories(directories=directories):
            return f"work in {', '.join(map(clean, directories))}"
        case SetMode(mode="acceptEdits"):
            return "accept edits in the working directories"
        case SetMode(mode=mode):
            return f"mode {mode}"


def show_plan(screen: Screen, question: ApprovePlan) -> None:
    screen.fresh_line()
    screen.write("? ", YELLOW)
    screen.write("The plan", BOLD)
    screen.write(f" ({question.path})\n", DIM)
    for line in question.plan.splitlines():
        screen.write(f"    {clean(line)}\n")
    for wish in question.wishes:
        screen.write(f"  will ask for {clean(wish)}\n", DIM)
    screen.write("  y carry it out · e carry it out and accept edits · n no · or say what to change\n", DIM)


def approval(question: ApprovePlan, line: str) -> Answer | None:
    """None where nothing was said."""
    match line.strip().lower():
        case "":
            return None
        case "y" | "yes":
            return Approved(digest=question.digest)
        case "e":
            return Approved(digest=question.digest, mode="acceptEdits")
        case "n" | "no":
            return Denied(reason="the person said no.")
        case _:
            return Denied(reason=line.strip())


def shown_input(given: Mapping[str, Any]) -> list[str]:
    """All of what would be run, as far as a person can read it; a cut is marked with the full length."""
    lines: list[str] = []
    for key, value in given.items():
        text = clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
        first, *rest = text.split("\n")
        lines.append(f"{key}: {cut(first, _WIDEST)}")
        shown = rest if len(rest) <= _MOST_LINES else rest[:_MOST_LINES]
        lines.extend(f"  {cut(line, _WIDEST)}" for line in shown)
        if len(shown) < len(rest):
            lines.append(f"  … {len(rest) - len(shown)} more lines ({len(text)} characters in all)")
    return lines


def permission(question: MayRun, line: str) -> Answer | None:
    """None where nothing was said that is on offer."""
    match line.strip().lower():
        case "":
            return None
        case "y" | "yes":
            return Allowed()
        case ("a" | "s") as key:
            destination, _, remember = _LASTING[key]
            lasting = any(each.destination == destination for each in question.suggestions)
            return Allowed(remember=remember) if lasting else None
        case "n" | "no":
            return Denied(reason="the person said no.")
        case _:
            return Denied(reason=line.strip())


def show_choice(screen: Screen, choice: Choice) -> None:
    screen.fresh_line()
    screen.write("? ", YELLOW)
    screen.write(f"{choice.question}\n", BOLD)
    for number, option in enumerate(choice.options, 1):
        screen.write(f"  {number}  {option.label}")
        screen.write(f"  {option.description}\n" if option.description else "\n", DIM)
    how = "numbers, with commas" if choice.multi_select else "a number"
    screen.write(f"  {how}, or your own words\n", DIM)


def chosen(choice: Choice, line: str) -> str | None:
    """The labels chosen, or the person's own words; None where nothing usable was said."""
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
    """One question being put: a permission takes one line, choices take one line each."""

    def __init__(self, question: Question) -> None:
        self.question = question
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
                show_permission(screen, may_run)
            case ApprovePlan() as plan:
                show_plan(screen, plan)
            case Choose() as choose:
                show_choice(screen, self._choice(choose))

    def take(self, line: str) -> Answer | None:
        """The answer when the question is answered whole; None where more is to be asked."""
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
