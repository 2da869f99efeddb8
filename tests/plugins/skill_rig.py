"""Helpers for tests of skills and commands: write their files, and script the agents that use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from shoal.core.messages import Message, Text, ToolResult, result_text
from shoal.core.requests import Request
from shoal.models.scripted import Sayable, ScriptedModel


def skill(root: Path, name: str, body: str = "Do it well.", /, directory: str = "", **fields: str) -> Path:
    """Write a skill below `root`; `_` in a field's name becomes `-`."""
    front = {"name": name, "description": f"Knows {name}", **fields}
    return _written(root / (directory or name) / "SKILL.md", front, body)


def command(root: Path, name: str, body: str, /, **fields: str) -> Path:
    return _written(root / f"{name}.md", fields, body)


def _written(path: Path, front: dict[str, str], body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{key.replace('_', '-')}: {value}" for key, value in front.items()]
    path.write_text("\n".join(["---", *lines, "---", body, ""]) if lines else f"{body}\n")
    return path


def everything(request: Request) -> str:
    """Join all text sent to the agent, tool results included."""
    return "\n".join(_said(message) for message in request.messages)


def _said(message: Message) -> str:
    texts = [
        block.text if isinstance(block, Text) else result_text(block)
        for block in message.content
        if isinstance(block, Text | ToolResult)
    ]
    return "\n".join(texts)


class Mind:
    """Plays for each agent the script whose name occurs first in its first message; records the requests."""

    def __init__(self, **parts: Sequence[Sayable | Callable[[Request], Sayable]]) -> None:
        self._parts = parts
        self.requests: list[Request] = []
        self.model = ScriptedModel(self._speak)

    def _speak(self, request: Request) -> Sayable:
        self.requests.append(replace(request, messages=list(request.messages)))
        told = _said(request.messages[0])
        found = {word: at for word in self._parts if (at := told.find(f"part-{word}")) >= 0}
        part = self._parts[min(found, key=lambda word: found[word]) if found else "lead"]
        spoken = sum(message.role == "assistant" for message in request.messages)
        line = part[min(spoken, len(part) - 1)]
        return line(request) if callable(line) else line

    @property
    def heard(self) -> str:
        """All text of the last request."""
        return everything(self.requests[-1])
