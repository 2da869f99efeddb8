"""Readable text for the messages of the team protocol."""

from __future__ import annotations

from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_bodies import (
    IdleNotificationMail,
    MailBody,
    PermissionRequestMail,
    PermissionResponseMail,
    PlanApprovalRequestMail,
    PlanApprovalResponseMail,
    ShutdownApprovedMail,
    ShutdownRejectedMail,
    ShutdownRequestMail,
    TaskAssignmentMail,
)
from shoal.wire.mail_body_codec import get_authorized_mail_body


def format_mail(mail: MailMessage) -> str:
    """Return the text of a message, readable also for protocol messages."""
    return classify_and_describe_mail(mail)[1]


def classify_and_describe_mail(mail: MailMessage) -> tuple[str, str]:
    """Return `message` or the type of the protocol message, and its text."""
    body = get_authorized_mail_body(mail)
    return (
        ("message", mail.text)
        if body is None
        else (str(body.__struct_config__.tag), _describe_mail_body(body))
    )


def _describe_mail_body(body: MailBody) -> str:
    match body:
        case TaskAssignmentMail(task_id=task, subject=subject):
            return f"(Task #{task} is yours now: {subject})"
        case IdleNotificationMail() as idle:
            return _describe_idle_notice(idle)
        case ShutdownRequestMail(reason=reason):
            return f"(request to shut down{_format_failure_reason(reason)})"
        case ShutdownApprovedMail():
            return "(shuts down)"
        case ShutdownRejectedMail(reason=reason):
            return f"(refuses to shut down{_format_failure_reason(reason)})"
        case approval:
            return _describe_approval_mail(approval)


def _describe_approval_mail(
    body: PermissionRequestMail | PermissionResponseMail | PlanApprovalRequestMail | PlanApprovalResponseMail,
) -> str:
    match body:
        case PermissionRequestMail(tool_name=tool, description=description):
            return f"(asks to run {tool}: {description})"
        case PermissionResponseMail(subtype=outcome, error=error):
            return "(allowed)" if outcome == "success" else f"(not allowed{_format_failure_reason(error)})"
        case PlanApprovalRequestMail(plan_content=plan):
            return f"(presents a plan)\n{plan}"
        case PlanApprovalResponseMail(approved=approved, feedback=feedback):
            return (
                "(the plan is approved)"
                if approved
                else f"(the plan is rejected{_format_failure_reason(feedback)})"
            )


def _describe_idle_notice(body: IdleNotificationMail) -> str:
    reason = (
        ""
        if body.idle_reason == "available"
        else f", {body.idle_reason}{_format_failure_reason(body.failure_reason)}"
    )
    completed = f", task #{body.completed_task_id} done" if body.completed_task_id else ""
    return f"(is idle{reason}{completed})\n{body.result or ''}".rstrip()


def _format_failure_reason(reason: str | None) -> str:
    return f": {reason}" if reason else ""
