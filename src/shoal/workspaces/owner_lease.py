"""Leases: a locked file for each process that owns worktrees, released by the kernel however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from pathlib import Path

_LEASE = re.compile(r"[0-9]+-[0-9a-f]{16}")
_CREATION_GRACE = 60.0
"""Seconds during which a file without a lock may be a lease that is being created."""


class WorktreeOwnerLease:
    """Lease held from its creation until `release`, or until the process ends.

    A lock and not just a pid: a pid means nothing in another container that shares the files.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.name = f"{os.getpid()}-{os.urandom(8).hex()}"
        self._path = directory / self.name
        temporary = directory / f".{self.name}"
        self._fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        # It gets its name only once it is locked, so nobody sees it unlocked while its holder lives.
        temporary.rename(self._path)

    @property
    def fileno(self) -> int:
        return self._fd

    def release(self) -> None:
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def is_worktree_lease_held(directory: Path, lease: str) -> bool:
    if _LEASE.fullmatch(lease) is None:
        return False
    try:
        fd = os.open(directory / lease, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # Shared, so that concurrent checks do not take each other for the holder.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def remove_dead_worktree_leases(directory: Path) -> None:
    for path in directory.iterdir() if directory.is_dir() else ():
        with contextlib.suppress(OSError):
            # Only a lease that is being created can be without its lock while its holder lives.
            is_being_created = (
                path.name.startswith(".") and time.time() - path.lstat().st_mtime < _CREATION_GRACE
            )
            if not is_being_created and not is_worktree_lease_held(directory, path.name):
                path.unlink()


def get_process_start_ticks(pid: int) -> int:
    """Return the start time of a process in ticks since boot, or 0 if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    # The program name in parentheses may contain anything; the start time is the 20th word after it.
    fields = stat[stat.rfind(b")") + 1 :].split()
    return int(fields[19]) if len(fields) > 19 else 0
