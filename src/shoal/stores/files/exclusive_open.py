"""Check for exclusive use of an open file, which must not change while others read it."""

from __future__ import annotations

import fcntl
import signal
import sys


def is_open_exclusively(fd: int) -> bool:
    """Return True if no process has another descriptor of the file; False if the system cannot tell."""
    if sys.platform != "linux":
        return False
    try:
        # The kernel grants a write lease only then. It is released at once; opening the file in between
        # sends a signal, and this one is ignored by default.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True
