"""Helpers for tests of a session's agents: open a session and read the results of its calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import shoal
from cast import recorded
from shoal.core.events import AgentEnded, AgentStarted, Event
from shoal.core.messages import Message, ToolResult, result_text
from shoal.core.requests import Request


def opened(project: Path, model: Any, *, own: dict[str, Any] | None = None, **options: Any) -> shoal.Session:
    """Open a session; `shoal_settings` are the settings under `shoal`."""
    settings = json.dumps({"shoal": own or {}})
    return shoal.open(cwd=project, model=model, **{"skip_permissions": True, "settings": settings, **options})


def results(messages: Sequence[Message]) -> list[ToolResult]:
    return [block for message in messages for block in message.content if isinstance(block, ToolResult)]


def texts(session: shoal.Session) -> list[str]:
    """List the texts of the tool results in the lead's conversation."""
    return [result_text(result) for result in results(session.agent.conversation.messages)]


def last_result(request: Request) -> str:
    return result_text(results(request.messages)[-1])


def starts(session: shoal.Session) -> list[AgentStarted]:
    return [event for event in recorded(session) if isinstance(event, AgentStarted)]


def ends(session: shoal.Session) -> dict[str, Any]:
    """Map agent results by description."""
    found = [event.completion for event in recorded(session) if isinstance(event, AgentEnded)]
    return {each.description: each for each in found}


async def drain(turn: Any) -> list[Event]:
    return [event async for event in turn]
