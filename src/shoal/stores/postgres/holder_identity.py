"""Identity of the process that holds a lease, by which others on the same machine notice its death."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path


def get_host_identity() -> str:
    """Return a name for the process ids that this process can see: those of one boot and one container."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return " ".join(parts)


def get_process_identity() -> str:
    pid = os.getpid()
    return f"{pid} {_read_start_time(pid)}"


def is_process_alive(identity: str) -> bool:
    """Return False if this process has ended; its id may be in use again."""
    pid_text, _, started = identity.partition(" ")
    pid = int(pid_text)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _read_start_time(pid) == started


def _read_start_time(pid: int) -> str:
    """Return the start of a process in clock ticks; empty if the kernel does not report it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    fields = stat.rpartition(b")")[2].split()
    # A zombie has ended: its parent has only not noticed yet.
    return "" if fields[0] == b"Z" else fields[19].decode()
