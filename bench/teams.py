"""Measures teams: the time to wake a teammate, the memory of a thousand, and their throughput."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles

from msgspec import Struct

import shoal
from bench.children import SOURCES, run
from bench.figures import Figure, Section
from bench.subject import empty_home
from bench.team_crowd import quiet
from bench.timing import Spent
from shoal.app.session.session import Session

KINDS = ("in-process", "process")
"""Backends of teammates, as the setting `teammate_mode` names them."""
_WAKE = {"in-process": 2.5, "process": 5.0}
_SPAWNS = {"in-process": 200.0, "process": 800.0}
_SHARE = 30.0
"""MB of memory that a teammate's process may use, including its part of shared memory."""
_MODEL = "anthropic:claude-sonnet-4-5"
_TEAM = "crew"
_WARM_UP = 10


class Size(Struct, frozen=True, kw_only=True):
    spawns: int = 8
    spawn_repeats: int = 5
    wakes: int = 200
    idle: int = 1_000
    members: int = 1_000
    tasks: int = 10_000


def measure(size: Size) -> list[Section]:
    return [
        Section(
            name="Teammates over HTTP",
            unit="ms, wall",
            other="–",
            timed=False,
            figures=[figure for kind in KINDS for figure in asyncio.run(_over_http(kind, size))],
        ),
        Section(
            name="A teammate's process after a turn",
            unit="MB, proportional set size",
            other="–",
            timed=False,
            figures=[_shown("the largest of a team", asyncio.run(_share(size)), _SHARE)],
        ),
        *_large(size),
    ]


async def _over_http(kind: str, size: Size) -> list[Figure]:
    spawns: list[float] = []
    for _ in range(size.spawn_repeats - 1):
        async with _team(kind, size.spawns) as outside:
            spawns.append(outside.spawned)
    async with _team(kind, size.spawns) as outside:
        spawns.append(outside.spawned)
        wakes = [await outside.wake() for _ in range(size.wakes + _WARM_UP)][_WARM_UP:]
    woken = f"{kind}: mail from outside → request"
    started = f"{kind}: {size.spawns} spawns → last one's request"
    return [
        _shown(f"{woken}, p50", median(wakes) * 1e3, _WAKE.get(kind)),
        _shown(f"{woken}, p95", quantiles(wakes, n=20)[18] * 1e3),
        _shown(started, median(spawns) * 1e3, _SPAWNS.get(kind)),
    ]


async def _share(size: Size) -> float:
    async with _team("process", size.spawns) as outside:
        return max(map(_megabytes, outside.pids))


def _megabytes(pid: int) -> float:
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("Pss:")) / 1024


def _shown(name: str, value: float, target: float | None = None, bare: float | None = None) -> Figure:
    plain = None if bare is None else Spent(bare, bare)
    return Figure(name=name, ours=Spent(value, value), bare=plain, target=target)


class _Outside:
    """Talks to the process that the team is measured from."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self.spawned = 0.0
        self.pids: tuple[int, ...] = ()
        """Ids of the members' processes."""

    async def line(self) -> str:
        return (await self._out.readline()).decode().strip()

    async def wake(self) -> float:
        self._in.write(b"wake\n")
        return float(json.loads(await self.line()))

    def end(self) -> None:
        self._in.close()


@asynccontextmanager
async def _team(kind: str, members: int) -> AsyncIterator[_Outside]:
    """Open a team of that many idle members, whose provider is the other process."""
    with empty_home() as root:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.team_outside", "--team", _TEAM, "--members", str(members)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": SOURCES},
        )
        outside = _Outside(process)
        # Other processes read it from the environment, too; the environment is restored with the home.
        os.environ.update(ANTHROPIC_BASE_URL=await outside.line(), ANTHROPIC_API_KEY="bench")
        settings = json.dumps({"shoal": {"fan_out_preview": None, "teammate_mode": kind}})
        async with shoal.open(cwd=root, model=_MODEL, skip_permissions=True, settings=settings) as session:
            await quiet(session, "Make a team.")
            outside.spawned = float(json.loads(await outside.line()))
            outside.pids = tuple(each.pid for each in session.parts.teams.members() if each.pid)
            async with asyncio.TaskGroup() as tasks:
                taking = tasks.create_task(_take_turns(session))
                yield outside
                taking.cancel()
        outside.end()
        await process.wait()


async def _take_turns(session: Session) -> None:
    """Take turns as a surface does: the lead receives the results of those that were woken."""
    while (turn := await session.next_turn(wait_for_people=True)) is not None:
        async for _ in turn:
            pass


def _large(size: Size) -> list[Section]:
    cpu, wall, megabytes = _worked("run", size)
    bare_cpu, bare_wall, bare_megabytes = _worked("bare", size)
    output, _ = _process("idle", "--members", str(size.idle))
    scale = size.tasks / 10_000
    name = f"{size.members:,} members do {size.tasks:,} tasks"
    other = "a task of asyncio for each, a queue of what is free, a file for what is said"
    times = Figure(
        name=name,
        ours=Spent(cpu, wall),
        bare=Spent(bare_cpu, bare_wall),
        target=30.0 * scale,
        judged="wall",
    )
    held = float(output) / 1024
    memory = [
        _shown(f"{name}: peak, MB", megabytes, 600.0, bare_megabytes),
        _shown(f"an idle member, of {size.idle:,}, KB", held, 60.0),
    ]
    return [
        Section(name="A large team", unit="s, from its start to its rest", other=other, figures=[times]),
        Section(name="Memory of a large team", unit="MB and KB", other=other, figures=memory, timed=False),
    ]


def _worked(work: str, size: Size) -> tuple[float, float, float]:
    output, megabytes = _process(work, "--members", str(size.members), "--tasks", str(size.tasks))
    cpu, wall = map(float, output.split())
    return cpu, wall, megabytes


def _process(*given: str) -> tuple[str, float]:
    argv = [sys.executable, "-m", "bench.team_crowd", *given]
    ran = run(argv, env={**os.environ, "PYTHONPATH": SOURCES})
    if ran.status:
        raise RuntimeError(f"{' '.join(argv)} ended with {ran.status}:\n{ran.output}")
    return ran.output, ran.megabytes
