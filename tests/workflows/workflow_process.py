"""A program with a workflow of many agents, which a test kills and starts again.

Usage: python workflow_process.py PROJECT RECORD COUNT [SESSION]

Each agent call appends its prompt to RECORD, and each finished step prints a line. With LOCKSTEP=1 it then
reads a line before it continues. With DIE_AFTER_AGENT=N it kills itself when the end of the Nth agent is
journaled, before its step is recorded.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import shoal
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentEnded, Event, WorkflowStepFinished

editor = shoal.Agent("editor", prompt="You edit.", tools=[])
checker = shoal.Agent("checker", prompt="You check.", tools=[])


@shoal.workflow
async def edit_files(flow: shoal.Workflow, count: int) -> dict[str, Any]:
    started = flow.now().isoformat()
    flow.phase("edit")
    edits = await flow.map(editor, [f"file {number}" for number in range(count)], at_once=8)
    flow.phase("check")
    seeds = [flow.random(), flow.random()]
    checks = await flow.map(checker, edits, at_once=8)
    return {"started": started, "seeds": seeds, "ended": flow.now().isoformat(), "checks": checks}


def append_line(path: Path, line: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def write_line(text: str) -> None:
    os.write(1, f"{text}\n".encode())


async def main(project: str, record: str, count: str, session_id: str | None = None) -> None:
    calls = Path(record)

    def reply(request: ModelRequest) -> str:
        append_line(calls, request.messages[0].text)
        return f"did {request.messages[0].text}"

    ended_agents = 0

    def watch_steps(event: Event) -> None:
        nonlocal ended_agents
        if isinstance(event, AgentEnded):
            ended_agents += 1
            if ended_agents == int(os.environ.get("DIE_AFTER_AGENT", "0")):
                os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(event, WorkflowStepFinished):
            write_line("step")
            if os.environ.get("LOCKSTEP"):
                sys.stdin.readline()

    options = {"cwd": project, "model": shoal.ScriptedModel(reply)}
    async with shoal.open(**options, **({} if session_id is None else {"resume": session_id})) as session:
        session.subscribe(watch_steps)
        if session_id is None:
            write_line(session.config.history.session)
            write_line(json.dumps(await edit_files.run(session, int(count))))
        else:
            write_line(json.dumps(await edit_files.resume(session)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
