"""Scripted models for a lead and its teammates; the system prompt names the speaker."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import shoal
from agent_scripts import call_tool
from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.messages import Message, ToolResultBlock, ToolUseBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import SCRIPTED_CARD, ReplyLike, ScriptedModel

TeamScriptLine: TypeAlias = ReplyLike | Callable[[ModelRequest], ReplyLike]
_NAME = re.compile(r"^- You are ([\w-]+), a member of the team", re.MULTILINE)


def find_speaker(request: ModelRequest) -> str:
    found = _NAME.search(request.system)
    return found.group(1) if found else "lead"


def script_team(
    pace: float = 0.0, card: ModelCard = SCRIPTED_CARD, /, **scripts: Sequence[TeamScriptLine]
) -> ScriptedModel:
    """Play one script per speaker, line by line, and repeat its last line; `pace` is seconds per word."""

    def choose_reply(request: ModelRequest) -> ReplyLike:
        part = scripts[find_speaker(request)]
        spoken = sum(message.role == "assistant" for message in request.messages)
        line = part[min(spoken, len(part) - 1)]
        return line(request) if callable(line) else line

    return ScriptedModel(choose_reply, card=card, pace=pace)


def open_session(tmp_path: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=tmp_path, model=model, **{"skip_permissions": True, **options})


def spawn_member(name: str, prompt: str = "Begin.", **more: Any) -> ToolUseBlock:
    return call_tool("Agent", f"spawn-{name}", description=f"{name} works", prompt=prompt, name=name, **more)


def send_message(to: str, message: Any, summary: str | None = "a word") -> ToolUseBlock:
    more = {"summary": summary} if isinstance(message, str) else {}
    return call_tool("SendMessage", to=to, message=message, **more)


def get_last_text(request: ModelRequest) -> str:
    return request.messages[-1].text


def find_tool_results(messages: Sequence[Message]) -> list[ToolResultBlock]:
    return [block for message in messages for block in message.content if isinstance(block, ToolResultBlock)]


def get_last_result(request: ModelRequest) -> str:
    return extract_tool_result_text(find_tool_results(request.messages)[-1])


def find_request_id(request: ModelRequest) -> str:
    """Return the id of the request that was shown last."""
    found: list[str] = re.findall(r'"request_id": "([^"]+)"', "\n".join(m.text for m in request.messages))
    return found[-1]


def approve_shutdown(request: ModelRequest) -> ToolUseBlock:
    answer = {"type": "shutdown_response", "request_id": find_request_id(request), "approve": True}
    return call_tool("SendMessage", to="team-lead", message=answer)


def get_home() -> Path:
    return Path(os.environ["SHOAL_HOME"])


def read_team_config(team: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((get_home() / "teams" / team / "config.json").read_text())
    return found


def read_inbox(team: str, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        (get_home() / "teams" / team / "inboxes" / f"{name}.json").read_text()
    )
    return found
