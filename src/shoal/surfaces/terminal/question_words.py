"""What a question wants and what was answered, in words for a line."""

from __future__ import annotations

import json
from typing import Any

from shoal.core.permissions import AddDirectories, AddRules, SetMode, Suggestion, lasting
from shoal.core.questions import (
    Allowed,
    Answer,
    Approved,
    ApprovePlan,
    Choose,
    Chosen,
    Denied,
    MayRun,
    Question,
    Remember,
)
from shoal.core.wording import clean, one_line

SAID_NO = "the person said no."
"""The reason of a refusal for which none was given, as the agent reads it."""


def wanted(question: Question) -> str:
    match question:
        case MayRun(tool=tool):
            return f"may {tool} run?"
        case Choose():
            return "which is it to be?"
        case ApprovePlan():
            return "is the plan good?"


def can_hold(question: MayRun) -> tuple[Remember, ...]:
    """How long a yes can hold: longer than once only where there is something to keep."""
    for_session: tuple[Remember, ...] = ("session",) if question.rule else ()
    kept = lasting(question.suggestions, "localSettings") is not None
    return ("once", *for_session, *(("settings",) if kept else ()))


def answered(answer: Answer) -> str | None:
    """A denial is the outcome of its call, and told there."""
    match answer:
        case Allowed(remember="settings"):
            return "allowed, and kept in settings"
        case Allowed(remember="session"):
            return "allowed for this session"
        case Allowed():
            return "allowed once"
        case Approved():
            return "the plan is approved"
        case Chosen(answers=answers):
            return f"answered: {one_line(', '.join(answers.values()))}"
        case Denied():
            return None


def change_words(suggestion: Suggestion) -> str:
    """What would change about what agents may do."""
    match suggestion:
        case AddRules(rules=rules, behavior=behavior):
            return one_line(f"{behavior} {', '.join(map(str, rules))}")
        case AddDirectories(directories=directories):
            return one_line(f"work in {', '.join(directories)}")
        case SetMode(mode=mode):
            return f"mode {mode}"


def text_of(value: Any) -> str:
    return clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
