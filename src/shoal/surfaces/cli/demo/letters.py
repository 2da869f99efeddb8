"""Lines that show the mail between the members of the demo's team."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from shoal.core.bodies import (
    PermissionRequest,
    PermissionResponse,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownRejected,
    ShutdownRequest,
)
from shoal.core.ids import LEAD
from shoal.core.names import LEAD_NAME
from shoal.core.wording import one_line
from shoal.surfaces.cli.demo.team_files import Letter
from shoal.surfaces.terminal.paint import BOLD, DIM, GREEN, RED, YELLOW

Parts: TypeAlias = tuple[tuple[str, str], ...]


def letter_parts(letter: Letter, style: Callable[[str], str]) -> Parts | None:
    """Return None for mail that is shown elsewhere: first prompts, idle notices and agreed shutdowns."""
    said = _said(letter)
    if said is None:
        return None
    sender, to = (LEAD if each == LEAD_NAME else each for each in (letter.mail.sender, letter.to))
    return (("✉ ", BOLD), (sender, style(sender)), (" → ", DIM), (to, style(to)), ("  ", ""), said)


def _said(letter: Letter) -> tuple[str, str] | None:
    match letter.body:
        case None:
            # Among plain texts only first prompts have no summary.
            return None if letter.mail.summary is None else (one_line(letter.mail.text), "")
        case PlanApprovalRequest() | PermissionRequest():
            return _asks(letter.body), YELLOW
        case PlanApprovalResponse(approved=approved, feedback=why):
            return ("your plan is approved", GREEN) if approved else (f"change your plan: {why}", RED)
        case PermissionResponse(subtype=how, error=why):
            return ("yes, it may run", GREEN) if how == "success" else (f"no: {why}", RED)
        case ShutdownRequest(reason=reason):
            return f"please shut down: {one_line(reason)}", ""
        case ShutdownRejected(reason=reason):
            return f"not yet: {one_line(reason)}", YELLOW
        case _:
            return None


def _asks(body: PlanApprovalRequest | PermissionRequest) -> str:
    if isinstance(body, PlanApprovalRequest):
        return f"my plan: {one_line(body.plan_content)}"
    return f"may {body.tool_name} run?"
