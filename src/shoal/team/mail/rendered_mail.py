"""Renders mail as text for the model that receives it."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock
from shoal.core.events import MessageAuthor
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, TASK_LIST_NAME, USER_NAME
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_bodies import (
    IdleNotificationMail,
    MailBody,
    PlanApprovalRequestMail,
    ShutdownApprovedMail,
    ShutdownRejectedMail,
    ShutdownRequestMail,
    TaskAssignmentMail,
)
from shoal.core.teams.tasks import Task
from shoal.team.team_prompts import format_team_notice
from shoal.wire.notification_text import format_mail_message

RANK_PERSON, RANK_SHUTDOWN, RANK_LEAD, RANK_PEER, RANK_TASK = range(5)
"""Order in which an idle agent takes its waiting items."""


class RenderedMail(Struct, frozen=True, kw_only=True):
    rank: int
    by: MessageAuthor
    text: str
    wakes: bool = True

    def to_inbox_item(self, ident: str, to: AgentId) -> InboxItem:
        content = (TextBlock(text=self.text),)
        return InboxItem(id=ident, to=to, content=content, by=self.by, rank=self.rank, wakes=self.wakes)


def render_mail_text(mail: MailMessage, *, trusted: bool = True) -> RenderedMail:
    """Render mail as text only; untrusted mail is marked as unverified."""
    if not trusted:
        text = format_mail_message(mail.sender, mail.text, summary=mail.summary or "", verified=False)
        return RenderedMail(rank=RANK_PEER, by="agent", text=text)
    if mail.sender == USER_NAME:
        return RenderedMail(rank=RANK_PERSON, by="person", text=mail.text)
    return RenderedMail(
        rank=RANK_LEAD if mail.sender == LEAD_NAME else RANK_PEER,
        by="agent",
        text=format_mail_message(mail.sender, mail.text, summary=mail.summary or "", color=mail.color),
        wakes=not mail.fyi,
    )


def render_mail(mail: MailMessage, body: MailBody | None) -> RenderedMail:
    """Render a body with what the model needs to answer it; other mail as text."""
    match body:
        case ShutdownRequestMail(request_id=request, reason=reason):
            return _render_text_as_mail_from_sender(
                mail,
                format_team_notice("shutdown_request", reason=_format_reason_suffix(reason), request=request),
                rank=RANK_SHUTDOWN,
            )
        case TaskAssignmentMail(task_id=task, subject=subject, description=description):
            return _render_text_as_mail_from_sender(mail, _format_assigned_task(task, subject, description))
        case ShutdownApprovedMail():
            return _render_text_as_mail_from_sender(
                mail, format_team_notice("shutdown_approved", sender=mail.sender)
            )
        case ShutdownRejectedMail(reason=reason):
            return _render_text_as_mail_from_sender(
                mail,
                format_team_notice(
                    "shutdown_rejected", sender=mail.sender, reason=_format_reason_suffix(reason)
                ),
            )
        case PlanApprovalRequestMail(request_id=request, plan_content=plan, plan_file_path=path):
            return _render_text_as_mail_from_sender(
                mail,
                format_team_notice("plan_request", sender=mail.sender, path=path, plan=plan, request=request),
            )
        case _:
            return render_mail_text(mail)


def render_claimed_task(task: Task) -> RenderedMail:
    assigned = _format_assigned_task(task.id, task.subject, task.description)
    text = f"{assigned}\n\n{format_team_notice('task_claimed')}"
    return RenderedMail(rank=RANK_TASK, by="runtime", text=format_mail_message(TASK_LIST_NAME, text))


def render_idle_notice(mail: MailMessage, body: IdleNotificationMail, *, has_reported: bool) -> RenderedMail:
    """Render an idle notice for the lead; without a report it includes the member's last text."""
    return _render_text_as_mail_from_sender(mail, _format_idle_notice(body, has_reported=has_reported))


def _format_idle_notice(body: IdleNotificationMail, *, has_reported: bool) -> str:
    lines = [format_team_notice("idle", name=body.sender, reason=body.idle_reason)]
    if body.failure_reason:
        lines.append(format_team_notice("idle_failure", reason=body.failure_reason))
    if body.completed_task_id:
        status = body.completed_status or "completed"
        lines.append(format_team_notice("idle_task", task=body.completed_task_id, status=status))
    if body.summary:
        lines.append(format_team_notice("idle_summary", summary=body.summary))
    if not has_reported and (body.result or "").strip():
        lines.append(format_team_notice("idle_text", text=body.result))
    elif not has_reported:
        lines.append(format_team_notice("idle_silent"))
    return "\n".join(lines)


def _render_text_as_mail_from_sender(
    mail: MailMessage, text: str, *, rank: int | None = None
) -> RenderedMail:
    default_rank = RANK_LEAD if mail.sender == LEAD_NAME else RANK_PEER
    formatted = format_mail_message(mail.sender, text, color=mail.color)
    return RenderedMail(rank=default_rank if rank is None else rank, by="agent", text=formatted)


def _format_assigned_task(task: str, subject: str, description: str) -> str:
    text = format_team_notice("task_assigned", task=task, subject=subject, description=description)
    return text.rstrip()


def _format_reason_suffix(reason: str) -> str:
    return f": {reason}" if reason else ""
