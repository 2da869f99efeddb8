"""Conversation restored from the transcript of an agent."""

from __future__ import annotations

from collections.abc import Container

from msgspec import Struct

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import Message
from shoal.core.ids import EntryId


class RestoredPrompt(Struct, frozen=True, kw_only=True):
    """Start of a turn; to undo it, continue after `parent`."""

    turn: int
    entry: EntryId
    parent: EntryId | None
    text: str


class RestoredConversation(Struct, frozen=True, kw_only=True):
    messages: tuple[Message, ...]
    last: EntryId | None
    """Parent of the next entry."""
    interrupted: Message | None
    """Results for unanswered calls, to be appended before anything else."""
    usage: Usage
    turns: int
    """Number of all prompts, including undone ones, so that a turn number is never reused."""
    prompts: tuple[RestoredPrompt, ...]
    """Turns that are part of the current conversation."""
    model: str
    """Model of the last reply."""
    delivered: frozenset[str]
    """Ids of everything that was ever delivered."""
    answered: Container[str]
    """Calls that ever got a real result."""
    notes: tuple[str, ...]
    cwd: str = ""
    """Last working directory in the transcript; empty if it has none."""
    is_broken: bool = False
    """True if an entry refers to one that is not there."""
    unreadable: int = 0
    """Number of lines that cannot be read, or that Shoal wrote with another content."""

    def describe_damage(self, path: str) -> str:
        """Return a sentence about the damage of the transcript at this path; empty if it is undamaged."""
        clauses = [
            *([f"{self.unreadable} of its lines cannot be read"] if self.unreadable else []),
            *(["a part of the conversation is missing"] if self.is_broken else []),
        ]
        if not clauses:
            return ""
        return (
            f"The conversation {path} is damaged: {', and '.join(clauses)}. Shoal uses the lines that "
            "it can read. The rest of the conversation is lost."
        )
