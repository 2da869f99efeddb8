"""Outcome of an agent's run as a value: its text, and why it stopped."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from shoal.agent.loop import Ended
from shoal.core.agents import Completion, End
from shoal.core.arrivals import Item
from shoal.core.messages import Message, Text
from shoal.wire.notices import task_notification


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
    """Return the last text of an agent that did not finish; only calls came after it."""
    return next((each.text for each in reversed(said) if each.role == "assistant" and each.text), "")


def joined(*details: str) -> str:
    return "; ".join(filter(None, details))


def unheard(messages: int) -> str:
    if not messages:
        return ""
    many = "1 message to it was" if messages == 1 else f"{messages} messages to it were"
    return f"{many} not heard, and SendMessage resumes it with what was said"


def notification(completion: Completion) -> Item:
    return Item(
        id=completion.id,
        to=completion.report_to,
        content=(Text(text=task_notification(completion)),),
        by="runtime",
        mode="task-notification",
        priority="later",
    )
