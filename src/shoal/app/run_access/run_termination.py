"""Termination of a live run from another process: by request, then SIGTERM, then SIGKILL."""

from __future__ import annotations

import asyncio
import signal

from shoal.app.run_access.run_handle import RunHandle, send_control_command
from shoal.backends.guardian import send_signals
from shoal.core.errors import RunUnresponsive, StateFileError
from shoal.wire.control_codec import StopRunControlCommand

GRACE_SECONDS = 10.0
"""Seconds from SIGTERM to SIGKILL, and from SIGKILL to giving up."""


async def stop_or_kill_run(run: RunHandle) -> None:
    """Stop a run: a responsive run ends on its own; any other is terminated.

    Raises a `ShoalError` if it has already ended or cannot be stopped from here.
    """
    try:
        await send_control_command(run, StopRunControlCommand())
    except StateFileError as error:
        if not run.is_live or run.is_on_other_machine:
            raise
        # A run without a socket is about to open it, or has closed it and is ending.
        if not isinstance(error, RunUnresponsive) and await _wait_until_gone(run):
            return
        await _kill_run_process(run, error)


async def _kill_run_process(run: RunHandle, error: StateFileError) -> None:
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        pid = run.pid
        if pid is not None:
            # Its guardian process outlives it and stops what it started.
            send_signals(signal_number, groups=[], pids=[pid])
        if await _wait_until_gone(run):
            return
    raise error


async def _wait_until_gone(run: RunHandle) -> bool:
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            while run.is_live:  # noqa: ASYNC110 - a released lock sends no notification
                await asyncio.sleep(0.02)
    except TimeoutError:
        return False
    return True
