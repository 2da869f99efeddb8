"""The process table: descendants of processes and their ends."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


class ProcessTimer:
    """Counts down seconds as a process gets them: with two processes per core, they take twice as long."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._since = self._seen = time.monotonic()

    def get_left(self) -> float:
        now = time.monotonic()
        self._left -= (now - self._seen) / max(1.0, get_load() / (os.cpu_count() or 1))
        self._seen = now
        return self._left

    def describe(self) -> str:
        """Return how long it took, and on what kind of machine."""
        return f"{time.monotonic() - self._since:.0f} s at load {get_load():.1f}"


def get_load() -> float:
    """Return the number of processes that ran or waited for a core during the last minute."""
    return os.getloadavg()[0]


def send_signal(pids: Sequence[int], signal_number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal_number)


def read_command(pid: int) -> str:
    with suppress(OSError):
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return "(gone)"


def read_title(pid: int) -> str:
    """Return the title that the process has given itself."""
    with suppress(OSError):
        return (_PROC / str(pid) / "comm").read_text().strip()
    return ""


def describe_process(pid: int) -> str:
    """Return its title, state and waiting place in the kernel, and its parent."""
    with suppress(OSError):
        state, parent = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[:2]
        place = (_PROC / str(pid) / "wchan").read_text()
        return f"{read_title(pid)}, state {state}, in {place or '-'}, child of {parent}"
    return "gone"


def list_descendants(root: int) -> list[int]:
    """List all descendants of a process."""
    parents = dict(_list_parents())
    found: list[int] = []
    for pid, parent in parents.items():
        above = parent
        while above and above != root:
            above = parents.get(above, 0)
        if above:
            found.append(pid)
    return found


def find_by_environment(setting: str) -> list[int]:
    """Find processes with this environment setting, whatever their parent."""
    found = []
    for pid, _ in _list_parents():
        with suppress(OSError):
            if setting.encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def wait_for_exit(pid: int, timeout: float) -> bool:
    """Return True if the process has ended within the timeout."""
    with suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            return bool(select.select([handle], [], [], timeout)[0])
        finally:
            os.close(handle)
    return True


def _list_parents() -> Iterator[tuple[int, int]]:
    """Yield each running process with its parent."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    yield int(entry.name), int(parent)
