"""Helpers for tests of forks: a session with forks enabled, driven until no turn follows.

As a program, `fork_helpers.py CWD MODEL SESSION PROMPT` runs such a session in a separate process; an empty
SESSION starts a new one.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs

import shoal
from shoal.agent.forks import FORK_MARK
from shoal.core.conversation.messages import (
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentStarted, Event
from shoal.models.scripted_model import ScriptedModel

FORKS_ENABLED = '{"shoal": {"forks": true, "fan_out_preview": null}}'


def spawn_agent(call_id: str, prompt: str, **more: Any) -> ToolUseBlock:
    return ToolUseBlock(id=call_id, name="Agent", input={"description": "a job", "prompt": prompt, **more})


def send_message(agent: str, text: str) -> ToolUseBlock:
    return ToolUseBlock(id="m1", name="SendMessage", input={"to": agent, "message": text, "summary": "more"})


def get_last_text(request: ModelRequest) -> str:
    """Return the last text sent to the model, tool results included."""
    parts: list[str] = []
    for block in request.messages[-1].content:
        if isinstance(block, TextBlock):
            parts.append(block.text)
        elif isinstance(block, ToolResultBlock):
            parts.append(extract_tool_result_text(block))
    return "\n".join(parts)


def is_fork_request(request: ModelRequest) -> bool:
    return any(
        isinstance(block, TextBlock) and block.text.startswith(FORK_MARK)
        for message in request.messages
        for block in message.content
    )


class ForkScript:
    """One script for the lead and one for all forks; records the requests of both."""

    def __init__(self, lead: Callable[[ModelRequest], Any], fork: Callable[[ModelRequest], Any]) -> None:
        self._lead = lead
        self._fork = fork
        self.lead_requests: list[ModelRequest] = []
        self.fork_requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Any:
        kept = structs.replace(request, messages=list(request.messages))
        if is_fork_request(request):
            self.fork_requests.append(kept)
            return self._fork(request)
        self.lead_requests.append(kept)
        return self._lead(request)

    @property
    def model(self) -> ScriptedModel:
        return ScriptedModel(self)


def open_session_with_forks(cwd: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=cwd, model=model, **{"attended": True, "settings": FORKS_ENABLED, **options})


async def run_to_end(session: shoal.Session, prompt: str = "go") -> list[Event]:
    """Return the events of the turn and of all turns that its agents cause."""
    events = [event async for event in session.run(prompt)]
    while (turn := await session.next_turn()) is not None:
        events += [event async for event in turn]
    return events


def list_agent_starts(events: list[Event]) -> list[AgentStarted]:
    return [event for event in events if isinstance(event, AgentStarted)]


def list_reports(session: shoal.Session) -> list[str]:
    agents = session.supervisor.list_agents()
    return [agent.completion.text for agent in agents if agent.completion is not None]


def find_transcript(session: shoal.Session, agent: str) -> Path:
    home = Path(os.environ["SHOAL_HOME"])
    (path,) = home.glob(f"projects/*/{session.id}/subagents/agent-{agent}.jsonl")
    return path


async def start_process(
    cwd: Path, model: str, prompt: str, *, session: str = ""
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, __file__, str(cwd), model, session, prompt, start_new_session=True
    )


async def _run_program(cwd: str, model: str, session: str, prompt: str) -> None:
    async with open_session_with_forks(Path(cwd), model, resume=session or None) as opened:
        await run_to_end(opened, prompt)


if __name__ == "__main__":
    asyncio.run(_run_program(*sys.argv[1:]))
