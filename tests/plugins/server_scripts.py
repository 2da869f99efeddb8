"""A scripted model behind a provider's protocol, for a lead and teammates in several processes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import shoal
from shoal.core.conversation.messages import ToolUseBlock
from shoal.testing import MockServer, messages_server
from shoal.testing.mock_replies import ReplyLike, RequestBody

ServerReply: TypeAlias = ReplyLike | Callable[[RequestBody], ReplyLike]
_NAME = re.compile(r"^- You are ([\w-]+), a member of the team", re.MULTILINE)


def find_speaker(body: RequestBody) -> str:
    # Chat Completions have the system prompt among the messages.
    systems = [m["content"] for m in body["messages"] if m["role"] in ("system", "developer")]
    found = _NAME.search(join_text(body.get("system") or systems))
    return found.group(1) if found else "lead"


def join_text(content: Any) -> str:
    """Join all text of a content, tool results included."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, dict):
        return join_text(content.get("text") or content.get("content") or "")
    return "\n".join(join_text(each) for each in content)


def get_last_text(body: RequestBody) -> str:
    """Return the text of the last message."""
    return join_text(body["messages"][-1]["content"])


def join_conversation(body: RequestBody) -> str:
    return "\n".join(join_text(message["content"]) for message in body["messages"])


def list_requests_of(server: MockServer, name: str) -> list[RequestBody]:
    return [request.body for request in server.requests if find_speaker(request.body) == name]


def call_once_after(call: ToolUseBlock, *, text: str) -> Callable[[RequestBody], ReplyLike]:
    """Make the call once, in the first turn after this text was received; wait in all other turns."""

    def choose_reply(body: RequestBody) -> ReplyLike:
        made = any(
            block.get("name") == call.name and block.get("input") == call.input
            for message in body["messages"]
            if message["role"] == "assistant"
            for block in message["content"]
        )
        return call if text in join_conversation(body) and not made else "So be it."

    return choose_reply


def find_request_id(body: RequestBody) -> str:
    found: list[str] = re.findall(r'"request_id": "([^"]+)"', join_conversation(body))
    return found[-1]


def approve_shutdown(body: RequestBody) -> ToolUseBlock:
    answer = {"type": "shutdown_response", "request_id": find_request_id(body), "approve": True}
    return ToolUseBlock(id="approve", name="SendMessage", input={"to": "team-lead", "message": answer})


def script_server(**scripts: Sequence[ServerReply]) -> Callable[[RequestBody], ReplyLike]:
    """Play one script per speaker, line by line, and repeat its last line."""

    def choose_reply(body: RequestBody) -> ReplyLike:
        part = scripts[find_speaker(body)]
        spoken = sum(message["role"] == "assistant" for message in body["messages"])
        line = part[min(spoken, len(part) - 1)]
        return line(body) if callable(line) else line

    return choose_reply


@asynccontextmanager
async def run_provider(
    monkeypatch: pytest.MonkeyPatch, **scripts: Sequence[ServerReply]
) -> AsyncIterator[MockServer]:
    """Run a mock provider that every process started inside the block uses."""
    async with messages_server(script_server(**scripts)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
        yield server


def open_process_session(tmp_path: Path, **options: Any) -> shoal.Session:
    given = {"skip_permissions": True, "settings": '{"shoal": {"teammate_mode": "process"}}'}
    return shoal.open(cwd=tmp_path, model="anthropic:claude-sonnet-4-5", **{**given, **options})
