"""Mail between agents: the message and its delivery state."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from shoal.core.names import AgentName


class MailMessage(Struct, frozen=True, kw_only=True, gc=False):
    """Message as stored in an inbox."""

    id: str
    """`msg_id`; for a program that writes none, derived from the content and its occurrence."""
    sender: AgentName
    """Name of the agent that wrote it."""
    text: str
    """Text of the message."""
    timestamp: str
    """Timestamp as the sender wrote it: ISO, UTC, milliseconds."""
    read: bool = False
    """True if its reader has read it."""
    summary: str | None = None
    """Short description for people."""
    color: str | None = None
    """Color of the sender's name."""
    fyi: bool = False
    """True if it does not wake its reader: it is delivered with the next item that does. Other programs see a
    normal message."""
    signature: str | None = None
    """Signature with the team's key, if one of its own processes wrote it."""


MailDeliveryState: TypeAlias = Literal["delivered", "queued"]
"""`delivered`: in the inbox file. `queued`: in the overflow, in order, until earlier mail is taken."""


class MailPostReceipt(Struct, frozen=True, kw_only=True):
    """Receipt for posted mail, which is on disk in either state."""

    id: str
    standing: MailDeliveryState
