"""Lines that show the mail between the members of the demo's team."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from shoal.core.ids import LEAD_ID
from shoal.core.mail_bodies import (
    PermissionRequestMail,
    PermissionResponseMail,
    PlanApprovalRequestMail,
    PlanApprovalResponseMail,
    ShutdownRejectedMail,
    ShutdownRequestMail,
)
from shoal.core.names import LEAD_NAME
from shoal.core.text_format import to_one_line
from shoal.surfaces.cli.demo.team_files import DemoDeliveredMail
from shoal.surfaces.terminal.text_styles import BOLD, DIM, GREEN, RED, YELLOW

StyledLine: TypeAlias = tuple[tuple[str, str], ...]


def format_mail_line(message: DemoDeliveredMail, style: Callable[[str], str]) -> StyledLine | None:
    """Return None for mail that is shown elsewhere: first prompts, idle notices and agreed shutdowns."""
    body = _format_mail_body(message)
    if body is None:
        return None
    sender, to = (LEAD_ID if each == LEAD_NAME else each for each in (message.mail.sender, message.to))
    return (("✉ ", BOLD), (sender, style(sender)), (" → ", DIM), (to, style(to)), ("  ", ""), body)


def _format_mail_body(message: DemoDeliveredMail) -> tuple[str, str] | None:
    match message.body:
        case None:
            # Among plain texts only first prompts have no summary.
            return None if message.mail.summary is None else (to_one_line(message.mail.text), "")
        case PlanApprovalRequestMail() | PermissionRequestMail():
            return _format_request_mail(message.body), YELLOW
        case PlanApprovalResponseMail(approved=approved, feedback=rejection):
            return ("your plan is approved", GREEN) if approved else (f"change your plan: {rejection}", RED)
        case PermissionResponseMail(subtype=subtype, error=rejection):
            return ("yes, it may run", GREEN) if subtype == "success" else (f"no: {rejection}", RED)
        case ShutdownRequestMail(reason=reason):
            return f"please shut down: {to_one_line(reason)}", ""
        case ShutdownRejectedMail(reason=reason):
            return f"not yet: {to_one_line(reason)}", YELLOW
        case _:
            return None


def _format_request_mail(body: PlanApprovalRequestMail | PermissionRequestMail) -> str:
    if isinstance(body, PlanApprovalRequestMail):
        return f"my plan: {to_one_line(body.plan_content)}"
    return f"may {body.tool_name} run?"
