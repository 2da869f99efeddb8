"""Measures hooks: the cost when there are none, and what running one adds to the command itself."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from msgspec import Struct

import shoal
from bench.figures import Figure, Section
from bench.instant import Adder, InstantModel
from bench.subject import empty_home, opened
from bench.timing import Spent, Stopwatch
from shoal.core.hooks import Hooks

_COMMAND = "cat > /dev/null; exit 0"
_FACTS = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "c1"}


class Size(Struct, frozen=True, kw_only=True):
    calls: int = 20_000
    repeats: int = 9
    rounds: int = 60


def measure(size: Size) -> list[Section]:
    return asyncio.run(_measure(size))


async def _measure(size: Size) -> list[Section]:
    with empty_home() as root:
        async with opened(InstantModel(1), Adder(), root, persist=False) as session:
            none = _asked(session.agent.hooks, size)
        hook = {"PreToolUse": [{"hooks": [{"type": "command", "command": _COMMAND}]}]}
        settings = json.dumps({"hooks": hook})
        async with shoal.open(cwd=root, model=InstantModel(1), persist=False, settings=settings) as session:
            ours, bare = await _run(session.agent.hooks, root, size.rounds)
    return [
        Section(
            name="No hooks",
            unit="µs per tool call, for finding out that nobody wants to hear of it",
            other="none",
            figures=[Figure(name="before and after a call", ours=none, target=2.0)],
        ),
        Section(
            name="Command hooks",
            unit="ms until a hook that reads its input and exits has answered",
            other="the same command from asyncio, with a pipe for its input",
            figures=[
                Figure(name="one hook, as a whole", ours=_wall(ours), bare=_wall(bare), judged="wall"),
                Figure(name="more than the command", ours=_wall(ours - bare), target=5.0, judged="wall"),
            ],
        ),
    ]


def _asked(hooks: Hooks, size: Size) -> Spent:
    samples: list[Spent] = []
    for _ in range(size.repeats):
        watch = Stopwatch()
        for _ in range(size.calls):
            assert not hooks.wants("PreToolUse")
            assert not hooks.wants("PostToolUse")
        samples.append(watch.read().per(size.calls))
    least = min(samples, key=lambda spent: spent.cpu)
    return Spent(least.cpu * 1e6, least.wall * 1e6)


async def _run(hooks: Hooks, root: Path, rounds: int) -> tuple[float, float]:
    """Return the minimum of each, since other load only adds. They run in turn on the same machine."""
    ours: list[float] = []
    bare: list[float] = []
    for repeat in range(rounds + 1):
        since = time.perf_counter()
        await hooks.run("PreToolUse", _FACTS)
        between = time.perf_counter()
        await _bare(root)
        if repeat:  # the first one starts the guardian
            ours.append((between - since) * 1000)
            bare.append((time.perf_counter() - between) * 1000)
    return min(ours), min(bare)


async def _bare(root: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", _COMMAND, cwd=root, stdin=pipe, stdout=pipe, stderr=pipe
    )
    await process.communicate(json.dumps(_FACTS).encode())


def _wall(value: float) -> Spent:
    """Return a wall time: other processes do the work, so their CPU time is not ours."""
    return Spent(float("nan"), value)
