"""Limits for elapsed time: a busy machine delays some attempts, a wait in the program delays all."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

TRIES = 6
_LOAD_FILE = Path("/proc/loadavg")
MeasuredWork: TypeAlias = Callable[[], Awaitable[None]]


async def is_done_within(seconds: float, attempt: Callable[[], Awaitable[MeasuredWork]]) -> bool:
    """Return True if one of several attempts takes less than these seconds.

    An attempt prepares the work, and returns the part whose time counts.
    """
    for _ in range(TRIES):
        measured = await attempt()
        started = time.monotonic()
        await measured()
        if time.monotonic() - started < seconds:
            return True
    return False


def scale_to_load(seconds: float) -> float:
    """Return how long something may take here and now that takes at most these seconds on a quiet machine.

    If twice as many threads want to run as there are cores, each gets half of a core. This is for limits that
    a rule states. A wait that only keeps a broken test from hanging has a fixed limit, a large one.
    """
    return seconds * max(1.0, _count_runnable_threads() / (os.cpu_count() or 1))


def _count_runnable_threads() -> float:
    """Return how many threads run or wait for a core: now, or in the last minute if that is more."""
    average = os.getloadavg()[0]
    if not _LOAD_FILE.exists():
        return average
    return max(average, int(_LOAD_FILE.read_text().split()[3].partition("/")[0]))
