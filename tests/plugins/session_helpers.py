"""Helpers for tests of a session's agents: open a session and read the results of its calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import shoal
from agent_scripts import read_events
from shoal.core.conversation.messages import Message, ToolResultBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentEnded, AgentStarted, Event


def open_session(
    project: Path, model: Any, *, shoal_settings: dict[str, Any] | None = None, **options: Any
) -> shoal.Session:
    """Open a session; `shoal_settings` are the settings under `shoal`."""
    settings = json.dumps({"shoal": shoal_settings or {}})
    return shoal.open(cwd=project, model=model, **{"skip_permissions": True, "settings": settings, **options})


def find_tool_results(messages: Sequence[Message]) -> list[ToolResultBlock]:
    return [block for message in messages for block in message.content if isinstance(block, ToolResultBlock)]


def list_lead_results(session: shoal.Session) -> list[str]:
    """List the texts of the tool results in the lead's conversation."""
    return [
        extract_tool_result_text(result) for result in find_tool_results(session.agent.conversation.messages)
    ]


def get_last_result(request: ModelRequest) -> str:
    return extract_tool_result_text(find_tool_results(request.messages)[-1])


def list_agent_starts(session: shoal.Session) -> list[AgentStarted]:
    return [event for event in read_events(session) if isinstance(event, AgentStarted)]


def map_agent_results(session: shoal.Session) -> dict[str, Any]:
    """Map agent results by description."""
    found = [event.completion for event in read_events(session) if isinstance(event, AgentEnded)]
    return {each.description: each for each in found}


async def collect_events(turn: Any) -> list[Event]:
    return [event async for event in turn]
