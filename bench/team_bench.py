"""Measures teams: the time to wake a teammate, the memory of a thousand, and their throughput."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles

from msgspec import Struct

import shoal
from bench.bench_session import use_empty_home
from bench.child_process import SOURCES, run_child
from bench.figures import Figure, Section
from bench.stopwatch import TimeSpent
from bench.team_crowd import run_until_quiet
from shoal.app.session.session import Session
from shoal.backends.guardian import list_descendant_pids
from shoal.backends.tmux_panes import DEFAULT_SOCKET

BACKENDS = ("in-process", "process")
"""Backends of teammates, as the setting `teammate_mode` names them."""
_WAKE_TARGETS = {"in-process": 2.5, "process": 5.0}
_SPAWN_TARGETS = {"in-process": 200.0, "process": 800.0}
_MEMORY_TARGET = 30.0
"""MB of memory that a teammate's process may use, including its part of shared memory."""
_MODEL = "anthropic:claude-sonnet-4-5"
_TEAM = "crew"
_WARM_UP = 10


class TeamBenchSize(Struct, frozen=True, kw_only=True):
    spawns: int = 8
    spawn_repeats: int = 5
    wakes: int = 200
    idle: int = 1_000
    members: int = 1_000
    tasks: int = 10_000


def measure_teams(size: TeamBenchSize) -> list[Section]:
    return [
        Section(
            name="Teammates over HTTP",
            unit="ms, wall",
            other="–",
            timed=False,
            figures=[figure for kind in BACKENDS for figure in asyncio.run(_measure_over_http(kind, size))],
        ),
        Section(
            name="A teammate's process after a turn",
            unit="MB, proportional set size",
            other="–",
            timed=False,
            figures=[
                _make_figure("the largest of a team", asyncio.run(_measure_memory(size)), _MEMORY_TARGET)
            ],
        ),
        *([asyncio.run(_measure_panes(size))] if shutil.which("tmux") else []),
        *_measure_large_team(size),
    ]


async def _measure_over_http(backend: str, size: TeamBenchSize) -> list[Figure]:
    spawns: list[float] = []
    for _ in range(size.spawn_repeats - 1):
        async with _open_team(backend, size.spawns) as provider:
            spawns.append(provider.spawn_seconds)
    async with _open_team(backend, size.spawns) as provider:
        spawns.append(provider.spawn_seconds)
        wakes = [await provider.time_wake() for _ in range(size.wakes + _WARM_UP)][_WARM_UP:]
    wake_name = f"{backend}: mail from outside → request"
    spawn_name = f"{backend}: {size.spawns} spawns → last one's request"
    return [
        _make_figure(f"{wake_name}, p50", median(wakes) * 1e3, _WAKE_TARGETS.get(backend)),
        _make_figure(f"{wake_name}, p95", quantiles(wakes, n=20)[18] * 1e3),
        _make_figure(spawn_name, median(spawns) * 1e3, _SPAWN_TARGETS.get(backend)),
    ]


async def _measure_memory(size: TeamBenchSize) -> float:
    async with _open_team("process", size.spawns) as provider:
        return max(map(_read_megabytes, provider.pids))


async def _measure_panes(size: TeamBenchSize) -> Section:
    """Measure teammates in panes of tmux, with their viewers and guardians."""
    async with _open_team("tmux", 1):
        first = _sum_descendant_megabytes()
    async with _open_team("tmux", size.spawns) as provider:
        wakes = [await provider.time_wake() for _ in range(size.wakes + _WARM_UP)][_WARM_UP:]
        per_teammate = (_sum_descendant_megabytes() - first) / (size.spawns - 1)
    return Section(
        name="Teammates in panes of tmux",
        unit="ms, wall, and MB, proportional set size",
        other="–",
        timed=False,
        figures=[
            _make_figure("mail from outside → request, p50", median(wakes) * 1e3, _WAKE_TARGETS["process"]),
            _make_figure("each further teammate, all its processes", per_teammate, _MEMORY_TARGET),
        ],
    )


