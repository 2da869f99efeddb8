"""A scripted model behind a provider's protocol, for a lead and teammates in several processes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import shoal
from shoal.core.messages import ToolUse
from shoal.testing import MockServer, messages_server
from shoal.testing.replies import Body, Sayable

Line: TypeAlias = Sayable | Callable[[Body], Sayable]
_NAME = re.compile(r"^- You are ([\w-]+), a member of the team", re.MULTILINE)


def speaker(body: Body) -> str:
    # Chat Completions have the system prompt among the messages.
    systems = [m["content"] for m in body["messages"] if m["role"] in ("system", "developer")]
    found = _NAME.search(text_of(body.get("system") or systems))
    return found.group(1) if found else "lead"


def text_of(content: Any) -> str:
    """Join all text of a content, tool results included."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, dict):
        return text_of(content.get("text") or content.get("content") or "")
    return "\n".join(text_of(each) for each in content)


def said_to(body: Body) -> str:
    """Return the text of the last message."""
    return text_of(body["messages"][-1]["content"])


def everything(body: Body) -> str:
    return "\n".join(text_of(message["content"]) for message in body["messages"])


def asked_of(server: MockServer, name: str) -> list[Body]:
    return [request.body for request in server.requests if speaker(request.body) == name]


def once(call: ToolUse, *, when: str) -> Callable[[Body], Sayable]:
    """Make the call once, in the first turn after this text was received; wait in all other turns."""

    def line(body: Body) -> Sayable:
        made = any(
            block.get("name") == call.name and block.get("input") == call.input
            for message in body["messages"]
            if message["role"] == "assistant"
            for block in message["content"]
        )
        return call if when in everything(body) and not made else "So be it."

    return line


def request_id(body: Body) -> str:
    found: list[str] = re.findall(r'"request_id": "([^"]+)"', everything(body))
    return found[-1]


def approve(body: Body) -> ToolUse:
    answer = {"type": "shutdown_response", "request_id": request_id(body), "approve": True}
    return ToolUse(id="approve", name="SendMessage", input={"to": "team-lead", "message": answer})


def mind(**parts: Sequence[Line]) -> Callable[[Body], Sayable]:
    """Play one script per speaker, line by line, and repeat its last line."""

    def think(body: Body) -> Sayable:
        part = parts[speaker(body)]
        spoken = sum(message["role"] == "assistant" for message in body["messages"])
        line = part[min(spoken, len(part) - 1)]
        return line(body) if callable(line) else line

    return think


@asynccontextmanager
async def provider(monkeypatch: pytest.MonkeyPatch, **parts: Sequence[Line]) -> AsyncIterator[MockServer]:
    """Run a mock provider that every process started inside the block uses."""
    async with messages_server(mind(**parts)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
        yield server


def opened(tmp_path: Path, **options: Any) -> shoal.Session:
    given = {"skip_permissions": True, "settings": '{"shoal": {"teammate_mode": "process"}}'}
    return shoal.open(cwd=tmp_path, model="anthropic:claude-sonnet-4-5", **{**given, **options})
