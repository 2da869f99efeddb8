"""Scripted models for a lead and the agents it starts, and a gate at which an agent waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeAlias

from shoal.app.session.session import Session
from shoal.app.session.turn import Turn
from shoal.core.events import Event, Finished
from shoal.core.messages import ToolUse
from shoal.core.requests import Request
from shoal.models.scripted import Sayable, ScriptedModel
from shoal.stores.files.journal import FileJournal, read_journal
from shoal.stores.memory import MemoryJournal
from shoal.tools.define import FunctionTool, tool

_numbers = count(1)
Part: TypeAlias = Sequence[Sayable | Callable[[Request], Sayable]]


def use(tool_name: str, call_id: str = "", /, **arguments: Any) -> ToolUse:
    return ToolUse(
        id=call_id or f"call-{tool_name}-{abs(hash(str(arguments))):x}", name=tool_name, input=arguments
    )


def agent(prompt: str, call_id: str = "", /, **more: Any) -> ToolUse:
    return use("Agent", call_id, description=prompt, prompt=prompt, **more)


def cast(**parts: Part) -> ScriptedModel:
    """Create a model with one script per agent, named by the first word of the agent's first message."""

    def mind(request: Request) -> Sayable:
        who = request.messages[0].text.split(maxsplit=1)[0].rstrip(".,:")
        spoken = sum(message.role == "assistant" for message in request.messages)
        part = parts[who]
        line = part[min(spoken, len(part) - 1)]
        return line(request) if callable(line) else line

    return ScriptedModel(mind)


class Gate:
    """A tool that signals when an agent reaches it, and returns when the gate is opened."""

    def __init__(self, name: str = "Gate") -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.calls = 0

        @tool(name=name, reads_only=True, deadline=None)
        async def gate() -> str:
            """Wait."""
            self.calls += 1
            self.reached.set()
            await self.opened.wait()
            return "through"

        @tool(name="Until", reads_only=True, deadline=10)
        async def until() -> str:
            """Wait until an agent is at the gate."""
            await self.reached.wait()
            return "it is there"

        @tool(name="Open", reads_only=True, deadline=10)
        async def open_gate() -> str:
            """Open the gate."""
            self.opened.set()
            return "open"

        self.tool: FunctionTool = gate
        self.until: FunctionTool = until
        self.open: FunctionTool = open_gate

    async def wait(self) -> None:
        async with asyncio.timeout(10):
            await self.reached.wait()


async def all_turns(session: Session, prompt: str | None = "lead") -> str:
    """Run the turn for this prompt and all turns that follow from it; return the last text."""
    text = ""
    async with asyncio.timeout(30):
        turn: Turn | None = session.run(prompt)
        while turn is not None:
            async for event in turn:
                text = event.text if isinstance(event, Finished) else text
            turn = await session.next_turn()
    return text


def recorded(session: Session) -> list[Event]:
    """Return all events in the session's journal, in and between its turns."""
    journal = session.parts.journal
    if isinstance(journal, MemoryJournal):
        return list(journal.events)
    assert isinstance(journal, FileJournal)
    return [each.event for each in read_journal(journal.path) if isinstance(each.event, Event)]
