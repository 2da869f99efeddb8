"""A script for a mock server that answers for a lead and its teammates, line by line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from fleet import speaker, text_of
from shoal.core.messages import ToolUse
from shoal.testing.replies import Sayable, call

Line: TypeAlias = Sayable | Callable[[dict[str, Any]], Sayable]


def company(**parts: Sequence[Line]) -> Callable[[dict[str, Any]], Sayable]:
    """Play one script per speaker and repeat its last line; a script is named with `_` for `-`."""

    def think(body: dict[str, Any]) -> Sayable:
        part = parts[speaker(body).replace("-", "_")]
        spoken = sum(message["role"] == "assistant" for message in body["messages"])
        line = part[min(spoken, len(part) - 1)]
        return line(body) if callable(line) else line

    return think


def after(words: str, *lines: Line, otherwise: Sayable = "I wait.") -> Callable[[dict[str, Any]], Sayable]:
    """Return the lines in order once the speaker has received this text, and `before` until then."""
    left = list(lines)

    def say(body: dict[str, Any]) -> Sayable:
        heard = "\n".join(text_of(each["content"]) for each in body["messages"] if each["role"] == "user")
        if words not in heard:
            return otherwise
        line = left.pop(0) if len(left) > 1 else left[0]
        return line(body) if callable(line) else line

    return say


def last_words(body: dict[str, Any]) -> str:
    """Return the last text sent to the speaker, tool results included."""
    return text_of(body["messages"][-1]["content"])


def said_to(body: dict[str, Any]) -> list[str]:
    """List every text sent to the speaker."""
    said = [each["content"] for each in body["messages"] if each["role"] == "user"]
    blocks = [[content] if isinstance(content, str) else content for content in said]
    return [text_of(block) for content in blocks for block in content]


def bash(command: str) -> ToolUse:
    return call("Bash", command=command)


def tell(to: str, message: str) -> ToolUse:
    return call("SendMessage", to=to, message=message, summary="a word")


def done(task: str) -> ToolUse:
    return call("TaskUpdate", taskId=task, status="completed")
