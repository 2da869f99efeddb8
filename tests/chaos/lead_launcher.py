"""Starts leads in processes that can be killed, and finds their descendants."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from tests.chaos.process_table import (
    ProcessTimer,
    describe_process,
    find_by_environment,
    list_descendants,
    read_command,
    wait_for_exit,
)
from tests.chaos.team_lead import LeadEnded, LeadStart, LeadStarted

_ROOT = Path(__file__).parents[2]
_START_TIMEOUT = 120.0
"""Seconds until the first lead is started: its process imports everything first, on a busy machine slowly."""


class LeadLauncher:
    """Starts leads one after the other, through one process that has loaded everything they need."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def start_lead(self, start: LeadStart) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(start) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._read_line(_START_TIMEOUT), type=LeadStarted).pid

    def wait_for_end(self, seconds: float) -> int | None:
        """Return the exit status, or None if the lead still runs after so many seconds."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return msgspec.json.decode(self._read_line(10), type=LeadEnded).status if ready else None

    def wait_for_timer(self, timer: ProcessTimer) -> int | None:
        """Return the exit status, or None if the lead still runs when the time is up."""
        while timer.get_left() > 0:
            if (status := self.wait_for_end(1.0)) is not None:
                return status
        return None

    def _read_line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            raise TimeoutError("the process that starts leads does not answer")
        line = bytearray()
        # Byte by byte: select does not see what a buffer has taken.
        while not line.endswith(b"\n"):
            byte = os.read(self._process.stdout.fileno(), 1)
            if not byte:
                raise RuntimeError("the process that starts leads has ended")
            line += byte
        return bytes(line)

    def list_processes(self) -> list[int]:
        """List all descendants of a lead and the lead itself: orphans are reparented to the launcher."""
        return list_descendants(self._process.pid)

    def find_left_running(self, seconds: float, home: str) -> list[str]:
        """Return what still runs of an ended lead after the timeout; the parent of a pane is tmux."""
        timer = ProcessTimer(seconds)
        while (left := {*self.list_processes(), *find_by_environment(f"SHOAL_HOME={home}")}) and (
            rest := timer.get_left()
        ) > 0:
            for pid in left:
                wait_for_exit(pid, min(rest, 0.5))
        return [
            f"process {pid} ({describe_process(pid)}) runs after {timer.describe()}: {read_command(pid)}"
            for pid in sorted(left)
        ]


@contextmanager
def run_launcher(env: Mapping[str, str] | None = None) -> Iterator[LeadLauncher]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.team_lead"],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": f"{_ROOT}/src", **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    try:
        yield LeadLauncher(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        process.wait(10)
