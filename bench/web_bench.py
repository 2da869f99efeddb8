"""Measures the web view of a busy team: the delay of a page behind its run, and the server's cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx
import msgspec
from msgspec import Struct

from bench.bench_session import use_empty_home
from bench.child_process import SOURCES
from bench.figures import Figure, Section
from bench.stopwatch import TimeSpent
from shoal.app.run_view.view_rows import ViewDelta

_SESSION = "11111111-1111-4111-8111-111111111111"
_MAX_DELAY = 1_000.0
"""Milliseconds that a page may be behind."""


class WebBenchSize(Struct, frozen=True, kw_only=True):
    members: int = 100
    each: int = 50
    """Events per second of each member."""
    seconds: float = 10.0
    runs: int = 1_000
    """Number of runs in the list."""


def measure_web(size: WebBenchSize) -> list[Section]:
    with use_empty_home() as root:
        home = root / "home"
        with _run_server() as (server, url), _run_writer(home, size) as writer:
            watch_result = _watch_run(url, server, writer)
        list_times = _time_run_list(home, size.runs)
    load = f"{size.members} members × {size.each} events/s, {size.seconds:g} s"
    return [
        Section(
            name=f"The web view, {load}",
            unit="ms, wall",
            other="–",
            timed=False,
            figures=[
                _make_figure("an event → its frame is here, p50", watch_result.p50, None),
                _make_figure("an event → its frame is here, the latest", watch_result.latest, _MAX_DELAY),
                _make_figure("server's CPU, of one core (%)", watch_result.cpu, None),
                _make_figure("frames", watch_result.frames, None),
                _make_figure("kB of a frame", watch_result.kilobytes, None),
                _make_figure("events/s that were written", watch_result.rate, None),
            ],
        ),
        Section(
            name="The list of runs",
            unit="ms, wall",
            other="–",
            timed=False,
            figures=[
                _make_figure(f"a page of 100 out of {size.runs:,} runs, first", list_times[0], None),
                _make_figure(f"a page of 100 out of {size.runs:,} runs, again", list_times[1], None),
            ],
        ),
    ]


def _make_figure(name: str, value: float, target: float | None) -> Figure:
    return Figure(name=name, ours=TimeSpent(value, value), target=target, judged="wall")


class _WatchResult(Struct, frozen=True, kw_only=True):
    p50: float
    latest: float
    cpu: float
    frames: float
    kilobytes: float
    rate: float


def _watch_run(url: str, server: subprocess.Popen[str], writer: subprocess.Popen[str]) -> _WatchResult:
    """Read every frame until the run has ended, as a page does."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    delays: list[float] = []
    size = 0
    base, _, token = url.partition("/?token=")
    headers = {"Authorization": f"Bearer {token}"}
    decode = msgspec.json.Decoder(ViewDelta).decode
    with httpx.stream("GET", f"{base}/api/runs/{_SESSION}/frames", headers=headers, timeout=60) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        first_delta = decode(next(lines)[6:])
        cpu, start = _read_cpu(server.pid), time.monotonic()
        writer.stdin.write("\n")
        writer.stdin.flush()
        started_ms = time.time() * 1e3
        for line in lines:
            frame = decode(line[6:])
            # The oldest event in it happened right after the last one of the previous frame.
            delays.append(time.time() * 1e3 - max(first_delta.at, started_ms))
            first_delta, size = frame, size + len(line)
            if frame.run is not None and frame.run.ended:
                break
        spent, elapsed = _read_cpu(server.pid) - cpu, time.monotonic() - start
    return _WatchResult(
        p50=median(delays),
        latest=max(delays),
        cpu=spent / elapsed * 100,
        frames=len(delays),
        kilobytes=size / len(delays) / 1e3,
        rate=float(writer.stdout.readline()),
    )


def _time_run_list(home: Path, runs: int) -> tuple[float, float]:
    """Time the run list; each run has the journal of a short session."""
    journal = (home / "shoal" / "runs" / _SESSION / "journal.jsonl").read_bytes()
    part = journal[: journal.rfind(b"\n", 0, 100_000) + 1]
    for number in range(runs):
        run_directory = home / "shoal" / "runs" / f"{number:08d}-1111-4111-8111-111111111111"
        run_directory.mkdir()
        (run_directory / "journal.jsonl").write_bytes(part)
    with _run_server() as (_, url):
        base, _, token = url.partition("/?token=")
        with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
            client.get(f"{base}/api/questions").raise_for_status()
            times = []
            for _ in range(2):
                start = time.perf_counter()
                found = client.get(f"{base}/api/runs").raise_for_status().json()
                times.append((time.perf_counter() - start) * 1e3)
                assert len(found) == min(100, runs + 1)
    return times[0], times[1]


def _read_cpu(pid: int) -> float:
    """Return the CPU seconds used, or NaN if the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _run_server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "shoal", "web", "--json"]
    env = {**os.environ, "PYTHONPATH": SOURCES}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


@contextmanager
def _run_writer(home: Path, size: WebBenchSize) -> Iterator[subprocess.Popen[str]]:
    arguments = (str(home), _SESSION, str(size.members), str(size.each), str(size.seconds))
    command = [sys.executable, "-m", "bench.web_writer", *arguments]
    env = {**os.environ, "PYTHONPATH": SOURCES}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()
