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

from bench.children import SOURCES, Ran, cpu_below, import_cost, run
from bench.figures import Figure, Section
from bench.provider import last_word
from bench.timing import Spent, middle, ms
from shoal.testing.replies import Answer
from shoal.testing.servers import MockServer, in_thread, messages_server

_COMMAND = "shoal.surfaces.cli.main"
# What the installed command does.
_OURS = (sys.executable, "-c", f"import sys; from {_COMMAND} import main; sys.exit(main())", "-p", "hi")
_BARE = (sys.executable, "-m", "bench.bare_start")
_ANSWER = "Hello from the bench."
Serve: TypeAlias = Callable[..., AbstractAsyncContextManager[MockServer]]


class Size(Struct, frozen=True, kw_only=True):
    repeats: int = 7


class Start(Struct, frozen=True, kw_only=True):
    to_request: Spent
    whole: Spent
    megabytes: float


def measure(size: Size) -> list[Section]:
    (shoal, _), (httpx, _) = (import_cost(module, size.repeats) for module in ("shoal", "httpx"))
    imports = Figure(name="import shoal; bare: import httpx", ours=ms(shoal), bare=ms(httpx), target=60.0)
    try:
        known = find_spec(_COMMAND) is not None
    except ModuleNotFoundError:
        known = False
    if known:
        times, memory = _compared(size.repeats)
    else:
        missing = "there is no command line yet"
        times = [Figure(name="process start to first request", missing=missing)]
        memory = [Figure(name="peak of a one-turn run", missing=missing)]
    other = "a script that asks once with httpx"
    return [
        Section(name="Start of `shoal -p hi`", unit="ms", other=other, figures=[*times, imports]),
        Section(name="Memory of `shoal -p hi`", unit="MB", other=other, figures=memory, timed=False),
    ]


def _compared(repeats: int) -> tuple[list[Figure], list[Figure]]:
    ours: list[Start] = []
    bare: list[Start] = []
    for repeat in range(repeats + 1):
        for samples, argv in ((ours, _OURS), (bare, _BARE)):
            start = started(argv, messages_server, _environment)
            if repeat:  # the first one writes the byte code
                samples.append(start)
    requests, wholes, memory = zip(*(_middles(starts) for starts in (ours, bare)), strict=True)
    first = "process start to first request"
    return (
        [
            Figure(name=first, ours=requests[0], bare=requests[1], target=350.0, judged="wall"),
            Figure(name="whole one-turn run", ours=wholes[0], bare=wholes[1]),
        ],
        [Figure(name="peak of a one-turn run", ours=memory[0], bare=memory[1], target=55.0)],
    )


def _middles(starts: Sequence[Start]) -> tuple[Spent, Spent, Spent]:
    peak = median(start.megabytes for start in starts)
    return (
        ms(middle(start.to_request for start in starts)),
        ms(middle(start.whole for start in starts)),
        Spent(peak, peak),
    )


def started(argv: Sequence[str], serve: Serve, environment: Callable[[str, str], dict[str, str]]) -> Start:
    """Time a program that asks a provider once; `environment` is built from home and address."""
    arrived: list[tuple[float, float]] = []
    launchers: list[int] = []

    def think(body: Mapping[str, Any]) -> Answer:
        arrived.append((time.monotonic(), cpu_below(launchers[0])))
        return Answer(content=(last_word(body, _ANSWER),))

    with (
        tempfile.TemporaryDirectory(prefix="shoal-bench-") as home,
        in_thread(serve(think, strict=False)) as server,
    ):
        ran = run(argv, env=environment(home, server.url), cwd=Path(home), begun=launchers.append)
    if ran.status or _ANSWER not in ran.output or not arrived:
        raise RuntimeError(f"{' '.join(argv)} ended with {ran.status}:\n{ran.output}")
    return _start(ran, *arrived[0])


def _start(ran: Ran, at: float, cpu: float) -> Start:
    return Start(to_request=Spent(cpu, at - ran.started), whole=ran.spent, megabytes=ran.megabytes)


def _environment(home: str, url: str) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": SOURCES,
        "HOME": home,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "bench",
    }


def import_times(top: int = 25) -> str:
    """List the modules of a start that take the longest, by their own time, from `-X importtime`."""
    argv = [sys.executable, "-X", "importtime", "-c", f"import {_COMMAND}, shoal.app.session.build"]
    lines = run(argv, env={**os.environ, "PYTHONPATH": SOURCES}).output.splitlines()
    rows = [line.removeprefix("import time:").split("|") for line in lines if line.startswith("import time:")]
    timed = [(int(own), name.strip()) for own, _, name in rows if own.strip().isdigit()]
    slowest = sorted(timed, reverse=True)[:top]
    return "\n".join(f"  {own / 1000:8.1f} ms  {name}" for own, name in slowest)
