"""Calls of functions of the program, such as tools and hooks: none of them ends the process or the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def contain_exits() -> Iterator[None]:
    """Raise `RuntimeError` for `sys.exit`, and for a cancellation that is not one of the running task."""
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"it called sys.exit({error.code!r})") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("it waited for a task that was canceled") from error


def contain_stop_iteration(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function for use in a thread: a future never ends with `StopIteration`."""

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*args, **keywords)
        except StopIteration as error:
            raise RuntimeError("it raised StopIteration") from error

    return call
