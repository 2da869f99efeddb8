"""Questions and answers summarized in one line."""

from __future__ import annotations

from typing import Any

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
)
from shoal.core.text.text_format import to_one_line
from shoal.surfaces.terminal.question_text import format_tool_input_value

_HELD = {"once": "once", "session": "for the session", "settings": "always"}


def summarize_question(question: Question) -> str:
    """Summarize the question in one line, the most important part first."""
    match question:
        case PermissionQuestion(tool=tool, input=tool_input):
            return to_one_line(f"{tool}: {_summarize_tool_input(tool_input)}")
        case ChoiceQuestion(choices=choices):
            return to_one_line(" / ".join(choice.question for choice in choices))
        case PlanApprovalQuestion(plan=plan):
            first = next((each.strip("# ") for each in plan.splitlines() if each.strip("# ")), "")
            return to_one_line(f"approve the plan: {first}")


def summarize_answer(answer: Answer | None) -> str:
    match answer:
        case None:
            return "withdrawn: its run ended"
        case AllowAnswer(remember=remember_scope, input=changed_input):
            return f"allowed {_HELD[remember_scope]}" + (
                ", with changed input" if changed_input is not None else ""
            )
        case DenyAnswer(reason=reason):
            return to_one_line(f"refused: {reason}")
        case ChoiceAnswer(answers=answers):
            return to_one_line("; ".join(answers.values()))
        case PlanApprovedAnswer(mode=mode):
            return "approved" + (f", in {mode} mode" if mode else "")


def _summarize_tool_input(tool_input: dict[str, Any]) -> str:
    """Return the most informative value, such as a command or a path; else all values."""
    for key in ("command", "file_path", "notebook_path", "url", "path", "pattern"):
        if isinstance(tool_input.get(key), str):
            return str(tool_input[key])
    return ", ".join(f"{key}: {format_tool_input_value(value)}" for key, value in tool_input.items())
