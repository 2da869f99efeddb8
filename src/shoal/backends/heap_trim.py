"""Returns freed memory to the system, which the allocator would otherwise keep.

A hundred processes of teammates that are mostly idle would keep a hundred times what one of them needs.
"""

from __future__ import annotations

import sys
from math import inf

TRIM_INTERVAL = 20.0
"""Seconds; a trim takes less than a millisecond."""


class HeapTrimmer:
    """Trims the heap when its process becomes idle, but not on every idle period."""

    def __init__(self) -> None:
        self._last = -inf

    def trim_if_due(self, now: float) -> None:
        if now - self._last >= TRIM_INTERVAL:
            self._last = now
            trim_heap()


def trim_heap() -> bool:
    """Return True if memory was released; False if the C library has no call for it."""
    if sys.platform != "linux":
        return False
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(ctypes.c_size_t(0)))
