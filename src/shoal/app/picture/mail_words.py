"""Readable text for the messages of the team protocol."""

from __future__ import annotations

from shoal.core.bodies import (
    Body,
    IdleNotification,
    PermissionRequest,
    PermissionResponse,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownApproved,
    ShutdownRejected,
    ShutdownRequest,
    TaskAssignment,
)
from shoal.core.mail import Mail
from shoal.wire.bodies import body_of


def mail_words(mail: Mail) -> str:
    """Return the text of a message, readable also for protocol messages."""
    return told(mail)[1]


def told(mail: Mail) -> tuple[str, str]:
    """Return `message` or the type of the protocol message, and its text."""
    body = body_of(mail)
    return ("message", mail.text) if body is None else (str(body.__struct_config__.tag), _words(body))


def _words(body: Body) -> str:
    match body:
        case TaskAssignment(task_id=task, subject=subject):
            return f"(Task #{task} is yours now: {subject})"
        case IdleNotification() as idle:
            return _idle(idle)
        case ShutdownRequest(reason=reason):
            return f"(asks to shut down{_because(reason)})"
        case ShutdownApproved():
            return "(shuts down)"
        case ShutdownRejected(reason=reason):
            return f"(does not shut down{_because(reason)})"
        case asked:
            return _approval(asked)


def _approval(
    body: PermissionRequest | PermissionResponse | PlanApprovalRequest | PlanApprovalResponse,
) -> str:
    match body:
        case PermissionRequest(tool_name=tool, description=why):
            return f"(asks to run {tool}: {why})"
        case PermissionResponse(subtype=outcome, error=error):
            return "(allowed)" if outcome == "success" else f"(not allowed{_because(error)})"
        case PlanApprovalRequest(plan_content=plan):
            return f"(presents a plan)\n{plan}"
        case PlanApprovalResponse(approved=approved, feedback=feedback):
            return "(the plan is approved)" if approved else f"(the plan is not approved{_because(feedback)})"


def _idle(body: IdleNotification) -> str:
    how = "" if body.idle_reason == "available" else f", {body.idle_reason}{_because(body.failure_reason)}"
    done = f", task #{body.completed_task_id} done" if body.completed_task_id else ""
    return f"(is idle{how}{done})\n{body.result or ''}".rstrip()


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""
