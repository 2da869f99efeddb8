"""Returns freed memory to the system, which the allocator would otherwise keep.

A hundred processes of teammates that are mostly idle would keep a hundred times what one of them needs.
"""

from __future__ import annotations

import gc
import sys
import time
from math import inf

TRIM_INTERVAL = 20.0
"""Seconds. A trim takes less than a millisecond in a process with one teammate."""
TRIM_SHARE = 0.001
"""Share of the time that trims may take in a process with many teammates, whose heap is large."""
STARTS_PER_FREEZE = 32
ENDED_SHARE = 0.1
"""Share of the teammates whose objects may wait for the garbage collector after their end."""


class HeapTrimmer:
    """Trims the heap when a teammate of its process becomes idle, but not on every idle period."""

    def __init__(self) -> None:
        self._next = -inf

    def trim_if_due(self, now: float) -> None:
        if now >= self._next:
            started_at = time.perf_counter()
            trim_heap()
            self._next = now + max(TRIM_INTERVAL, (time.perf_counter() - started_at) / TRIM_SHARE)


class StartedObjects:
    """Keeps the garbage collector from searching the objects of running teammates again and again.

    They live as long as their teammate. In a process with thousands of teammates, a search takes seconds.
    """

    def __init__(self) -> None:
        self._running = 0
        self._starts = 0
        self._ends = 0

    def add_teammate(self) -> None:
        self._running += 1
        self._starts += 1
        if self._starts >= STARTS_PER_FREEZE:
            self._starts = 0
            gc.collect(1)
            gc.freeze()

    def remove_teammate(self) -> None:
        self._running -= 1
        self._ends += 1
        if self._ends > ENDED_SHARE * self._running:
            self._ends = 0
            gc.unfreeze()


def trim_heap() -> bool:
    """Return True if memory was released; False if the C library has no call for it."""
    if sys.platform != "linux":
        return False
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(ctypes.c_size_t(0)))
