"""Calls of functions of the program, such as tools and hooks: none of them ends the process or the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ExitContainment:
    """Raises `RuntimeError` for `sys.exit`, and for a cancellation that is not one of the running task.

    Not a generator with `contextmanager`: it is entered for every call of a tool.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        match error:
            case None:
                return
            case SystemExit(code=code):
                raise RuntimeError(f"it called sys.exit({code!r})") from error
            case asyncio.CancelledError():
                task = asyncio.current_task()
                if task is not None and not task.cancelling():
                    raise RuntimeError("it waited for a task that was canceled") from error


CONTAIN_EXITS = ExitContainment()


def contain_stop_iteration(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function for use in a thread: a future never ends with `StopIteration`."""

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*args, **keywords)
        except StopIteration as error:
            raise RuntimeError("it raised StopIteration") from error

    return call
