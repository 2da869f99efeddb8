"""Optional fields of mail envelopes: one matrix for everything that is posted."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

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

EnvelopeKind: TypeAlias = Literal["prompt", "message", "broadcast", "notice"] | type[MailBody]
"""A member's first prompt, a message to one or to all, a notice of the runtime, or a protocol body."""


class EnvelopeFields(Struct, frozen=True):
    summary: bool
    color: bool


def fields_for_kind(kind: EnvelopeKind, *, from_lead: bool) -> EnvelopeFields:
    """Return the fields of a kind. The lead has no color. Only messages have a summary, so a message that
    looks like a body can be recognized."""
    if kind in {"message", "broadcast"}:
        return EnvelopeFields(summary=True, color=not from_lead)
    if kind in _COLORED_KINDS:
        return EnvelopeFields(summary=False, color=not from_lead)
    if kind in _BARE_KINDS:
        return EnvelopeFields(summary=False, color=False)
    raise ValueError(f"{kind!r} is no kind of envelope")


_COLORED_KINDS = frozenset[object]({PermissionRequest, IdleNotification, ShutdownApproved, ShutdownRejected})
_BARE_KINDS = frozenset[object](
    {
        "prompt",
        "notice",
        TaskAssignment,
        PlanApprovalRequest,
        ShutdownRequest,
        PlanApprovalResponse,
        PermissionResponse,
    }
)


def prepare_envelope(mail: MailMessage, kind: EnvelopeKind, *, from_lead: bool) -> MailMessage:
    """Return the mail without the fields that its kind lacks; a message always has a summary."""
    fields = fields_for_kind(kind, from_lead=from_lead)
    return replace(
        mail,
        summary=(mail.summary or abbreviate_text(mail.text)) if fields.summary else None,
        color=mail.color if fields.color else None,
    )


def abbreviate_text(text: str, *, limit: int = 60) -> str:
    """Return a summary for a message without one."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"
