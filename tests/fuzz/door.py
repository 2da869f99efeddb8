"""A door: what takes bytes from outside, with the errors it may answer with. Any other one is a fault."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

LONGEST = 2.0
"""Seconds of processor time; what is usual here takes a thousandth of it."""


def _nothing(_: object) -> None: ...


class Door(NamedTuple):
    name: str
    read: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...] = ()
    seeds: tuple[bytes, ...] = ()
    check: Callable[[Any], object] = _nothing
    """What holds for every value that was read; here no error is allowed."""

    def tried(self, data: bytes, *, seconds: float = LONGEST) -> None:
        """Raises what is a fault: an error that is not named, a broken promise, or no end."""
        with ending(seconds):
            try:
                value = self.read(data)
            except self.errors:
                return
            self.check(value)


class Hang(Exception):
    """It did not end."""


@contextmanager
def ending(seconds: float) -> Iterator[None]:
    """Raises `Hang` in the block when it has used so much of the processor; a slow machine is no matter."""
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
    """Any bytes as text; what is not UTF-8 becomes halves of surrogate pairs, as names of files do."""
    return data.decode("utf-8", "surrogateescape")
