"""Questions and answers summarised in one line."""

from __future__ import annotations

from typing import Any

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
)
from shoal.core.wording import one_line
from shoal.surfaces.terminal.question_words import text_of

_HELD = {"once": "once", "session": "for the session", "settings": "always"}


def asked(question: Question) -> str:
    """Summarise the question in one line, the most important part first."""
    match question:
        case MayRun(tool=tool, input=given):
            return one_line(f"{tool}: {_told(given)}")
        case Choose(choices=choices):
            return one_line(" / ".join(choice.question for choice in choices))
        case ApprovePlan(plan=plan):
            first = next((each.strip("# ") for each in plan.splitlines() if each.strip("# ")), "")
            return one_line(f"approve the plan: {first}")


def answered(answer: Answer | None) -> str:
    match answer:
        case None:
            return "withdrawn: its run ended"
        case Allowed(remember=remember, input=changed):
            return f"allowed {_HELD[remember]}" + (", with a changed input" if changed is not None else "")
        case Denied(reason=reason):
            return one_line(f"refused: {reason}")
        case Chosen(answers=answers):
            return one_line("; ".join(answers.values()))
        case Approved(mode=mode):
            return "approved" + (f", in the mode {mode}" if mode else "")


def _told(given: dict[str, Any]) -> str:
    """Return the most informative value, such as a command or a path; else all values."""
    for key in ("command", "file_path", "notebook_path", "url", "path", "pattern"):
        if isinstance(given.get(key), str):
            return str(given[key])
    return ", ".join(f"{key}: {text_of(value)}" for key, value in given.items())
