"""Termination of a live run from another process: by request, then SIGTERM, then SIGKILL."""

from __future__ import annotations

import asyncio
import signal

from shoal.app.outside.watching import Run, demand
from shoal.backends.guardian import deliver
from shoal.core.errors import RunHangs, StoreError
from shoal.stores.files.locks import holder
from shoal.wire.control import Stop

GRACE = 10.0
"""Seconds from SIGTERM to SIGKILL, and from SIGKILL to giving up."""


async def end_run(run: Run) -> None:
    """Stop a run: one that answers ends by itself, in its own time; any other is terminated.

    Raises a `ShoalError` if it has already ended or cannot be stopped from here.
    """
    try:
        await demand(run, Stop())
    except StoreError as silent:
        if not run.is_live:
            raise
        # A run without a socket is about to open it, or has closed it and is ending.
        if not isinstance(silent, RunHangs) and await _gone(run):
            return
        await _put_down(run, silent)


async def _put_down(run: Run, silent: StoreError) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = holder(run.home, run.session)
        if process is not None:
            # Its guardian process outlives it and stops what it started.
            deliver(number, groups=[], pids=[process])
        if await _gone(run):
            return
    raise silent


async def _gone(run: Run) -> bool:
    try:
        async with asyncio.timeout(GRACE):
            while run.is_live:  # noqa: ASYNC110 - a released lock sends no notification
                await asyncio.sleep(0.02)
    except TimeoutError:
        return False
    return True
