"""Memory that a process has freed, given back to the system: its allocator would keep it for later.

A hundred processes of teammates that each rest most of the time keep a hundred times what one of them needs.
"""

from __future__ import annotations

import sys
from math import inf

EVERY = 20.0
"""Seconds; it takes less than a millisecond."""


class Freed:
    """Given back when its process comes to rest, but not each time of one that rests often."""

    def __init__(self) -> None:
        self._last = -inf

    def rests(self, now: float) -> None:
        if now - self._last >= EVERY:
            self._last = now
            give_back()


def give_back() -> bool:
    """Whether there was something to give; never where the C library has no call for it."""
    if sys.platform != "linux":
        return False
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(ctypes.c_size_t(0)))
