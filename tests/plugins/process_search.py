"""Finds the processes that work in a directory, from outside any PID namespace."""

from __future__ import annotations

import time
from pathlib import Path

_TIMEOUT = 60.0


def find_processes_in(directory: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "cwd").readlink() == directory:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_for_processes_in(directory: Path, count: int) -> list[int]:
    """Return the processes once there are so many: a shell that has printed may still be starting others."""
    deadline = time.monotonic() + _TIMEOUT
    while len(found := find_processes_in(directory)) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} processes work in {directory}"
        time.sleep(0.01)
    return found
