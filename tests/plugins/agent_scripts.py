"""Scripted models for a lead and the agents it starts, and a gate at which an agent waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeAlias

from shoal.app.session.session import Session
from shoal.app.session.turn import Turn
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import Event, RunFinished
from shoal.models.scripted_model import ReplyLike, ScriptedModel
from shoal.tools.function_tool import FunctionTool, tool

_call_numbers = count(1)
AgentScript: TypeAlias = Sequence[ReplyLike | Callable[[ModelRequest], ReplyLike]]


def call_tool(tool_name: str, call_id: str = "", /, **arguments: Any) -> ToolUseBlock:
    return ToolUseBlock(
        id=call_id or f"call-{tool_name}-{abs(hash(str(arguments))):x}", name=tool_name, input=arguments
    )


def spawn_agent(prompt: str, call_id: str = "", /, **more: Any) -> ToolUseBlock:
    return call_tool("Agent", call_id, description=prompt, prompt=prompt, **more)


def script_agents(**scripts: AgentScript) -> ScriptedModel:
    """Create a model with one script per agent, named by the first word of the agent's first message."""

    def choose_reply(request: ModelRequest) -> ReplyLike:
        who = request.messages[0].text.split(maxsplit=1)[0].rstrip(".,:")
        spoken = sum(message.role == "assistant" for message in request.messages)
        part = scripts[who]
        line = part[min(spoken, len(part) - 1)]
        return line(request) if callable(line) else line

    return ScriptedModel(choose_reply)


class ToolGate:
    """A tool that signals when an agent reaches it, and returns when the gate is opened."""

    def __init__(self, name: str = "Gate") -> None:
        self.is_reached = asyncio.Event()
        self.is_open = asyncio.Event()
        self.calls = 0

        @tool(name=name, reads_only=True, deadline=None)
        async def wait_at_gate() -> str:
            """Wait."""
            self.calls += 1
            self.is_reached.set()
            await self.is_open.wait()
            return "through"

        @tool(name="Until", reads_only=True, deadline=10)
        async def wait_for_agent() -> str:
            """Wait until an agent is at the gate."""
            await self.is_reached.wait()
            return "it is there"

        @tool(name="Open", reads_only=True, deadline=10)
        async def open_gate() -> str:
            """Open the gate."""
            self.is_open.set()
            return "open"

        self.tool: FunctionTool = wait_at_gate
        self.wait_tool: FunctionTool = wait_for_agent
        self.open_tool: FunctionTool = open_gate

    async def wait_until_reached(self) -> None:
        async with asyncio.timeout(60):
            await self.is_reached.wait()


async def run_all_turns(session: Session, prompt: str | None = "lead") -> str:
    """Run the turn for this prompt and all turns that follow from it; return the last text."""
    text = ""
    # Only a hang takes that long: beside other work, members in processes of their own start slowly.
    async with asyncio.timeout(120):
        turn: Turn | None = session.run(prompt)
        while turn is not None:
            async for event in turn:
                text = event.text if isinstance(event, RunFinished) else text
            turn = await session.next_turn()
    return text


def read_events(session: Session) -> list[Event]:
    """Return all events in the session's journal, in and between its turns."""
    records = session.runtime.store.journal.read_records()
    return [each.event for each in records if isinstance(each.event, Event)]
