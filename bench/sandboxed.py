"""What a sandboxed command costs more than a plain one: both through the guardian, one after the other."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

from shoal.backends.processes import GuardedProcesses
from shoal.backends.sandbox.choosing import found_among, kinds_here
from shoal.core.clock import SystemClock
from shoal.core.ports import Launch
from shoal.core.sandbox import Confines


async def sandbox_cost(rounds: int = 40) -> tuple[str, float, float] | None:
    """The sandbox, and the median milliseconds of a plain and a confined command; None where none works."""
    kind = found_among(kinds_here(os.environ.get("PATH", os.defpath))).kind
    if kind is None:
        return None
    processes = GuardedProcesses(SystemClock())
    with tempfile.TemporaryDirectory() as directory:
        project, home = Path(directory), Path.home()
        quiet = os.open(os.devnull, os.O_WRONLY)
        plain = Launch(
            argv=("/bin/sh", "-c", "exit 0"), cwd=project, env=dict(os.environ), stdout=quiet, stderr=quiet
        )
        confines = Confines(
            writable=(project,),
            kept=(project / ".git/hooks",),
            hidden=(home / ".ssh", home / ".aws", home / ".gnupg", home / ".config/gh", home / ".netrc"),
        )

        async def timed(launch: Launch) -> float:
            since = time.perf_counter()
            await (await processes.start(launch)).wait()
            return (time.perf_counter() - since) * 1000

        times: tuple[list[float], list[float]] = ([], [])
        try:
            await timed(plain)
            # Turn by turn, so that both see the same machine.
            for _ in range(rounds):
                times[0].append(await timed(plain))
                times[1].append(await timed(kind.wrap(plain, confines)))
        finally:
            os.close(quiet)
            await processes.aclose()
    return kind.name, median(times[0]), median(times[1])
