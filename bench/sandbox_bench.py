"""Measures what a sandboxed command costs more than a plain one: all through the guardian, in turn."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from bench.figures import Figure, Section
from bench.stopwatch import TimeSpent
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.backends.sandbox.sandbox_driver import SandboxDriver
from shoal.backends.sandbox.sandbox_selection import list_sandbox_drivers
from shoal.core.clock import SystemClock
from shoal.core.permissions.sandbox import SandboxPolicy
from shoal.core.ports import ProcessLaunchSpec

_HIDDEN_PATHS = (".ssh", ".aws", ".gnupg", ".config/gh", ".netrc")
_TARGET = 15.0


class SandboxBenchSize(Struct, frozen=True, kw_only=True):
    rounds: int = 40


def measure_sandbox(size: SandboxBenchSize) -> Section:
    problems = {
        kind: kind.explain_unavailable() for kind in list_sandbox_drivers(os.environ.get("PATH", os.defpath))
    }
    plain, *confined = asyncio.run(
        time_sandboxes([kind for kind, trouble in problems.items() if trouble is None], size.rounds)
    )
    times = iter(confined)
    return Section(
        name="Sandboxed commands",
        unit="ms until `exit 0` has ended, by which a confined one takes longer",
        other="none",
        figures=[
            Figure(name="a plain command, as a whole", ours=_make_wall_time(plain), judged="wall"),
            *(
                Figure(name=f"more in {kind.name}", missing=trouble)
                if trouble
                else Figure(
                    name=f"more in {kind.name}",
                    ours=_make_wall_time(next(times) - plain),
                    target=_TARGET,
                    judged="wall",
                )
                for kind, trouble in problems.items()
            ),
        ],
    )


async def time_sandboxes(drivers: Sequence[SandboxDriver], rounds: int = 40) -> list[float]:
    """Return the minimum milliseconds of a plain command, and of one confined by each of the drivers.

    The minimum, because other load only adds, and most of all to a command of many processes.
    """
    processes = GuardedProcessLauncher(SystemClock())
    with tempfile.TemporaryDirectory() as directory:
        project, home = Path(directory), Path(directory, "home")
        for name in _HIDDEN_PATHS:
            (home / name).mkdir(parents=True)
        null_fd = os.open(os.devnull, os.O_WRONLY)
        plain = ProcessLaunchSpec(
            argv=("/bin/sh", "-c", "exit 0"),
            cwd=project,
            env=dict(os.environ),
            stdout=null_fd,
            stderr=null_fd,
        )
        policy = SandboxPolicy(
            writable=(project / "work",),
            read_only=(project / "work/.git/hooks",),
            hidden=tuple(home / name for name in _HIDDEN_PATHS),
        )
        (project / "work/.git/hooks").mkdir(parents=True)

        async def time_launch(launch: ProcessLaunchSpec) -> float:
            started = time.perf_counter()
            status = await (await processes.start_process(launch)).wait()
            assert status == 0, launch
            return (time.perf_counter() - started) * 1000

        launches = [plain, *(kind.wrap_launch(plain, policy) for kind in drivers)]
        try:
            for launch in launches:  # warm
                await time_launch(launch)
            # In turn, so that all see the same machine.
            turns = [[await time_launch(launch) for launch in launches] for _ in range(rounds)]
        finally:
            os.close(null_fd)
            await processes.aclose()
    return [min(times) for times in zip(*turns, strict=True)]


def _make_wall_time(value: float) -> TimeSpent:
    """Return a wall time: other processes do the work, so their CPU time is not ours."""
    return TimeSpent(float("nan"), value)
