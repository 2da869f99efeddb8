"""Task groups that raise an error as it was, and tasks that live as long as an object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


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


@asynccontextmanager
async def open_task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a task group that raises a single error as it was, not in an exception group."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as raised:
        if len(raised.exceptions) > 1:
            raise
        raise raised.exceptions[0] from None


class BackgroundTasks:
    """Tasks of an object that is opened in one task and closed in another, which a task group cannot be."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """Cancel the tasks and wait for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


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
