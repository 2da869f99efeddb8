"""Helpers for tests of teams: settings, events, processes and tasks."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shoal
from agent_scripts import call_tool
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import Event
from team_scripts import find_tool_results, get_home, get_last_text

CRASHING_LEAD = Path(__file__).with_name("crashing_lead.py")


def make_shoal_settings(**fields: Any) -> str:
    """Encode settings with these fields under `shoal`."""
    return json.dumps({"shoal": fields})


def watch_for_event(session: shoal.Session, condition: Callable[[Event], bool]) -> asyncio.Event:
    """Return an event that is set when the session emits a matching one."""
    seen = asyncio.Event()
    session.subscribe(lambda event: seen.set() if condition(event) else None)
    return seen


async def run_crashing_lead(cwd: Path, session: str, script: str) -> None:
    """Run a lead with this script of `crashing_scripts` until it has killed its process."""
    process = await asyncio.create_subprocess_exec(sys.executable, CRASHING_LEAD, cwd, session, script, "0")
    async with asyncio.timeout(60):
        assert await process.wait() == -signal.SIGKILL


def read_task(number: int | str, team: str = "crew") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((get_home() / "tasks" / team / f"{number}.json").read_text())
    return found


def complete_announced_task(request: ModelRequest) -> Any:
    """Complete the task that the last message announces; go idle if there is none."""
    if find_tool_results(request.messages[-1:]):
        return "done"
    number = get_last_text(request).partition("Task #")[2].partition(" ")[0]
    return call_tool("TaskUpdate", taskId=number, status="completed") if number else "ready"
