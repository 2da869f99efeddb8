"""Leads in processes that can be killed, and whatever runs because of them."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from tests.chaos.team_lead import Ended, Start, Started

_ROOT = Path(__file__).parents[2]
_PROC = Path("/proc")


class Leads:
    """Starts leads one after the other, through one process that has loaded all they need."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def start(self, start: Start) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(start) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._line(10), type=Started).pid

    def ended(self, seconds: float) -> int | None:
        """How it ended; None where it still runs after so many seconds."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return msgspec.json.decode(self._line(10), type=Ended).status if ready else None

    def _line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            raise TimeoutError("the process that starts leads does not answer")
        line = bytearray()
        # Byte by byte: what a buffer has taken, select does not see.
        while not line.endswith(b"\n"):
            byte = os.read(self._process.stdout.fileno(), 1)
            if not byte:
                raise RuntimeError("the process that starts leads has ended")
            line += byte
        return bytes(line)

    def processes(self) -> list[int]:
        """All that run because of a lead, itself included: orphans come back to who starts the leads."""
        parents = dict(_parents())
        found: list[int] = []
        for pid, parent in parents.items():
            above = parent
            while above and above != self._process.pid:
                above = parents.get(above, 0)
            if above:
                found.append(pid)
        return found

    def left_running(self, seconds: float) -> list[str]:
        """What still runs of a lead that has ended, when it has had its time."""
        until = time.monotonic() + seconds
        while (left := self.processes()) and (rest := until - time.monotonic()) > 0:
            for pid in left:
                _await(pid, min(rest, 0.5))
        return [f"process {pid} still runs: {command(pid)}" for pid in left]


@contextmanager
def leads(env: Mapping[str, str] | None = None) -> Iterator[Leads]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.team_lead"],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": f"{_ROOT}/src", **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    try:
        yield Leads(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


def command(pid: int) -> str:
    with suppress(OSError):
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return "(gone)"


def _parents() -> Iterator[tuple[int, int]]:
    """Each process that runs, and who started it or took it over."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    yield int(entry.name), int(parent)


def _await(pid: int, seconds: float) -> None:
    with suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            select.select([handle], [], [], seconds)
        finally:
            os.close(handle)
