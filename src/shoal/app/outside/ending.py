"""Ending a live run from another process: it is asked, then terminated, then killed."""

from __future__ import annotations

import asyncio
import signal

from shoal.app.outside.watching import Run, demand
from shoal.backends.guardian import deliver
from shoal.core.errors import RunHangs, StoreError
from shoal.stores.files.locks import holder
from shoal.wire.control import Stop

GRACE = 10.0
"""Seconds from TERM to KILL, and from KILL to giving up."""


async def end_run(run: Run) -> None:
    """One that answers ends by itself, in its own time; of one that does not, the process is gone after this.

    Raises a `ShoalError` where it has ended already, or cannot be ended from here.
    """
    try:
        await demand(run, Stop())
    except StoreError as silent:
        if not run.is_live:
            raise
        # Without a door it is about to open it, or has closed it and ends.
        if not isinstance(silent, RunHangs) and await _gone(run):
            return
        await _put_down(run, silent)


async def _put_down(run: Run, silent: StoreError) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = holder(run.home, run.session)
        if process is not None:
            # Its guardian outlives it, and ends what it started.
            deliver(number, groups=[], pids=[process])
        if await _gone(run):
            return
    raise silent


async def _gone(run: Run) -> bool:
    try:
        async with asyncio.timeout(GRACE):
            while run.is_live:  # noqa: ASYNC110 - that a lock is free tells nobody
                await asyncio.sleep(0.02)
    except TimeoutError:
        return False
    return True
