"""Measures hooks: the cost when there are none, and what running one adds to the command itself."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from msgspec import Struct

import shoal
from bench.bench_session import open_session, use_empty_home
from bench.figures import Figure, Section
from bench.instant_model import AddTool, InstantModel
from bench.solo_home import format_hook_command, write_solo_home
from bench.stopwatch import Stopwatch, TimeSpent
from shoal.core.extensions.hooks import HookDispatcher

_COMMAND = "cat > /dev/null; exit 0"
_FACTS = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "c1"}


class HookBenchSize(Struct, frozen=True, kw_only=True):
    calls: int = 20_000
    repeats: int = 9
    rounds: int = 60


def measure_hooks(size: HookBenchSize) -> list[Section]:
    return asyncio.run(_measure_sections(size))


async def _measure_sections(size: HookBenchSize) -> list[Section]:
    with use_empty_home() as root:
        async with open_session(InstantModel(1), AddTool(), root, persist=False) as session:
            unhooked = _time_unhooked_calls(session.agent.hooks, size)
        hook = {"PreToolUse": [{"hooks": [{"type": "command", "command": _COMMAND}]}]}
        settings = json.dumps({"hooks": hook})
        async with shoal.open(cwd=root, model=InstantModel(1), persist=False, settings=settings) as session:
            ours, bare = await _time_hooks(session.agent.hooks, root, size.rounds, _COMMAND)
        write_solo_home(root / "solo")
        os.environ["SHOAL_HOME"] = str(root / "solo" / ".claude")
        async with shoal.open(cwd=root, model=InstantModel(1), persist=False) as session:
            command = format_hook_command(root / "solo", "before")
            full, full_bare = await _time_hooks(session.agent.hooks, root, size.rounds, command)
    return [
        Section(
            name="No hooks",
            unit="µs per tool call, for finding out that nobody wants to hear of it",
            other="none",
            figures=[Figure(name="before and after a call", ours=unhooked, target=2.0)],
        ),
        Section(
            name="Command hooks",
            unit="ms until a hook that reads its input and exits has answered",
            other="the same command from asyncio, with a pipe for its input",
            figures=[
                Figure(
                    name="one hook, as a whole",
                    ours=_make_wall_time(ours),
                    bare=_make_wall_time(bare),
                    judged="wall",
                ),
                Figure(
                    name="more than the command", ours=_make_wall_time(ours - bare), target=5.0, judged="wall"
                ),
                Figure(
                    name="more than the command, home with 6 hooks",
                    ours=_make_wall_time(full - full_bare),
                    target=5.0,
                    judged="wall",
                ),
            ],
        ),
    ]


def _time_unhooked_calls(hooks: HookDispatcher, size: HookBenchSize) -> TimeSpent:
    samples: list[TimeSpent] = []
    for _ in range(size.repeats):
        watch = Stopwatch()
        for _ in range(size.calls):
            assert not hooks.has_hooks_for("PreToolUse")
            assert not hooks.has_hooks_for("PostToolUse")
        samples.append(watch.read_time().divide_by(size.calls))
    least = min(samples, key=lambda spent: spent.cpu)
    return TimeSpent(least.cpu * 1e6, least.wall * 1e6)


async def _time_hooks(hooks: HookDispatcher, root: Path, rounds: int, command: str) -> tuple[float, float]:
    """Return the minimum of each, since other load only adds. They run in turn on the same machine."""
    ours: list[float] = []
    bare: list[float] = []
    for repeat in range(rounds + 1):
        started = time.perf_counter()
        await hooks.run_hooks("PreToolUse", _FACTS)
        between = time.perf_counter()
        await _run_bare_command(root, command)
        if repeat:  # the first one starts the guardian
            ours.append((between - started) * 1000)
            bare.append((time.perf_counter() - between) * 1000)
    return min(ours), min(bare)


async def _run_bare_command(root: Path, command: str) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", command, cwd=root, stdin=pipe, stdout=pipe, stderr=pipe
    )
    await process.communicate(json.dumps(_FACTS).encode())


def _make_wall_time(value: float) -> TimeSpent:
    """Return a wall time: other processes do the work, so their CPU time is not ours."""
    return TimeSpent(float("nan"), value)
