"""A script for a mock server that answers for a lead and its teammates, line by line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from server_scripts import find_speaker, join_text
from shoal.core.conversation.messages import ToolUseBlock
from shoal.testing.mock_replies import ReplyLike, make_tool_call

ServerScriptLine: TypeAlias = ReplyLike | Callable[[dict[str, Any]], ReplyLike]


def script_team_server(**scripts: Sequence[ServerScriptLine]) -> Callable[[dict[str, Any]], ReplyLike]:
    """Play one script per speaker and repeat its last line; a script is named with `_` for `-`."""

    def choose_reply(body: dict[str, Any]) -> ReplyLike:
        part = scripts[find_speaker(body).replace("-", "_")]
        spoken = sum(message["role"] == "assistant" for message in body["messages"])
        line = part[min(spoken, len(part) - 1)]
        return line(body) if callable(line) else line

    return choose_reply


def reply_after_text(
    text: str, *lines: ServerScriptLine, before: ReplyLike = "I wait."
) -> Callable[[dict[str, Any]], ReplyLike]:
    """Return the lines in order once the speaker has received this text, and `before` until then."""
    left = list(lines)

    def choose_reply(body: dict[str, Any]) -> ReplyLike:
        heard = "\n".join(join_text(each["content"]) for each in body["messages"] if each["role"] == "user")
        if text not in heard:
            return before
        line = left.pop(0) if len(left) > 1 else left[0]
        return line(body) if callable(line) else line

    return choose_reply


def get_last_text(body: dict[str, Any]) -> str:
    """Return the last text sent to the speaker, tool results included."""
    return join_text(body["messages"][-1]["content"])


def list_user_texts(body: dict[str, Any]) -> list[str]:
    """List every text sent to the speaker."""
    said = [each["content"] for each in body["messages"] if each["role"] == "user"]
    blocks = [[content] if isinstance(content, str) else content for content in said]
    return [join_text(block) for content in blocks for block in content]


def run_bash(command: str) -> ToolUseBlock:
    return make_tool_call("Bash", command=command)


def send_message(to: str, message: str) -> ToolUseBlock:
    return make_tool_call("SendMessage", to=to, message=message, summary="a word")


def complete_task(task: str) -> ToolUseBlock:
    return make_tool_call("TaskUpdate", taskId=task, status="completed")
