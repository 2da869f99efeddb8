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
from bench.bench_session import run_prompt, use_empty_home
from bench.http_bench import create_retrying_model
from bench.instant_model import InstantModel
from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import (
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
)
from shoal.tools.function_tool import tool

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
async def _open_session(model: Any, *, keep: bool = _KEEP) -> AsyncIterator[shoal.Session]:
    with use_empty_home() as root:
        async with shoal.open(
            cwd=root, model=model, tools=[add], allowed_tools=["add"], persist=keep, settings=_SETTINGS
        ) as session:
            yield session


@asynccontextmanager
async def run(rounds: int):
    async with _open_session(InstantModel(rounds, call_text="")) as session:
        yield lambda: run_prompt(session, "go")


class DelegatingModel:
    """The lead starts so many agents with its first answer; each of them has its own scripted model."""

    card = InstantModel.card

    def __init__(self, agents: int, mind: "InstantModel | HistoryModel") -> None:
        self.agents = agents
        self._child_model = mind
        self.seen = 0

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        if request.messages[0].text.startswith(CHILD):
            return await self._child_model.generate_reply(request, on_delta)
        await on_delta(ModelAttemptStartedDelta())
        last = request.messages[-1]
        results = [block for block in last.content if isinstance(block, ToolResultBlock)]
        self.seen = sum(FINAL in extract_tool_result_text(block) for block in results)
        agents, self.agents = self.agents, 0
        if not agents:
            return _make_reply(TextBlock(text=FINAL))
        given = {"description": "Add", "prompt": CHILD}
        return _make_reply(*(ToolUseBlock(id=f"a{n}", name="Agent", input=given) for n in range(agents)))

    async def aclose(self) -> None: ...


def _make_reply(*content) -> ModelReply:
    stop_reason = "tool_use" if isinstance(content[0], ToolUseBlock) else "end_turn"
    message = Message(role="assistant", content=content)
    return ModelReply(message=message, usage=_USAGE, stop_reason=stop_reason, model="instant", id="m")


@asynccontextmanager
async def crowd(agents: int, rounds: int):
    model = DelegatingModel(agents, InstantModel(rounds, call_text=""))
    async with _open_session(model) as session:

        async def run_lead() -> int:
            assert await run_prompt(session, "go") == FINAL
            return model.seen

        yield run_lead


class HistoryModel:
    """Says what the history of each agent holds, and calls the tool in between."""

    card = InstantModel.card

    def __init__(self) -> None:
        self._told = 0

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        await on_delta(ModelAttemptStartedDelta())
        done = len(request.messages) // 2
        self._told += 1
        text = TextBlock(text=history(self._told)[done][1])
        if done == 4:
            return _make_reply(TextBlock(text=f"{FINAL}: {text.text}"))
        call = ToolUseBlock(id=f"c{done}", name="add", input={"a": self._told, "b": 1})
        message = Message(role="assistant", content=(text, call))
        return ModelReply(message=message, usage=_USAGE, stop_reason="tool_use", model="instant", id="m")


async def all_waiting(agents: int) -> float:
    """Return the KB per agent that has ended and can be asked again, including its ten messages."""
    model = DelegatingModel(0, HistoryModel())
    held = []
    async with _open_session(model) as session:
        for started in range(0, agents + _AT_ONCE, _AT_ONCE):
            model.agents = _AT_ONCE
            assert await run_prompt(session, "go") == FINAL
            session.agent.conversation.messages.clear()
            if started in (0, agents):
                gc.collect()
                held.append(memory())
        assert len(session.supervisor.list_agents()) == agents + _AT_ONCE
        assert SUMS.count == 4 * (agents + _AT_ONCE)
    return (held[1] - held[0]) / agents


@asynccontextmanager
async def over_http(base: str, rounds: int, stream: bool):
    """Return a call whose answers are always streamed."""
    async with _open_session(create_retrying_model("chat", base)) as session:
        yield lambda: run_prompt(session, f"ROUNDS={rounds}")


if __name__ == "__main__":
    answer(sys.modules[__name__])
