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
from bench.timing import Spent
from shoal.backends.processes import GuardedProcesses
from shoal.backends.sandbox.choosing import kinds_here
from shoal.backends.sandbox.kind import Kind
from shoal.core.clock import SystemClock
from shoal.core.ports import Launch
from shoal.core.sandbox import Confines

_HIDDEN = (".ssh", ".aws", ".gnupg", ".config/gh", ".netrc")
_TARGET = 15.0


class Size(Struct, frozen=True, kw_only=True):
    rounds: int = 40


def measure(size: Size) -> Section:
    troubles = {kind: kind.trouble() for kind in kinds_here(os.environ.get("PATH", os.defpath))}
    plain, *confined = asyncio.run(
        sandbox_cost([kind for kind, trouble in troubles.items() if trouble is None], size.rounds)
    )
    times = iter(confined)
    return Section(
        name="Sandboxed commands",
        unit="ms until `exit 0` has ended, by which a confined one takes longer",
        other="none",
        figures=[
            Figure(name="a plain command, as a whole", ours=_wall(plain), judged="wall"),
            *(
                Figure(name=f"more in {kind.name}", missing=trouble)
                if trouble
                else Figure(
                    name=f"more in {kind.name}",
                    ours=_wall(next(times) - plain),
                    target=_TARGET,
                    judged="wall",
                )
                for kind, trouble in troubles.items()
            ),
        ],
    )


async def sandbox_cost(kinds: Sequence[Kind], rounds: int = 40) -> list[float]:
    """Return the minimum milliseconds of a plain command, and of one confined by each of the drivers.

    The minimum, because other load only adds, and most of all to a command of many processes.
    """
    processes = GuardedProcesses(SystemClock())
    with tempfile.TemporaryDirectory() as directory:
        project, home = Path(directory), Path(directory, "home")
        for name in _HIDDEN:
            (home / name).mkdir(parents=True)
        quiet = os.open(os.devnull, os.O_WRONLY)
        plain = Launch(
            argv=("/bin/sh", "-c", "exit 0"), cwd=project, env=dict(os.environ), stdout=quiet, stderr=quiet
        )
        confines = Confines(
            writable=(project / "work",),
            kept=(project / "work/.git/hooks",),
            hidden=tuple(home / name for name in _HIDDEN),
        )
        (project / "work/.git/hooks").mkdir(parents=True)

        async def timed(launch: Launch) -> float:
            since = time.perf_counter()
            status = await (await processes.start(launch)).wait()
            assert status == 0, launch
            return (time.perf_counter() - since) * 1000

        launches = [plain, *(kind.wrap(plain, confines) for kind in kinds)]
        try:
            for launch in launches:  # warm
                await timed(launch)
            # In turn, so that all see the same machine.
            turns = [[await timed(launch) for launch in launches] for _ in range(rounds)]
        finally:
            os.close(quiet)
            await processes.aclose()
    return [min(times) for times in zip(*turns, strict=True)]


def _wall(value: float) -> Spent:
    """Return a wall time: other processes do the work, so their CPU time is not ours."""
    return Spent(float("nan"), value)
