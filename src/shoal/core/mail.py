"""Mail between agents: the envelope, and where a letter stands."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from shoal.core.names import AgentName


class Mail(Struct, frozen=True, kw_only=True, gc=False):
    """A message as an inbox holds it."""

    id: str
    """`msg_id`; for an entry of a program that writes none, made from its content and its occurrence."""
    sender: AgentName
    text: str
    timestamp: str
    """As its writer wrote it: ISO, UTC, milliseconds."""
    read: bool = False
    summary: str | None = None
    color: str | None = None
    fyi: bool = False
    """It wakes nobody: its reader gets it with the next thing that does. Other programs see a message."""
    signature: str | None = None
    """The seal of the team, where one of its own processes wrote it."""


Standing: TypeAlias = Literal["delivered", "queued"]
"""`delivered`: in the inbox file. `queued`: kept behind it, in order, until what is before it is taken."""


class Receipt(Struct, frozen=True, kw_only=True):
    """A post that returned is on disk, whichever it says."""

    id: str
    standing: Standing
