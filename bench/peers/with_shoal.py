"""Shoal, asked the same. `SHOAL_BENCH_KEEP=1` stores transcripts and the journal on disk, as by default."""

import gc
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from questions import CHILD, FINAL, SUMS, add_up, answer, history, memory

import shoal
from bench.instant import InstantModel
from bench.over_http import ours
from bench.subject import empty_home, text_of
from shoal.core.messages import Message, Text, ToolResult, ToolUse, result_text
from shoal.core.requests import Hear, Reply, Request, Sent
from shoal.core.usage import Usage
from shoal.tools.define import tool

PACKAGES = ()
_KEEP = os.environ.get("SHOAL_BENCH_KEEP") == "1"
_SETTINGS = json.dumps({"shoal": {"max_concurrent": 1_000_000, "fan_out_preview": None}})
_AT_ONCE = 20
"""Agents at work at one time while the waiting ones are created: their working memory is not measured."""
_USAGE = Usage(input_tokens=100, output_tokens=10)


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return add_up(a, b)


@asynccontextmanager
async def _session(model: Any, *, keep: bool = _KEEP) -> AsyncIterator[shoal.Session]:
    with empty_home() as root:
        async with shoal.open(
            cwd=root, model=model, tools=[add], allowed_tools=["add"], persist=keep, settings=_SETTINGS
        ) as session:
            yield session


@asynccontextmanager
async def run(rounds: int):
    async with _session(InstantModel(rounds, saying="")) as session:
        yield lambda: text_of(session, "go")


class Delegating:
    """The lead starts so many agents with its first answer; each of them has its own scripted model."""

    card = InstantModel.card

    def __init__(self, agents: int, mind: "InstantModel | Telling") -> None:
        self.agents = agents
        self._mind = mind
        self.seen = 0

    async def reply(self, request: Request, hear: Hear) -> Reply:
        if request.messages[0].text.startswith(CHILD):
            return await self._mind.reply(request, hear)
        await hear(Sent())
        last = request.messages[-1]
        results = [block for block in last.content if isinstance(block, ToolResult)]
        self.seen = sum(FINAL in result_text(block) for block in results)
        agents, self.agents = self.agents, 0
        if not agents:
            return _reply(Text(text=FINAL))
        given = {"description": "Add", "prompt": CHILD}
        return _reply(*(ToolUse(id=f"a{n}", name="Agent", input=given) for n in range(agents)))

    async def aclose(self) -> None: ...


def _reply(*content) -> Reply:
    stop_reason = "tool_use" if isinstance(content[0], ToolUse) else "end_turn"
    message = Message(role="assistant", content=content)
    return Reply(message=message, usage=_USAGE, stop_reason=stop_reason, model="instant", id="m")


@asynccontextmanager
async def crowd(agents: int, rounds: int):
    model = Delegating(agents, InstantModel(rounds, saying=""))
    async with _session(model) as session:

        async def call() -> int:
            assert await text_of(session, "go") == FINAL
            return model.seen

        yield call


class Telling:
    """Says what the history of each agent holds, and calls the tool in between."""

    card = InstantModel.card

    def __init__(self) -> None:
        self._told = 0

    async def reply(self, request: Request, hear: Hear) -> Reply:
        await hear(Sent())
        done = len(request.messages) // 2
        self._told += 1
        text = Text(text=history(self._told)[done][1])
        if done == 4:
            return _reply(Text(text=f"{FINAL}: {text.text}"))
        call = ToolUse(id=f"c{done}", name="add", input={"a": self._told, "b": 1})
        message = Message(role="assistant", content=(text, call))
        return Reply(message=message, usage=_USAGE, stop_reason="tool_use", model="instant", id="m")


async def all_waiting(agents: int) -> float:
    """Return the KB per agent that has ended and can be asked again, including its ten messages."""
    model = Delegating(0, Telling())
    held = []
    async with _session(model) as session:
        for started in range(0, agents + _AT_ONCE, _AT_ONCE):
            model.agents = _AT_ONCE
            assert await text_of(session, "go") == FINAL
            session.agent.conversation.messages.clear()
            if started in (0, agents):
                gc.collect()
                held.append(memory())
        assert len(session.parts.crew.agents()) == agents + _AT_ONCE
        assert SUMS.count == 4 * (agents + _AT_ONCE)
    return (held[1] - held[0]) / agents


@asynccontextmanager
async def over_http(base: str, rounds: int, stream: bool):
    """Return a call whose answers are always streamed."""
    async with _session(ours("chat", base)) as session:
        yield lambda: text_of(session, f"ROUNDS={rounds}")


if __name__ == "__main__":
    answer(sys.modules[__name__])
