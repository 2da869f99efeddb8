"""Memory that a process has freed, given back to the system: its allocator would keep it for later.

A hundred processes of teammates that each rest most of the time keep a hundred times what one of them needs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 20.0
"""Seconds; it takes less than a millisecond."""


@contextmanager
def kept_small(every: float = EVERY) -> Iterator[None]:
    """Now and then, in the running loop, until the block is left."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []

    def again() -> None:
        timers[:] = [loop.call_later(every, again)]
        give_back()

    timers.append(loop.call_later(every, again))
    try:
        yield
    finally:
        timers[0].cancel()


def give_back() -> bool:
    """Whether there was something to give; never where the C library has no call for it."""
    if sys.platform != "linux":
        return False
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(ctypes.c_size_t(0)))
