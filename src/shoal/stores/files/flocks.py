"""Locks of the kernel on open files: each ends with its holder, however that ends."""

from __future__ import annotations

import fcntl
import time


def try_flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def flock_soon(fd: int, *, tries: int, pause: float) -> bool:
    """As `try_flock`, but more than once, with so many seconds between."""
    for attempt in range(tries):
        if attempt:
            time.sleep(pause)
        if try_flock(fd):
            return True
    return False


def is_flocked(fd: int) -> bool:
    """Whether somebody holds it. For the instant of the look it is held, but shared: looks do not meet."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
