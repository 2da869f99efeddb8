"""A fuzz target: code that takes bytes from outside, with its expected errors. Any other error is a fault."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

TIMEOUT = 2.0
"""Seconds of CPU time; a usual input takes a thousandth of it."""


def _check_nothing(_: object) -> None: ...


class FuzzTarget(NamedTuple):
    name: str
    read_input: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...] = ()
    seeds: tuple[bytes, ...] = ()
    check_value: Callable[[Any], object] = _check_nothing
    """Checks that hold for every value that was read; here no error is allowed."""

    def try_input(self, data: bytes, *, timeout: float = TIMEOUT) -> None:
        """Raise on a fault: an unexpected error, a failed check, or an input that hangs."""
        with limit_cpu_time(timeout):
            try:
                value = self.read_input(data)
            except self.errors:
                return
            self.check_value(value)


class InputHangs(Exception):
    """The target did not finish."""


@contextmanager
def limit_cpu_time(seconds: float) -> Iterator[None]:
    """Raise `InputHangs` in the block when it has used so much CPU time; other load does not count."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_hang(_number: int, _frame: FrameType | None) -> None:
        raise InputHangs(f"not done after {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, raise_hang)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def decode_text(data: bytes) -> str:
    """Decode any bytes; invalid UTF-8 becomes surrogate halves, as in file names."""
    return data.decode("utf-8", "surrogateescape")
