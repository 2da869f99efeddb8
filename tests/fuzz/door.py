"""A fuzz target: code that takes bytes from outside, with its expected errors. Any other error is a fault."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

LONGEST = 2.0
"""Seconds of CPU time; a usual input takes a thousandth of it."""


def _nothing(_: object) -> None: ...


class Door(NamedTuple):
    name: str
    read: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...] = ()
    seeds: tuple[bytes, ...] = ()
    check: Callable[[Any], object] = _nothing
    """Checks that hold for every value that was read; here no error is allowed."""

    def tried(self, data: bytes, *, seconds: float = LONGEST) -> None:
        """Raise on a fault: an unexpected error, a failed check, or an input that hangs."""
        with ending(seconds):
            try:
                value = self.read(data)
            except self.errors:
                return
            self.check(value)


class Hang(Exception):
    """The target did not finish."""


@contextmanager
def ending(seconds: float) -> Iterator[None]:
    """Raise `InputHangs` in the block when it has used so much CPU time; other load does not count."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Hang(f"not done after {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def text_of(data: bytes) -> str:
    """Decode any bytes; invalid UTF-8 becomes surrogate halves, as in file names."""
    return data.decode("utf-8", "surrogateescape")
