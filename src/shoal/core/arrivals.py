"""What comes to an agent while it works or rests, from people, schedules and other agents."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from shoal.core.events import ItemMode, Speaker
from shoal.core.ids import AgentId
from shoal.core.messages import ContentBlock

Priority: TypeAlias = Literal["now", "next", "later"]


class Item(Struct, frozen=True, kw_only=True):
    """One thing waiting for an agent; nobody but that agent takes it."""

    id: str
    """Its identity: on the transcript, a second delivery of it is none."""
    to: AgentId
    content: tuple[ContentBlock, ...]
    by: Speaker
    mode: ItemMode = "prompt"
    priority: Priority = "next"
    rank: int = 0
    """Among what has the same priority the lower comes first."""
    wakes: bool = True
    """Whether its agent starts, or goes on, because of it; else it comes with what does."""
    instead_of: str = ""
    """A call of the agent whose result says the same: where that is on the transcript, this is no news."""
