"""Helpers for task groups that live as long as an object."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any


async def exit_task_group_without_wrapping(
    group: asyncio.TaskGroup,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Exit the group. It sees a cancellation; any other error passes through unwrapped, not in an exception
    group."""
    if isinstance(error, asyncio.CancelledError):
        await group.__aexit__(kind, error, trace)
    else:
        await group.__aexit__(None, None, None)


async def exit_task_group_unwrapping_one_error(
    group: asyncio.TaskGroup,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Exit the group and unwrap a single exception, which callers expect as it was raised."""
    try:
        await exit_task_group_without_wrapping(group, kind, error, trace)
    except BaseExceptionGroup as raised:
        if len(raised.exceptions) > 1:
            raise
        raise raised.exceptions[0] from None


async def race_coroutines(group: asyncio.TaskGroup, *awaited: Coroutine[Any, Any, None]) -> None:
    """Wait until one of the coroutines ends and cancel the others."""
    tasks = [group.create_task(each) for each in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def uncancel_current_task() -> None:
    """Let the current task continue: the cancellation ended its work, not the task."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
