"""Optional fields of mail envelopes: one matrix for everything that is posted."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

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

EnvelopeKind: TypeAlias = Literal["prompt", "message", "broadcast", "notice"] | type[MailBody]
"""A member's first prompt, a message to one or to all, a notice of the runtime, or a protocol body."""


class MailEnvelopeFieldPresence(Struct, frozen=True):
    summary: bool
    color: bool


def get_envelope_fields_of_mail_kind(kind: EnvelopeKind, *, from_lead: bool) -> MailEnvelopeFieldPresence:
    """Return the fields of a kind. The lead has no color. Only messages have a summary, so a message that
    looks like a body can be recognized."""
    if kind in {"message", "broadcast"}:
        return MailEnvelopeFieldPresence(summary=True, color=not from_lead)
    if kind in _COLORED_KINDS:
        return MailEnvelopeFieldPresence(summary=False, color=not from_lead)
    if kind in _BARE_KINDS:
        return MailEnvelopeFieldPresence(summary=False, color=False)
    raise ValueError(f"{kind!r} is not an envelope type")


_COLORED_KINDS = frozenset[object](
    {PermissionRequestMail, IdleNotificationMail, ShutdownApprovedMail, ShutdownRejectedMail}
)
_BARE_KINDS = frozenset[object](
    {
        "prompt",
        "notice",
        TaskAssignmentMail,
        PlanApprovalRequestMail,
        ShutdownRequestMail,
        PlanApprovalResponseMail,
        PermissionResponseMail,
    }
)


def fit_mail_to_kind(mail: MailMessage, kind: EnvelopeKind, *, from_lead: bool) -> MailMessage:
    """Return the mail without the fields that its kind lacks; a message always has a summary."""
    fields = get_envelope_fields_of_mail_kind(kind, from_lead=from_lead)
    return replace(
        mail,
        summary=(mail.summary or abbreviate_text_to_one_line(mail.text)) if fields.summary else None,
        color=mail.color if fields.color else None,
    )


def abbreviate_text_to_one_line(text: str, *, limit: int = 60) -> str:
    """Return a summary for a message without one."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"
