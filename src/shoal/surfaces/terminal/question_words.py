"""Questions and answers described in one line."""

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
"""Reason sent to the agent if the person gives none."""


def wanted(question: Question) -> str:
    match question:
        case MayRun(tool=tool):
            return f"may {tool} run?"
        case Choose():
            return "which is it to be?"
        case ApprovePlan():
            return "is the plan good?"


def can_hold(question: MayRun) -> tuple[Remember, ...]:
    """Return how long a yes can last: longer than once only if there is a rule or setting to store."""
    for_session: tuple[Remember, ...] = ("session",) if question.rule else ()
    kept = lasting(question.suggestions, "localSettings") is not None
    return ("once", *for_session, *(("settings",) if kept else ()))


def answered(answer: Answer) -> str | None:
    """Describe the answer. A denial is shown as the result of its call instead."""
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
    """Describe the suggested permission change."""
    match suggestion:
        case AddRules(rules=rules, behavior=behavior):
            return one_line(f"{behavior} {', '.join(map(str, rules))}")
        case AddDirectories(directories=directories):
            return one_line(f"work in {', '.join(directories)}")
        case SetMode(mode=mode):
            return f"mode {mode}"


def text_of(value: Any) -> str:
    return clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
