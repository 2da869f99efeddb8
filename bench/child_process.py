"""Runs child processes and measures their CPU, wall time and peak memory from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct

import shoal
from bench.stopwatch import TimeSpent, compute_median

_SOURCE_DIRECTORIES = (Path(__file__).parents[1], Path(shoal.__file__).parents[1])
SOURCES = os.pathsep.join(map(str, _SOURCE_DIRECTORIES))
"""Python path on which a child finds this package and the same Shoal."""
_LAUNCHER = (sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")))
_TIMED_IMPORT = (
    "import time; w, c = time.perf_counter(), time.process_time(); import {}; "
    "print(time.process_time() - c, time.perf_counter() - w)"
)


class ChildResult(Struct, frozen=True, kw_only=True):
    """A process that ended, including the processes it started and waited for."""

    started: float
    """time.monotonic() at the start, which is the same clock in every process."""
    spent: TimeSpent
    megabytes: float
    """Peak memory of the largest of these processes."""
    status: int
    output: str


def run_child(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    on_started: Callable[[int], None] = lambda _: None,
) -> ChildResult:
    """Run a program; `on_started` receives the id of the process that starts it."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        report = Path(directory) / "report"
        process = subprocess.Popen(
            [*_LAUNCHER, str(report), *argv],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        on_started(process.pid)
        output, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{argv[0]} could not be started:\n{output}")
        started, cpu, wall, megabytes, status = report.read_text().split()
    return ChildResult(
        started=float(started),
        spent=TimeSpent(float(cpu), float(wall)),
        megabytes=float(megabytes),
        status=int(status),
        output=output,
    )


def read_child_cpu(launcher: int) -> float:
    """Return the CPU seconds the launched process has used so far, or NaN if the system does not say."""
    try:
        child = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()[0]
        threads = Path(f"/proc/{child}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
    except (OSError, IndexError):
        return float("nan")


def read_child_peak_memory(launcher: int) -> float:
    """Return the peak memory of the launched process so far in MB, or NaN if the system does not say."""
    try:
        child = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()[0]
        lines = Path(f"/proc/{child}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, IndexError, StopIteration):
        return float("nan")


def measure_import(module: str, repeats: int) -> tuple[TimeSpent, float]:
    """Measure an import in a fresh interpreter: its time in seconds and the peak memory in MB."""
    samples, peaks = [], []
    for repeat in range(repeats + 1):
        argv = [sys.executable, "-c", _TIMED_IMPORT.format(module)]
        result = run_child(argv, env={**os.environ, "PYTHONPATH": SOURCES})
        if result.status:
            raise RuntimeError(f"import {module} failed:\n{result.output}")
        if repeat:  # the first one writes the byte code
            cpu, wall = map(float, result.output.split())
            samples.append(TimeSpent(cpu, wall))
            peaks.append(result.megabytes)
    return compute_median(samples), median(peaks)
