"""Readable text for the messages of the team protocol."""

from __future__ import annotations

from shoal.core.mail import MailMessage
from shoal.core.mail_bodies import (
    IdleNotification,
    MailBody,
    PermissionRequest,
    PermissionResponse,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownApproved,
    ShutdownRejected,
    ShutdownRequest,
    TaskAssignment,
)
from shoal.wire.mail_body_codec import get_authorized_body


def format_mail(mail: MailMessage) -> str:
    """Return the text of a message, readable also for protocol messages."""
    return describe_mail(mail)[1]


def describe_mail(mail: MailMessage) -> tuple[str, str]:
    """Return `message` or the type of the protocol message, and its text."""
    body = get_authorized_body(mail)
    return ("message", mail.text) if body is None else (str(body.__struct_config__.tag), _describe_body(body))


def _describe_body(body: MailBody) -> str:
    match body:
        case TaskAssignment(task_id=task, subject=subject):
            return f"(Task #{task} is yours now: {subject})"
        case IdleNotification() as idle:
            return _describe_idle(idle)
        case ShutdownRequest(reason=reason):
            return f"(asks to shut down{_format_reason(reason)})"
        case ShutdownApproved():
            return "(shuts down)"
        case ShutdownRejected(reason=reason):
            return f"(does not shut down{_format_reason(reason)})"
        case approval:
            return _describe_approval(approval)


def _describe_approval(
    body: PermissionRequest | PermissionResponse | PlanApprovalRequest | PlanApprovalResponse,
) -> str:
    match body:
        case PermissionRequest(tool_name=tool, description=description):
            return f"(asks to run {tool}: {description})"
        case PermissionResponse(subtype=outcome, error=error):
            return "(allowed)" if outcome == "success" else f"(not allowed{_format_reason(error)})"
        case PlanApprovalRequest(plan_content=plan):
            return f"(presents a plan)\n{plan}"
        case PlanApprovalResponse(approved=approved, feedback=feedback):
            return (
                "(the plan is approved)"
                if approved
                else f"(the plan is not approved{_format_reason(feedback)})"
            )


def _describe_idle(body: IdleNotification) -> str:
    reason = (
        ""
        if body.idle_reason == "available"
        else f", {body.idle_reason}{_format_reason(body.failure_reason)}"
    )
    completed = f", task #{body.completed_task_id} done" if body.completed_task_id else ""
    return f"(is idle{reason}{completed})\n{body.result or ''}".rstrip()


def _format_reason(reason: str | None) -> str:
    return f": {reason}" if reason else ""
