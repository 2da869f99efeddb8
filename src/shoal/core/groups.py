"""Task groups that live as long as an object does: leaving one, waiting in one, and going on in one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any


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


async def until_one(group: asyncio.TaskGroup, *awaited: Coroutine[Any, Any, None]) -> None:
    """Until one of them is over; the others are cancelled."""
    tasks = [group.create_task(each) for each in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def outlive_cancel() -> None:
    """The running task goes on: that it was cancelled ends what it did, and not the task."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
