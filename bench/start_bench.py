"""Measures the start of the program: time to the first request, memory, cost of an import."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from msgspec import Struct

from bench.child_process import (
    SOURCES,
    ChildResult,
    measure_import,
    read_child_cpu,
    read_child_peak_memory,
    run_child,
)
from bench.figures import Figure, Section
from bench.mock_provider import make_last_block
from bench.solo_home import AGENTS, SERVERS, SKILLS, write_solo_home
from bench.stopwatch import TimeSpent, compute_median, to_milliseconds
from shoal.testing.mock_replies import MockReply
from shoal.testing.servers import MockServer, messages_server, run_in_thread

_COMMAND = "shoal.surfaces.cli.main"
# What the installed command does.
_OURS = (sys.executable, "-c", f"import sys; from {_COMMAND} import main; sys.exit(main())", "-p", "hi")
_BARE = (sys.executable, "-m", "bench.bare_start")
_ANSWER = "Hello from the bench."
StartServer: TypeAlias = Callable[..., AbstractAsyncContextManager[MockServer]]


class StartBenchSize(Struct, frozen=True, kw_only=True):
    repeats: int = 7


class StartTiming(Struct, frozen=True, kw_only=True):
    to_request: TimeSpent
    whole: TimeSpent
    megabytes: float
    megabytes_at_request: float


def measure_start(size: StartBenchSize) -> list[Section]:
    (shoal, _), (httpx, _) = (measure_import(module, size.repeats) for module in ("shoal", "httpx"))
    imports = Figure(
        name="import shoal; bare: import httpx",
        ours=to_milliseconds(shoal),
        bare=to_milliseconds(httpx),
        target=60.0,
    )
    try:
        is_installed = find_spec(_COMMAND) is not None
    except ModuleNotFoundError:
        is_installed = False
    if is_installed:
        times, memory = _compare_starts(size.repeats)
    else:
        missing = "there is no command line yet"
        times = [Figure(name="process start to first request", missing=missing)]
        memory = [Figure(name="peak of a one-turn run", missing=missing)]
    other = "a script that sends one request with httpx"
    return [
        Section(name="Start of `shoal -p hi`", unit="ms", other=other, figures=[*times, imports]),
        Section(name="Memory of `shoal -p hi`", unit="MB", other=other, figures=memory, timed=False),
    ]


def _compare_starts(repeats: int) -> tuple[list[Figure], list[Figure]]:
    ours: list[StartTiming] = []
    full_home: list[StartTiming] = []
    bare: list[StartTiming] = []
    for repeat in range(repeats + 1):
        for samples, argv, environment in (
            (ours, _OURS, _build_environment),
            (full_home, _OURS, _build_full_home_environment),
            (bare, _BARE, _build_environment),
        ):
            start = time_start(argv, messages_server, environment)
            if repeat:  # the first one writes the byte code
                samples.append(start)
    medians = [_compute_medians(starts) for starts in (ours, full_home, bare)]
    requests, wholes, peaks, peaks_at_request = zip(*medians, strict=True)
    first = "process start to first request"
    home = f"home with {AGENTS} agents, {SKILLS} skills, {len(SERVERS)} servers"
    return (
        [
            Figure(name=first, ours=requests[0], bare=requests[2], target=350.0, judged="wall"),
            Figure(name=f"{first}, {home}", ours=requests[1], bare=requests[2], target=350.0, judged="wall"),
            Figure(name="whole one-turn run", ours=wholes[0], bare=wholes[2]),
            Figure(name=f"whole one-turn run, {home}", ours=wholes[1], bare=wholes[2]),
        ],
        [
            Figure(name="peak of a one-turn run", ours=peaks[0], bare=peaks[2], target=55.0),
            Figure(
                name=f"peak up to the first request, {home}",
                ours=peaks_at_request[1],
                bare=peaks_at_request[2],
                target=55.0,
            ),
            Figure(name=f"peak of a one-turn run, {home}", ours=peaks[1], bare=peaks[2]),
        ],
    )


def _compute_medians(starts: Sequence[StartTiming]) -> tuple[TimeSpent, TimeSpent, TimeSpent, TimeSpent]:
    peak = median(start.megabytes for start in starts)
    peak_at_request = median(start.megabytes_at_request for start in starts)
    return (
        to_milliseconds(compute_median(start.to_request for start in starts)),
        to_milliseconds(compute_median(start.whole for start in starts)),
        TimeSpent(peak, peak),
        TimeSpent(peak_at_request, peak_at_request),
    )


def time_start(
    argv: Sequence[str], serve: StartServer, environment: Callable[[str, str], dict[str, str]]
) -> StartTiming:
    """Time a program that asks a provider once; `environment` is built from home and address."""
    arrivals: list[tuple[float, float, float]] = []
    launchers: list[int] = []

    def choose_reply(body: Mapping[str, Any]) -> MockReply:
        arrivals.append(
            (time.monotonic(), read_child_cpu(launchers[0]), read_child_peak_memory(launchers[0]))
        )
        return MockReply(content=(make_last_block(body, _ANSWER),))

    with (
        tempfile.TemporaryDirectory(prefix="shoal-bench-") as home,
        run_in_thread(serve(choose_reply, strict=False)) as server,
    ):
        result = run_child(
            argv, env=environment(home, server.url), cwd=Path(home), on_started=launchers.append
        )
    if result.status or _ANSWER not in result.output or not arrivals:
        raise RuntimeError(f"{' '.join(argv)} ended with {result.status}:\n{result.output}")
    return _make_timing(result, *arrivals[0])


def _make_timing(
    result: ChildResult, request_time: float, cpu: float, megabytes_at_request: float
) -> StartTiming:
    return StartTiming(
        to_request=TimeSpent(cpu, request_time - result.started),
        whole=result.spent,
        megabytes=result.megabytes,
        megabytes_at_request=megabytes_at_request,
    )


def _build_full_home_environment(home: str, url: str) -> dict[str, str]:
    write_solo_home(Path(home))
    return _build_environment(home, url)


def _build_environment(home: str, url: str) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": SOURCES,
        "HOME": home,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "bench",
    }


def list_import_times(top: int = 25) -> str:
    """List the modules of a start that take the longest, by their own time, from `-X importtime`."""
    argv = [sys.executable, "-X", "importtime", "-c", f"import {_COMMAND}, shoal.app.session.session_builder"]
    lines = run_child(argv, env={**os.environ, "PYTHONPATH": SOURCES}).output.splitlines()
    rows = [line.removeprefix("import time:").split("|") for line in lines if line.startswith("import time:")]
    timed = [(int(own), name.strip()) for own, _, name in rows if own.strip().isdigit()]
    slowest = sorted(timed, reverse=True)[:top]
    return "\n".join(f"  {own / 1000:8.1f} ms  {name}" for own, name in slowest)
