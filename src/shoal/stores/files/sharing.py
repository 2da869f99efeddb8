"""Whether anybody else has a file open: then it is not to be changed under their eyes."""

from __future__ import annotations

import fcntl
import signal
import sys


def is_open_here_alone(fd: int) -> bool:
    """Whether no other descriptor of the file is open in any process. False where the system cannot tell."""
    if sys.platform != "linux":
        return False
    try:
        # The kernel grants a write lease only then. It is given back at once; who opens the file in between
        # makes a signal, and this one is ignored by default.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True
