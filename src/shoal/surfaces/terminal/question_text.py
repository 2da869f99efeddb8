"""Questions and answers described in one line."""

from __future__ import annotations

import json
from typing import Any

from shoal.core.permissions.permission_changes import (
    AddDirectoriesPermissionSuggestion,
    AddPermissionRulesSuggestion,
    PermissionSuggestion,
    SetPermissionModeSuggestion,
    find_permission_suggestion,
)
from shoal.core.permissions.questions import (
    AllowAnswer,
    Answer,
    ChoiceAnswer,
    ChoiceQuestion,
    DenyAnswer,
    PermissionQuestion,
    PlanApprovalQuestion,
    PlanApprovedAnswer,
    Question,
    RememberScope,
)
from shoal.core.text.text_format import to_one_line
from shoal.surfaces.terminal.text_styles import truncate_text

_WIDEST = 200
DEFAULT_DENIAL_REASON = "the user said no."
"""Reason sent to the agent if the user gives none."""


def describe_question(question: Question) -> str:
    match question:
        case PermissionQuestion(tool=tool):
            return f"may {tool} run?"
        case ChoiceQuestion(choices=choices):
            return truncate_text(to_one_line(" ".join(each.question for each in choices)), _WIDEST)
        case PlanApprovalQuestion():
            return "do you approve the plan?"


def list_remember_options(question: PermissionQuestion) -> tuple[RememberScope, ...]:
    """Return how long a yes can last: longer than once only if there is a rule or setting to store."""
    session_options: tuple[RememberScope, ...] = ("session",) if question.rule else ()
    can_save = find_permission_suggestion(question.suggestions, "localSettings") is not None
    return ("once", *session_options, *(("settings",) if can_save else ()))


def describe_answer(answer: Answer) -> str | None:
    """Describe the answer. A denial is shown as the result of its call instead."""
    match answer:
        case AllowAnswer(remember="settings"):
            return "allowed, and saved in settings"
        case AllowAnswer(remember="session"):
            return "allowed for this session"
        case AllowAnswer():
            return "allowed once"
        case PlanApprovedAnswer():
            return "the plan is approved"
        case ChoiceAnswer(answers=answers):
            return f"answered: {to_one_line(', '.join(answers.values()))}"
        case DenyAnswer():
            return None


def describe_permission_suggestion(suggestion: PermissionSuggestion) -> str:
    """Describe the suggested permission change."""
    match suggestion:
        case AddPermissionRulesSuggestion(rules=rules, behavior=behavior):
            return to_one_line(f"{behavior} {', '.join(map(str, rules))}")
        case AddDirectoriesPermissionSuggestion(directories=directories):
            return to_one_line(f"work in {', '.join(directories)}")
        case SetPermissionModeSuggestion(mode=mode):
            return f"mode {mode}"


def format_tool_input_value(value: Any) -> str:
    """Return the value as text; show it only through a function that makes control characters visible."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