def _sum_descendant_megabytes() -> float:
    """Return the memory of our processes and of the shells in panes; the shared parts count once."""
    panes = subprocess.run(
        ["tmux", "-L", DEFAULT_SOCKET, "list-panes", "-a", "-F", "#{pane_pid}"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = {*list_descendant_pids(os.getpid()), *map(int, panes.stdout.split())}
    return sum(map(_read_megabytes, found))


def _read_megabytes(pid: int) -> float:
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it ended meanwhile
    return next(int(row.split()[1]) for row in rows if row.startswith("Pss:")) / 1024


def _make_figure(name: str, value: float, target: float | None = None, bare: float | None = None) -> Figure:
    plain = None if bare is None else TimeSpent(bare, bare)
    return Figure(name=name, ours=TimeSpent(value, value), bare=plain, target=target)


class _TeamProviderClient:
    """Talks to the process that the team is measured from."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self.spawn_seconds = 0.0
        self.pids: tuple[int, ...] = ()
        """Ids of the members' processes."""

    async def read_line(self) -> str:
        return (await self._out.readline()).decode().strip()

    async def time_wake(self) -> float:
        self._in.write(b"wake\n")
        return float(json.loads(await self.read_line()))

    def close_input(self) -> None:
        self._in.close()


@asynccontextmanager
async def _open_team(backend: str, members: int) -> AsyncIterator[_TeamProviderClient]:
    """Open a team of that many idle members, whose provider is the other process."""
    with use_empty_home() as root:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.team_provider", "--team", _TEAM, "--members", str(members)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": SOURCES},
        )
        provider = _TeamProviderClient(process)
        # Other processes read it from the environment, too; the environment is restored with the home.
        os.environ.update(ANTHROPIC_BASE_URL=await provider.read_line(), ANTHROPIC_API_KEY="bench")
        settings = json.dumps({"shoal": {"fan_out_preview": None, "teammate_mode": backend}})
        attended = backend == "tmux"
        if attended:
            os.environ["TMUX_TMPDIR"] = str(root)
            for name in ("TMUX", "TMUX_PANE"):
                os.environ.pop(name, None)
        async with shoal.open(
            cwd=root, model=_MODEL, skip_permissions=True, settings=settings, attended=attended
        ) as session:
            await run_until_quiet(session, "Make a team.")
            provider.spawn_seconds = float(json.loads(await provider.read_line()))
            provider.pids = tuple(each.pid for each in session.teams.list_members() if each.pid)
            async with asyncio.TaskGroup() as tasks:
                turn_task = tasks.create_task(_take_turns(session))
                yield provider
                turn_task.cancel()
        provider.close_input()
        await process.wait()


async def _take_turns(session: Session) -> None:
    """Take turns as a surface does: the lead receives the results of those that were woken."""
    while (turn := await session.next_turn(wait_for_input=True)) is not None:
        async for _ in turn:
            pass


def _measure_large_team(size: TeamBenchSize) -> list[Section]:
    cpu, wall, megabytes = _run_and_time("run", size)
    bare_cpu, bare_wall, bare_megabytes = _run_and_time("bare", size)
    output, _ = _run_process("idle", "--members", str(size.idle))
    scale = size.tasks / 10_000
    name = f"{size.members:,} members do {size.tasks:,} tasks"
    other = "a task of asyncio for each, a queue of what is free, a file for what is said"
    times = Figure(
        name=name,
        ours=TimeSpent(cpu, wall),
        bare=TimeSpent(bare_cpu, bare_wall),
        target=30.0 * scale,
        judged="wall",
    )
    kilobytes = float(output) / 1024
    memory = [
        _make_figure(f"{name}: peak, MB", megabytes, 600.0, bare_megabytes),
        _make_figure(f"an idle member, of {size.idle:,}, KB", kilobytes, 60.0),
    ]
    return [
        Section(name="A large team", unit="s, from its start to its rest", other=other, figures=[times]),
        Section(name="Memory of a large team", unit="MB and KB", other=other, figures=memory, timed=False),
    ]


def _run_and_time(work: str, size: TeamBenchSize) -> tuple[float, float, float]:
    output, megabytes = _run_process(work, "--members", str(size.members), "--tasks", str(size.tasks))
    cpu, wall = map(float, output.split())
    return cpu, wall, megabytes


def _run_process(*arguments: str) -> tuple[str, float]:
    argv = [sys.executable, "-m", "bench.team_crowd", *arguments]
    result = run_child(argv, env={**os.environ, "PYTHONPATH": SOURCES})
    if result.status:
        raise RuntimeError(f"{' '.join(argv)} ended with {result.status}:\n{result.output}")
    return result.output, result.megabytes
