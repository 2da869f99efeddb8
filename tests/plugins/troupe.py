"""Scripted models for a lead and its teammates; the system prompt names the speaker."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import shoal
from cast import use
from shoal.core.messages import Message, ToolResult, ToolUse, result_text
from shoal.core.requests import Request
from shoal.models.scripted import Sayable, ScriptedModel

Line: TypeAlias = Sayable | Callable[[Request], Sayable]
_NAME = re.compile(r"^- You are ([\w-]+), a member of the team", re.MULTILINE)


def speaker(request: Request) -> str:
    found = _NAME.search(request.system)
    return found.group(1) if found else "lead"


def troupe(pace: float = 0.0, /, **parts: Sequence[Line]) -> ScriptedModel:
    """Play one script per speaker, line by line, and repeat its last line; `pace` is seconds per word."""

    def mind(request: Request) -> Sayable:
        part = parts[speaker(request)]
        spoken = sum(message.role == "assistant" for message in request.messages)
        line = part[min(spoken, len(part) - 1)]
        return line(request) if callable(line) else line

    return ScriptedModel(mind, pace=pace)


def opened(tmp_path: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=tmp_path, model=model, **{"skip_permissions": True, **options})


def member(name: str, prompt: str = "Begin.", **more: Any) -> ToolUse:
    return use("Agent", f"spawn-{name}", description=f"{name} works", prompt=prompt, name=name, **more)


def tell(to: str, message: Any, summary: str | None = "a word") -> ToolUse:
    more = {"summary": summary} if isinstance(message, str) else {}
    return use("SendMessage", to=to, message=message, **more)


def last_words(request: Request) -> str:
    return request.messages[-1].text


def results(messages: Sequence[Message]) -> list[ToolResult]:
    return [block for message in messages for block in message.content if isinstance(block, ToolResult)]


def last_result(request: Request) -> str:
    return result_text(results(request.messages)[-1])


def request_id(request: Request) -> str:
    """Return the id of the request that was shown last."""
    found: list[str] = re.findall(r'"request_id": "([^"]+)"', "\n".join(m.text for m in request.messages))
    return found[-1]


def approve_shutdown(request: Request) -> ToolUse:
    answer = {"type": "shutdown_response", "request_id": request_id(request), "approve": True}
    return use("SendMessage", to="team-lead", message=answer)


def home() -> Path:
    return Path(os.environ["SHOAL_HOME"])


def config(team: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home() / "teams" / team / "config.json").read_text())
    return found


def inbox(team: str, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        (home() / "teams" / team / "inboxes" / f"{name}.json").read_text()
    )
    return found
