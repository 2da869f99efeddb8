"""Current activity of an agent, derived from its events."""

from __future__ import annotations

from shoal.core.events import (
    Event,
    ModelRequestFailed,
    ModelRequestSent,
    PartialReplyDiscarded,
    QuestionAnswered,
    QuestionAsked,
    RunFinished,
    TextStreamed,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
)
from shoal.core.text.text_format import format_duration, to_one_line


def describe_agent_activity(event: Event, calls: dict[str, str], previous: str) -> str:
    """Return the agent's activity after this event. `calls` holds the running calls between events."""
    match event:
        case ToolStarted(call=call, tool=tool, preview=preview):
            calls[call] = f"{tool} {to_one_line(preview)}".rstrip()
            return calls[call]
        case ToolProgressed(call=call, text=text):
            tool_name = calls.get(call, "").split(" ", 1)[0]
            return f"{tool_name} {to_one_line(text.strip().rsplit(chr(10), 1)[-1])}".strip()
        case ToolFinished(call=call):
            calls.pop(call, None)
            return next(reversed(calls.values()), "thinking")
        case QuestionAnswered():
            return next(reversed(calls.values()), "thinking")
        case _:
            return _describe_activity_from_event(event) or previous


def _describe_activity_from_event(event: Event) -> str | None:
    match event:
        case TextStreamed(kind="text"):
            return "answering"
        case TextStreamed(kind="tool_input", text=tool):
            return f"calling {to_one_line(tool)}"
        case ModelRequestSent() | TextStreamed():
            return "thinking"
        case PartialReplyDiscarded(reason=reason, retry_in=retry_delay):
            return _describe_model_retry(retry_delay, reason)
        case ModelRequestFailed(reason=reason, retry_in=retry_delay) if retry_delay is not None:
            return _describe_model_retry(retry_delay, reason)
        case QuestionAsked():
            return "waiting for your answer"
        case RunFinished():
            return "done"
        case _:
            return None


def _describe_model_retry(delay: float, reason: str) -> str:
    return f"retrying in {format_duration(delay)}: {to_one_line(reason)}"
