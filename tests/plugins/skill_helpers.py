"""Helpers for tests of skills and commands: write their files, and script the agents that use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from shoal.core.conversation.messages import Message, TextBlock, ToolResultBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ReplyLike, ScriptedModel


def write_skill(
    root: Path, name: str, body: str = "Do it well.", /, directory: str = "", **fields: str
) -> Path:
    """Write a skill below `root`; `_` in a field's name becomes `-`."""
    front = {"name": name, "description": f"Knows {name}", **fields}
    return _write_page(root / (directory or name) / "SKILL.md", front, body)


def write_command(root: Path, name: str, body: str, /, **fields: str) -> Path:
    return _write_page(root / f"{name}.md", fields, body)


def _write_page(path: Path, front: dict[str, str], body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{key.replace('_', '-')}: {value}" for key, value in front.items()]
    path.write_text("\n".join(["---", *lines, "---", body, ""]) if lines else f"{body}\n")
    return path


def join_conversation(request: ModelRequest) -> str:
    """Join all text sent to the agent, tool results included."""
    return "\n".join(_get_message_text(message) for message in request.messages)


def _get_message_text(message: Message) -> str:
    texts = [
        block.text if isinstance(block, TextBlock) else extract_tool_result_text(block)
        for block in message.content
        if isinstance(block, TextBlock | ToolResultBlock)
    ]
    return "\n".join(texts)


class RecordingScript:
    """Plays for each agent the script whose name occurs first in its first message; records the requests."""

    def __init__(self, **scripts: Sequence[ReplyLike | Callable[[ModelRequest], ReplyLike]]) -> None:
        self._scripts = scripts
        self.requests: list[ModelRequest] = []
        self.model = ScriptedModel(self._choose_reply)

    def _choose_reply(self, request: ModelRequest) -> ReplyLike:
        self.requests.append(replace(request, messages=list(request.messages)))
        first_message = _get_message_text(request.messages[0])
        positions = {word: at for word in self._scripts if (at := first_message.find(f"part-{word}")) >= 0}
        part = self._scripts[min(positions, key=lambda word: positions[word]) if positions else "lead"]
        reply_count = sum(message.role == "assistant" for message in request.messages)
        line = part[min(reply_count, len(part) - 1)]
        return line(request) if callable(line) else line

    @property
    def last_request_text(self) -> str:
        """All text of the last request."""
        return join_conversation(self.requests[-1])
