"""Many agents of one session, in a separate process: `python -m bench.crowd at-once --agents 9 --rounds 5`.

Prints the seconds of CPU and wall time that their work took; with `idle`, the bytes that each of them holds
after its end.
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
from bench import bare
from bench.instant import FINAL, Adder, InstantModel
from bench.subject import empty_home, text_of
from bench.timing import Spent, Stopwatch
from shoal.app.session.session import Session
from shoal.core.messages import Message, Text, ToolUse
from shoal.core.requests import Hear, Reply, Request, Sent
from shoal.core.usage import ModelCard, Usage

_JOB = "Add one, as often as you were told."
_USAGE = Usage(input_tokens=100, output_tokens=10)
_SETTINGS = json.dumps({"shoal": {"max_concurrent": 1_000_000, "fan_out_preview": None}})
_FIRST = 20
"""Number of agents that warm up."""


class CrowdModel:
    """With each answer the lead starts the next wave of agents, and ends at a wave of 0."""

    card: ModelCard = InstantModel.card

    def __init__(self, waves: Iterable[int], rounds: int) -> None:
        self._waves = iter(waves)
        self._mind = InstantModel(rounds)
        self._started = 0

    async def reply(self, request: Request, hear: Hear) -> Reply:
        if request.messages[0].text == _JOB:
            return await self._mind.reply(request, hear)
        await hear(Sent())
        agents = next(self._waves)
        calls = [self._call() for _ in range(agents)]
        message = Message(role="assistant", content=tuple(calls) or (Text(text=FINAL),))
        stop_reason = "tool_use" if calls else "end_turn"
        return Reply(message=message, usage=_USAGE, stop_reason=stop_reason, model="instant", id="m")

    def _call(self) -> ToolUse:
        self._started += 1
        return ToolUse(id=f"a{self._started}", name="Agent", input={"description": "Add", "prompt": _JOB})

    async def aclose(self) -> None: ...


@asynccontextmanager
async def crowded(model: CrowdModel, adder: Adder, cwd: Path, *, persist: bool) -> AsyncIterator[Session]:
    async with shoal.open(
        cwd=cwd, model=model, tools=[adder.tool], allowed_tools=["add"], persist=persist, settings=_SETTINGS
    ) as session:
        yield session


async def at_once(root: Path, agents: int, rounds: int, *, persist: bool) -> Spent:
    return await _worked(root, (_FIRST, 0, agents, 0), rounds, persist=persist)


async def in_a_row(root: Path, agents: int, rounds: int, *, persist: bool) -> Spent:
    """Run the agents one after another, each in a round of the lead."""
    return await _worked(root, (_FIRST, 0, *[1] * agents, 0), rounds, persist=persist)


async def _worked(root: Path, waves: tuple[int, ...], rounds: int, *, persist: bool) -> Spent:
    adder = Adder()
    async with crowded(CrowdModel(waves, rounds), adder, root, persist=persist) as session:
        assert await text_of(session, "warm up") == FINAL
        watch = Stopwatch()
        text = await text_of(session, "go")
        spent = watch.read()
    assert (text, adder.calls) == (FINAL, sum(waves) * rounds), (text, adder.calls)
    return spent


async def bare_at_once(root: Path, agents: int, rounds: int, *, persist: bool) -> Spent:
    """Run one asyncio task per agent, with a file each if `persist`."""
    return await _worked_bare(root, (agents,), rounds, persist=persist)


async def bare_in_a_row(root: Path, agents: int, rounds: int, *, persist: bool) -> Spent:
    return await _worked_bare(root, (1,) * agents, rounds, persist=persist)


async def _worked_bare(root: Path, waves: tuple[int, ...], rounds: int, *, persist: bool) -> Spent:
    adder = Adder()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    async def work(number: int) -> None:
        file = os.open(root / f"{number}.jsonl", flags) if persist else -1
        text = await bare.loop(_JOB, bare.instant(rounds), {"add": adder.add}, file)
        assert text == FINAL, text
        if persist:
            os.close(file)

    watch = Stopwatch()
    for agents in waves:
        async with asyncio.TaskGroup() as tasks:
            for number in range(agents):
                tasks.create_task(work(number))
    spent = watch.read()
    assert adder.calls == sum(waves) * rounds, adder.calls
    return spent


async def idle(root: Path, agents: int, rounds: int, *, persist: bool) -> float:
    """Return the bytes held per ended agent, without what the lead remembers of it."""
    adder = Adder()
    async with crowded(CrowdModel((_FIRST, 0, agents, 0), rounds), adder, root, persist=persist) as session:
        tracemalloc.start()
        held = []
        for prompt in ("warm up", "go"):
            assert await text_of(session, prompt) == FINAL
            session.agent.conversation.messages.clear()
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
        assert len(session.parts.crew.agents()) == _FIRST + agents
        return (held[1] - held[0]) / agents


WORKS = {
    "at-once": at_once,
    "in-a-row": in_a_row,
    "bare-at-once": bare_at_once,
    "bare-in-a-row": bare_in_a_row,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Many agents of one session.")
    parser.add_argument("work", choices=(*WORKS, "idle"))
    parser.add_argument("--agents", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--persist", action="store_true")
    given = parser.parse_args()
    size = (given.agents, given.rounds)
    with empty_home() as root:
        if given.work == "idle":
            print(asyncio.run(idle(root, *size, persist=given.persist)))
        else:
            spent = asyncio.run(WORKS[given.work](root, *size, persist=given.persist))
            print(spent.cpu, spent.wall)


if __name__ == "__main__":
    main()
