"""How an agent's work came to its end, as a value: what it says, and why it stopped."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from shoal.agent.loop import Ended
from shoal.core.agents import End
from shoal.core.messages import Message


class Ending(Struct, frozen=True, kw_only=True):
    status: End
    text: str
    detail: str = ""


def ending(ended: Ended, said: Sequence[Message]) -> Ending:
    match ended.reason:
        case "done":
            return Ending(status="completed", text=ended.text, detail=ended.detail)
        case "max_turns":
            why = f"it reached its turn limit of {ended.requests}"
            return Ending(status="completed", text=last_words(said), detail=why)
        case _:
            return Ending(status="failed", text=last_words(said), detail=ended.detail)


def last_words(said: Sequence[Message]) -> str:
    """The last text of an agent that did not come to its end; what came after it were calls alone."""
    return next((each.text for each in reversed(said) if each.role == "assistant" and each.text), "")
