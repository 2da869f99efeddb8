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

from bench.children import SOURCES
from bench.figures import Figure, Section
from bench.subject import empty_home
from bench.timing import Spent
from shoal.app.picture.rows import Frame

_SESSION = "11111111-1111-4111-8111-111111111111"
_BEHIND = 1_000.0
"""Milliseconds that a page may be behind."""


class Size(Struct, frozen=True, kw_only=True):
    members: int = 100
    each: int = 50
    """Events per second of each member."""
    seconds: float = 10.0
    runs: int = 1_000
    """Number of runs in the list."""


def measure(size: Size) -> list[Section]:
    with empty_home() as root:
        home = root / "home"
        with _server() as (server, url), _writer(home, size) as writer:
            watched = _watch(url, server, writer)
        listed = _listed(home, size.runs)
    load = f"{size.members} members × {size.each} events/s, {size.seconds:g} s"
    return [
        Section(
            name=f"The web view, {load}",
            unit="ms, wall",
            other="–",
            timed=False,
            figures=[
                _shown("an event → its frame is here, p50", watched.p50, None),
                _shown("an event → its frame is here, the latest", watched.latest, _BEHIND),
                _shown("server's CPU, of one core (%)", watched.cpu, None),
                _shown("frames", watched.frames, None),
                _shown("kB of a frame", watched.kilobytes, None),
                _shown("events/s that were written", watched.rate, None),
            ],
        ),
        Section(
            name="The list of runs",
            unit="ms, wall",
            other="–",
            timed=False,
            figures=[
                _shown(f"a page of 100 out of {size.runs:,} runs, first", listed[0], None),
                _shown(f"a page of 100 out of {size.runs:,} runs, again", listed[1], None),
            ],
        ),
    ]


def _shown(name: str, value: float, target: float | None) -> Figure:
    return Figure(name=name, ours=Spent(value, value), target=target, judged="wall")


class _Watched(Struct, frozen=True, kw_only=True):
    p50: float
    latest: float
    cpu: float
    frames: float
    kilobytes: float
    rate: float


def _watch(url: str, server: subprocess.Popen[str], writer: subprocess.Popen[str]) -> _Watched:
    """Read every frame until the run has ended, as a page does."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    behind: list[float] = []
    size = 0
    base, _, token = url.partition("/?token=")
    headers = {"Authorization": f"Bearer {token}"}
    decode = msgspec.json.Decoder(Frame).decode
    with httpx.stream("GET", f"{base}/api/runs/{_SESSION}/frames", headers=headers, timeout=60) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        before = decode(next(lines)[6:])
        cpu, start = _cpu(server.pid), time.monotonic()
        writer.stdin.write("\n")
        writer.stdin.flush()
        begun = time.time() * 1e3
        for line in lines:
            frame = decode(line[6:])
            # The oldest event in it happened right after the last one of the previous frame.
            behind.append(time.time() * 1e3 - max(before.at, begun))
            before, size = frame, size + len(line)
            if frame.run is not None and frame.run.ended:
                break
        spent, took = _cpu(server.pid) - cpu, time.monotonic() - start
    return _Watched(
        p50=median(behind),
        latest=max(behind),
        cpu=spent / took * 100,
        frames=len(behind),
        kilobytes=size / len(behind) / 1e3,
        rate=float(writer.stdout.readline()),
    )


def _listed(home: Path, runs: int) -> tuple[float, float]:
    """Time the run list; each run has the journal of a short session."""
    journal = (home / "shoal" / "runs" / _SESSION / "journal.jsonl").read_bytes()
    part = journal[: journal.rfind(b"\n", 0, 100_000) + 1]
    for number in range(runs):
        place = home / "shoal" / "runs" / f"{number:08d}-1111-4111-8111-111111111111"
        place.mkdir()
        (place / "journal.jsonl").write_bytes(part)
    with _server() as (_, url):
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


def _cpu(pid: int) -> float:
    """Return the CPU seconds used, or NaN if the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "shoal", "web", "--json"]
    env = {**os.environ, "PYTHONPATH": SOURCES}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


@contextmanager
def _writer(home: Path, size: Size) -> Iterator[subprocess.Popen[str]]:
    given = (str(home), _SESSION, str(size.members), str(size.each), str(size.seconds))
    command = [sys.executable, "-m", "bench.web_writer", *given]
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
