"""Renders mail as text for the model that receives it."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.arrivals import Item
from shoal.core.bodies import (
    Body,
    IdleNotification,
    PlanApprovalRequest,
    ShutdownApproved,
    ShutdownRejected,
    ShutdownRequest,
    TaskAssignment,
)
from shoal.core.events import Speaker
from shoal.core.ids import AgentId
from shoal.core.mail import Mail
from shoal.core.messages import Text
from shoal.core.names import LEAD_NAME, PERSON, TASK_LIST
from shoal.core.tasks import Task
from shoal.wire.notices import message_from

NO_REPORT = "(it sent no report; these are its last words)"
SILENT = "(it sent no report, and said nothing at its end)"
RANK_PERSON, RANK_SHUTDOWN, RANK_LEAD, RANK_PEER, RANK_TASK = range(5)
"""Order in which an idle agent takes its waiting items."""


class Letter(Struct, frozen=True, kw_only=True):
    rank: int
    by: Speaker
    text: str
    wakes: bool = True

    def item(self, ident: str, to: AgentId) -> Item:
        content = (Text(text=self.text),)
        return Item(id=ident, to=to, content=content, by=self.by, rank=self.rank, wakes=self.wakes)


def plain(mail: Mail, *, believed: bool = True) -> Letter:
    """Render mail as text only; untrusted mail is marked as unverified."""
    if not believed:
        said = message_from(mail.sender, mail.text, summary=mail.summary or "", verified=False)
        return Letter(rank=RANK_PEER, by="agent", text=said)
    if mail.sender == PERSON:
        return Letter(rank=RANK_PERSON, by="person", text=mail.text)
    return Letter(
        rank=RANK_LEAD if mail.sender == LEAD_NAME else RANK_PEER,
        by="agent",
        text=message_from(mail.sender, mail.text, summary=mail.summary or "", color=mail.color),
        wakes=not mail.fyi,
    )


def shown(mail: Mail, body: Body | None) -> Letter:
    """Render a body with what the model needs to answer it; other mail as text."""
    match body:
        case ShutdownRequest(request_id=request, reason=reason):
            return _said(
                mail,
                f"The lead asks you to shut down{_because(reason)}. Finish or put back what you have begun, "
                "then answer with SendMessage to team-lead, message: "
                f'{{"type": "shutdown_response", "request_id": "{request}", "approve": true}}; '
                'or "approve": false with "reason", if you must go on. Without an answer you are ended soon.',
                rank=RANK_SHUTDOWN,
            )
        case TaskAssignment(task_id=task, subject=subject, description=description):
            return _said(mail, f"Task #{task} is yours now: {subject}\n\n{description}".rstrip())
        case ShutdownApproved():
            return _said(mail, f"{mail.sender} agrees to shut down.")
        case ShutdownRejected(reason=reason):
            return _said(mail, f"{mail.sender} does not shut down{_because(reason)}.")
        case PlanApprovalRequest(request_id=request, plan_content=plan, plan_file_path=path):
            return _said(
                mail,
                f"{mail.sender} may only read until its plan is approved ({path}):\n\n{plan}\n\n"
                f"Answer with SendMessage to {mail.sender}, message: "
                f'{{"type": "plan_approval_response", "request_id": "{request}", "approve": true}}; '
                'or "approve": false with "feedback".',
            )
        case _:
            return plain(mail)


def task_letter(task: Task) -> Letter:
    text = (
        f"Task #{task.id} is yours now: {task.subject}\n\n{task.description}".rstrip()
        + "\n\nSet it to completed with TaskUpdate when it is wholly done, then go on with the open tasks."
    )
    return Letter(rank=RANK_TASK, by="runtime", text=message_from(TASK_LIST, text))


def idle_letter(mail: Mail, body: IdleNotification, *, reported: bool) -> Letter:
    """Render an idle notice for the lead; without a report it includes the member's last text."""
    return _said(mail, _idle(body, reported=reported))


def _idle(body: IdleNotification, *, reported: bool) -> str:
    lines = [f"{body.sender} is idle ({body.idle_reason})."]
    if body.failure_reason:
        lines.append(f"It failed: {body.failure_reason}")
    if body.completed_task_id:
        lines.append(f"Task #{body.completed_task_id} is {body.completed_status or 'completed'}.")
    if body.summary:
        lines.append(f"It last wrote {body.summary}")
    if not reported:
        lines.append(f"{NO_REPORT}\n{body.result}" if (body.result or "").strip() else SILENT)
    return "\n".join(lines)


def _said(mail: Mail, text: str, *, rank: int | None = None) -> Letter:
    usual = RANK_LEAD if mail.sender == LEAD_NAME else RANK_PEER
    said = message_from(mail.sender, text, color=mail.color)
    return Letter(rank=usual if rank is None else rank, by="agent", text=said)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
