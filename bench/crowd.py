"""Many agents of one session, in a separate process: `python -m bench.crowd at-once --agents 9 --rounds 5`.

Prints the seconds of CPU and wall time that their work took; with `idle`, the bytes that each of them holds
after its end; with `quota`, how many of them start after the provider refused a request for quota.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import shoal
from bench import bare_loop
from bench.bench_session import run_prompt, use_empty_home
from bench.instant_model import FINAL_TEXT, AddTool, InstantModel
from bench.stopwatch import Stopwatch, TimeSpent
from shoal.app.session.session import Session
from shoal.core.budgets.usage import ModelCard, Usage
from shoal.core.conversation.messages import Message, TextBlock, ToolUseBlock
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
)
from shoal.core.events import AgentStarted, Event, ModelRequestFailed
from shoal.core.ids import LEAD_ID
from shoal.stores.memory.memory_store import MemorySessionStore, UnpackedEntries

_CHILD_PROMPT = "Add one, as often as you were told."
_USAGE = Usage(input_tokens=100, output_tokens=10)
_SETTINGS = json.dumps(
    {"shoal": {"max_concurrent": 1_000_000, "fan_out_preview": None, "max_repeated_calls": None}}
)
_WARM_UP_AGENTS = 20
"""Number of agents that warm up."""


class CrowdModel:
    """With each answer the lead starts the next wave of agents, and ends at a wave of 0."""

    card: ModelCard = InstantModel.card

    def __init__(self, waves: Iterable[int], rounds: int) -> None:
        self._waves = iter(waves)
        self._child_model = InstantModel(rounds)
        self._started = 0

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        if request.messages[0].text == _CHILD_PROMPT:
            return await self._child_model.generate_reply(request, on_delta)
        await on_delta(ModelAttemptStartedDelta())
        agents = next(self._waves)
        calls = [self._make_agent_call() for _ in range(agents)]
        message = Message(role="assistant", content=tuple(calls) or (TextBlock(text=FINAL_TEXT),))
        stop_reason = "tool_use" if calls else "end_turn"
        return ModelReply(message=message, usage=_USAGE, stop_reason=stop_reason, model="instant", id="m")

    def _make_agent_call(self) -> ToolUseBlock:
        self._started += 1
        return ToolUseBlock(
            id=f"a{self._started}", name="Agent", input={"description": "Add", "prompt": _CHILD_PROMPT}
        )

    async def aclose(self) -> None: ...


@asynccontextmanager
async def open_crowd_session(
    model: CrowdModel, adder: AddTool, cwd: Path, *, persist: bool
) -> AsyncIterator[Session]:
    async with shoal.open(
        cwd=cwd, model=model, tools=[adder.tool], allowed_tools=["add"], persist=persist, settings=_SETTINGS
    ) as session:
        yield session


async def run_at_once(root: Path, agents: int, rounds: int, *, persist: bool) -> TimeSpent:
    return await _run_waves(root, (_WARM_UP_AGENTS, 0, agents, 0), rounds, persist=persist)


async def run_in_a_row(root: Path, agents: int, rounds: int, *, persist: bool) -> TimeSpent:
    """Run the agents one after another, each in a round of the lead."""
    return await _run_waves(root, (_WARM_UP_AGENTS, 0, *[1] * agents, 0), rounds, persist=persist)


async def _run_waves(root: Path, waves: tuple[int, ...], rounds: int, *, persist: bool) -> TimeSpent:
    add_tool = AddTool()
    async with open_crowd_session(CrowdModel(waves, rounds), add_tool, root, persist=persist) as session:
        assert await run_prompt(session, "warm up") == FINAL_TEXT
        watch = Stopwatch()
        text = await run_prompt(session, "go")
        spent = watch.read_time()
    assert (text, add_tool.calls) == (FINAL_TEXT, sum(waves) * rounds), (text, add_tool.calls)
    return spent


async def run_bare_at_once(root: Path, agents: int, rounds: int, *, persist: bool) -> TimeSpent:
    """Run one asyncio task per agent, with a file each if `persist`."""
    return await _run_bare_waves(root, (agents,), rounds, persist=persist)


async def run_bare_in_a_row(root: Path, agents: int, rounds: int, *, persist: bool) -> TimeSpent:
    return await _run_bare_waves(root, (1,) * agents, rounds, persist=persist)


async def _run_bare_waves(root: Path, waves: tuple[int, ...], rounds: int, *, persist: bool) -> TimeSpent:
    add_tool = AddTool()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    async def run_agent(number: int) -> None:
        file = os.open(root / f"{number}.jsonl", flags) if persist else -1
        text = await bare_loop.run_bare_loop(
            _CHILD_PROMPT, bare_loop.create_instant_model(rounds), {"add": add_tool.add}, file
        )
        assert text == FINAL_TEXT, text
        if persist:
            os.close(file)

    watch = Stopwatch()
    for agents in waves:
        async with asyncio.TaskGroup() as tasks:
            for number in range(agents):
                tasks.create_task(run_agent(number))
    spent = watch.read_time()
    assert add_tool.calls == sum(waves) * rounds, add_tool.calls
    return spent


async def measure_idle(root: Path, agents: int, rounds: int, *, persist: bool) -> float:
    """Return the bytes held per ended agent, without what the lead remembers of it."""
    add_tool = AddTool()
    async with open_crowd_session(
        CrowdModel((_WARM_UP_AGENTS, 0, agents, 0), rounds), add_tool, root, persist=persist
    ) as session:
        tracemalloc.start()
        measurements = []
        for prompt in ("warm up", "go"):
            assert await run_prompt(session, prompt) == FINAL_TEXT
            session.agent.conversation.messages.clear()
            _forget_transcript_of_lead(session)
            gc.collect()
            measurements.append(tracemalloc.get_traced_memory()[0])
        assert len(session.supervisor.list_agents()) == _WARM_UP_AGENTS + agents
        return (measurements[1] - measurements[0]) / agents


def _forget_transcript_of_lead(session: Session) -> None:
    store = session.config.history.store
    if isinstance(store, MemorySessionStore):
        for part in store.transcripts[LEAD_ID]:
            if isinstance(part, UnpackedEntries):
                part.entries.clear()


_PROGRAM_AGENT = shoal.Agent("adder", prompt="You add numbers.", tools=["add"])


@shoal.workflow
async def add_in_workflow(flow: shoal.Workflow, agents: int) -> int:
    return len(await flow.map(_PROGRAM_AGENT, _number_prompts(agents)))


def _number_prompts(agents: int) -> list[str]:
    return [f"Add one: {number}" for number in range(agents)]


async def run_map(root: Path, agents: int, rounds: int, *, persist: bool) -> TimeSpent:
    """Run the agents with `session.map`."""
    return await _run_program(root, agents, rounds, persist=persist, in_workflow=False)


async def run_workflow(root: Path, agents: int, rounds: int, *, persist: bool) -> TimeSpent:
    """Run the agents as steps of a workflow."""
    return await _run_program(root, agents, rounds, persist=persist, in_workflow=True)


async def _run_program(
    root: Path, agents: int, rounds: int, *, persist: bool, in_workflow: bool
) -> TimeSpent:
    async def run_agents(count: int) -> int:
        if in_workflow:
            return await add_in_workflow.run(session, count)
        results = await session.map(_PROGRAM_AGENT, _number_prompts(count))
        return sum(result.ok for result in results)

    add_tool = AddTool()
    async with shoal.open(
        cwd=root,
        model=InstantModel(rounds),
        tools=[add_tool.tool],
        allowed_tools=["add"],
        persist=persist,
        settings=_SETTINGS,
    ) as session:
        assert await run_agents(_WARM_UP_AGENTS) == _WARM_UP_AGENTS
        watch = Stopwatch()
        assert await run_agents(agents) == agents
        spent = watch.read_time()
    assert add_tool.calls == (agents + _WARM_UP_AGENTS) * rounds, add_tool.calls
    return spent


class QuotaModel(InstantModel):
    """Refuses requests because the quota is used up, after a number of replies."""

    def __init__(self, replies: int) -> None:
        super().__init__(0)
        self._replies = replies

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        self._replies -= 1
        if self._replies < 0:
            raise shoal.errors.QuotaExceeded("credit balance is too low", provider="bench", model="instant")
        return await super().generate_reply(request, on_delta)


async def count_starts_after_quota_error(root: Path, agents: int) -> int:
    """Return how many agents of a workflow start after the first refusal."""
    starts: list[bool] = []
    refused = False

    def watch_event(event: Event) -> None:
        nonlocal refused
        refused = refused or (isinstance(event, ModelRequestFailed) and event.quota)
        if isinstance(event, AgentStarted):
            starts.append(refused)

    async with shoal.open(
        cwd=root, model=QuotaModel(agents // 100), tools=[AddTool().tool], allowed_tools=["add"]
    ) as session:
        session.subscribe(watch_event)
        try:
            await add_in_workflow.run(session, agents)
        except shoal.ShoalError:
            assert refused
            return sum(starts)
    raise AssertionError("The workflow did not notice the refusal.")


WORKS = {
    "map": run_map,
    "workflow": run_workflow,
    "at-once": run_at_once,
    "in-a-row": run_in_a_row,
    "bare-at-once": run_bare_at_once,
    "bare-in-a-row": run_bare_in_a_row,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Many agents of one session.")
    parser.add_argument("work", choices=(*WORKS, "idle", "quota"))
    parser.add_argument("--agents", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--persist", action="store_true")
    arguments = parser.parse_args()
    size = (arguments.agents, arguments.rounds)
    with use_empty_home() as root:
        if arguments.work == "idle":
            print(asyncio.run(measure_idle(root, *size, persist=arguments.persist)))
        elif arguments.work == "quota":
            print(asyncio.run(count_starts_after_quota_error(root, arguments.agents)))
        else:
            spent = asyncio.run(WORKS[arguments.work](root, *size, persist=arguments.persist))
            print(spent.cpu, spent.wall)


if __name__ == "__main__":
    main()
