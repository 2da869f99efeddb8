"""Leaving a task group that lives as long as an object does."""

from __future__ import annotations

import asyncio
from types import TracebackType


async def leave(
    group: asyncio.TaskGroup,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """The group must know of a cancellation; any other error passes through as it is, not in a group."""
    if isinstance(error, asyncio.CancelledError):
        await group.__aexit__(kind, error, trace)
    else:
        await group.__aexit__(None, None, None)
