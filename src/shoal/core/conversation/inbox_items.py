"""Inbox items: input for an agent from people, schedules and other agents."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from shoal.core.conversation.messages import ContentBlock
from shoal.core.events import InboxItemMode, MessageAuthor
from shoal.core.ids import AgentId

InboxPriority: TypeAlias = Literal["now", "next", "later"]


class InboxItem(Struct, frozen=True, kw_only=True):
    """Item waiting for one agent; only that agent takes it."""

    id: str
    """Identity of the item; the transcript uses it to ignore a second delivery."""
    to: AgentId
    content: tuple[ContentBlock, ...]
    by: MessageAuthor
    mode: InboxItemMode = "prompt"
    priority: InboxPriority = "next"
    rank: int = 0
    """Order among items of the same priority; lower comes first."""
    wakes: bool = True
    """True if it wakes its agent; else it is delivered with an item that does."""
    instead_of: str = ""
    """Tool call whose result says the same; if the transcript has that result, the item is skipped."""
