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
from shoal.agent.forking import MARK
from shoal.core.events import AgentStarted, Event
from shoal.core.messages import Text, ToolResult, ToolUse, result_text
from shoal.core.requests import Request
from shoal.models.scripted import ScriptedModel

ON = '{"shoal": {"forks": true, "fan_out_preview": null}}'


def agent_call(call_id: str, prompt: str, **more: Any) -> ToolUse:
    return ToolUse(id=call_id, name="Agent", input={"description": "a job", "prompt": prompt, **more})


def message_to(agent: str, text: str) -> ToolUse:
    return ToolUse(id="m1", name="SendMessage", input={"to": agent, "message": text, "summary": "more"})


def last_of(request: Request) -> str:
    """Return the last text sent to the model, tool results included."""
    parts: list[str] = []
    for block in request.messages[-1].content:
        if isinstance(block, Text):
            parts.append(block.text)
        elif isinstance(block, ToolResult):
            parts.append(result_text(block))
    return "\n".join(parts)


def in_fork(request: Request) -> bool:
    return any(
        isinstance(block, Text) and block.text.startswith(MARK)
        for message in request.messages
        for block in message.content
    )


class Minds:
    """One script for the lead and one for all forks; records the requests of both."""

    def __init__(self, lead: Callable[[Request], Any], fork: Callable[[Request], Any]) -> None:
        self._lead = lead
        self._fork = fork
        self.of_lead: list[Request] = []
        self.of_forks: list[Request] = []

    def __call__(self, request: Request) -> Any:
        kept = structs.replace(request, messages=list(request.messages))
        if in_fork(request):
            self.of_forks.append(kept)
            return self._fork(request)
        self.of_lead.append(kept)
        return self._lead(request)

    @property
    def model(self) -> ScriptedModel:
        return ScriptedModel(self)


def open_forking(cwd: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=cwd, model=model, **{"attended": True, "settings": ON, **options})


async def through(session: shoal.Session, prompt: str = "go") -> list[Event]:
    """Return the events of the turn and of all turns that its agents cause."""
    events = [event async for event in session.run(prompt)]
    while (turn := await session.next_turn()) is not None:
        events += [event async for event in turn]
    return events


def started(events: list[Event]) -> list[AgentStarted]:
    return [event for event in events if isinstance(event, AgentStarted)]


def reports(session: shoal.Session) -> list[str]:
    agents = session.parts.crew.agents()
    return [agent.completion.text for agent in agents if agent.completion is not None]


def transcript_of(session: shoal.Session, agent: str) -> Path:
    home = Path(os.environ["SHOAL_HOME"])
    (path,) = home.glob(f"projects/*/{session.id}/subagents/agent-{agent}.jsonl")
    return path


async def in_process(cwd: Path, model: str, prompt: str, *, session: str = "") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, __file__, str(cwd), model, session, prompt, start_new_session=True
    )


async def _main(cwd: str, model: str, session: str, prompt: str) -> None:
    async with open_forking(Path(cwd), model, resume=session or None) as opened:
        await through(opened, prompt)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
