"""Current activity of an agent, derived from its events."""

from __future__ import annotations

from shoal.core.events import (
    Answered,
    Asked,
    Discarded,
    Event,
    Finished,
    Heard,
    RequestFailed,
    RequestSent,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from shoal.core.wording import one_line, seconds


def doing_now(event: Event, calls: dict[str, str], before: str) -> str:
    """Return the agent's activity after this event. `calls` holds the running calls between events."""
    match event:
        case ToolStarted(call=call, tool=tool, preview=preview):
            calls[call] = f"{tool} {one_line(preview)}".rstrip()
            return calls[call]
        case ToolProgress(call=call, text=text):
            words = calls.get(call, "").split(" ", 1)[0]
            return f"{words} {one_line(text.strip().rsplit(chr(10), 1)[-1])}".strip()
        case ToolFinished(call=call):
            calls.pop(call, None)
            return next(reversed(calls.values()), "thinking")
        case Answered():
            return next(reversed(calls.values()), "thinking")
        case _:
            return _doing(event) or before


def _doing(event: Event) -> str | None:
    match event:
        case Heard(kind="text"):
            return "answering"
        case Heard(kind="tool_input", text=tool):
            return f"calling {one_line(tool)}"
        case RequestSent() | Heard():
            return "thinking"
        case Discarded(reason=reason, retry_in=delay):
            return _again(delay, reason)
        case RequestFailed(reason=reason, retry_in=delay) if delay is not None:
            return _again(delay, reason)
        case Asked():
            return "waiting for your answer"
        case Finished():
            return "done"
        case _:
            return None


def _again(delay: float, reason: str) -> str:
    return f"asking again in {seconds(delay)}: {one_line(reason)}"
