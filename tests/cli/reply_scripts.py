"""Scripted replies of the provider, gates for tool calls, and the prompts that requests carry."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal_process import TIMEOUT

from shoal.testing.mock_replies import ReplyLike
from shoal.testing.scripted_server import MockServerScriptStep, build_script_responder
from shoal.testing.servers import MockServer
from shoal.wire.model_script_codec import ScriptedToolCall

YES = ("--dangerously-skip-permissions",)


def script_replies(*steps: dict[str, Any]) -> Callable[[Any], ReplyLike]:
    return build_script_responder(
        [
            MockServerScriptStep(
                **step | {"tools": tuple(ScriptedToolCall(**call) for call in step.get("tools", ()))}
            )
            for step in steps
        ]
    )


def make_agent_call(
    job: str, *, background: bool = False, kind: str = "general-purpose", **more: Any
) -> dict[str, Any]:
    tool_input = {"description": f"do {job}", "prompt": f"job {job}", **more}
    return {"name": "Agent", "input": tool_input | ({"run_in_background": True} if background else {})}


def make_bash_call(command: str, **more: Any) -> dict[str, Any]:
    return {"name": "Bash", "input": {"command": command, **more}}


def get_prompt_text(server: MockServer, request: int = 0) -> str:
    """Return the text of the last user message of a request."""
    last = server.requests[request].body["messages"][-1]["content"]
    return last if isinstance(last, str) else "\n".join(block.get("text", "") for block in last)


class AsyncFifoGate:
    """Holds a tool call: `command`, run in the directory of the gate, ends when the gate is opened."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self.command = f"cat {path.name}"

    async def open(self) -> None:
        # Opening waits for the command to read, so both have met when it returns.
        async with asyncio.timeout(TIMEOUT):
            await asyncio.to_thread(self._path.write_text, "gate opened\n")
