"""Limits for elapsed time: a busy machine delays some attempts, a wait in the program delays all."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

TRIES = 6
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
