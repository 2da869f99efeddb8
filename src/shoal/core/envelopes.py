"""Optional fields of mail envelopes: one matrix for everything that is posted."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

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

Kind: TypeAlias = Literal["prompt", "message", "broadcast", "notice"] | type[Body]
"""A member's first prompt, a message to one or to all, a notice of the runtime, or a protocol body."""


class Carried(Struct, frozen=True):
    summary: bool
    color: bool


def carried(kind: Kind, *, from_lead: bool) -> Carried:
    """Return the fields of a kind. The lead has no color. Only messages have a summary, so a message that
    looks like a body can be recognized."""
    if kind in {"message", "broadcast"}:
        return Carried(summary=True, color=not from_lead)
    if kind in _COLORED:
        return Carried(summary=False, color=not from_lead)
    if kind in _BARE:
        return Carried(summary=False, color=False)
    raise ValueError(f"{kind!r} is no kind of envelope")


_COLORED = frozenset[object]({PermissionRequest, IdleNotification, ShutdownApproved, ShutdownRejected})
_BARE = frozenset[object](
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


def enveloped(mail: Mail, kind: Kind, *, from_lead: bool) -> Mail:
    """Return the mail without the fields that its kind lacks; a message always has a summary."""
    fields = carried(kind, from_lead=from_lead)
    return replace(
        mail,
        summary=(mail.summary or first_words(mail.text)) if fields.summary else None,
        color=mail.color if fields.color else None,
    )


def first_words(text: str, *, limit: int = 60) -> str:
    """Return a summary for a message without one."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"
