"""Inbox items: input for an agent from people, schedules and other agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


_JOINABLE_PREFIX = "rest-"
"""Ids of idle notices start with this. Ids of other programs' mail may contain any character."""


def can_join_item_id(ident: str) -> bool:
    return ident.startswith(_JOINABLE_PREFIX) and "\n" not in ident


def join_item_ids(idents: Iterable[str]) -> str:
    """Return the id of an item that replaces several; `can_join_item_id` is true for each of them."""
    return "\n".join(idents)


def split_item_ids(ident: str) -> Sequence[str]:
    """Return the ids of the items that an item replaces, or its own."""
    if not ident.startswith(_JOINABLE_PREFIX) or "\n" not in ident:
        return (ident,)
    parts = ident.split("\n")
    return parts if all(part.startswith(_JOINABLE_PREFIX) for part in parts) else (ident,)
