"""The process table: descendants of processes and their ends."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def send(pids: Sequence[int], which: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, which)


def command(pid: int) -> str:
    with suppress(OSError):
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return "(gone)"


def title(pid: int) -> str:
    """Return the title that the process has given itself."""
    with suppress(OSError):
        return (_PROC / str(pid) / "comm").read_text().strip()
    return ""


def below(root: int) -> list[int]:
    """List all descendants of a process."""
    parents = dict(_parents())
    found: list[int] = []
    for pid, parent in parents.items():
        above = parent
        while above and above != root:
            above = parents.get(above, 0)
        if above:
            found.append(pid)
    return found


def started_with(setting: str) -> list[int]:
    """Find processes with this environment setting, whatever their parent."""
    found = []
    for pid, _ in _parents():
        with suppress(OSError):
            if setting.encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def await_end(pid: int, seconds: float) -> bool:
    """Return True if the process has ended within the timeout."""
    with suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            return bool(select.select([handle], [], [], seconds)[0])
        finally:
            os.close(handle)
    return True


def _parents() -> Iterator[tuple[int, int]]:
    """Yield each running process with its parent."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    yield int(entry.name), int(parent)
