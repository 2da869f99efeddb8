"""Clock port: current time, sleep and deadlines, so that tests can control time."""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Coroutine, Generator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Deadline(Protocol):
    """Context manager around work that raises TimeoutError when the time is up. It can be extended."""

    async def __aenter__(self) -> Deadline: ...

    async def __aexit__(self, *exc: Any) -> None: ...

    def extend(self, seconds: float) -> None:
        """Move the deadline to `seconds` from now."""
        ...


class Clock(Protocol):
    """Source of time, which tests can replace."""

    def now(self) -> int:
        """Return the Unix time in milliseconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def deadline(self, seconds: float) -> Deadline:
        """Return a deadline this many seconds from now."""


class _EventLoopDeadline:
    """Deadline whose timer is not moved when it is extended: if it fires too early, it is set again.

    A member's deadline is extended several times in each turn, and a new timer costs more than the rest.
    """

    __slots__ = ("_seconds", "_timeout", "_timer", "_when")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._when = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> _EventLoopDeadline:
        await self._timeout.__aenter__()
        self.extend(self._seconds)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(*exc)

    def extend(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._when = loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= self._when:
                return
            self._timer.cancel()
            self._timer = None
        if seconds <= 0:
            self._timeout.reschedule(self._when)
        elif self._when < float("inf"):
            self._timer = loop.call_at(self._when, self._on_timer)

    def _on_timer(self) -> None:
        loop = asyncio.get_running_loop()
        if self._when > loop.time():
            self._timer = None if self._when == float("inf") else loop.call_at(self._when, self._on_timer)
        else:
            self._timer = None
            self._timeout.reschedule(self._when)


class SystemClock:
    """Clock of the machine."""

    def now(self) -> int:
        """Return the time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def deadline(self, seconds: float) -> Deadline:
        """Return a deadline this many seconds from now."""
        return _EventLoopDeadline(seconds)


async def run_with_deadline(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Run the work under a deadline that is set only when the work first waits.

    Most work finishes without waiting, and a timer costs as much as many tools do.
    """
    try:
        yielded = work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    try:
        async with clock.deadline(seconds):
            return await _resume_coroutine(work, yielded)
    finally:
        work.close()


@types.coroutine
def _resume_coroutine(work: Coroutine[Any, Any, T], yielded: Any) -> Generator[Any, Any, T]:
    """Drive the rest of a coroutine that was started, as `await` would do from the start."""
    while True:
        try:
            try:
                received = yield yielded
            except BaseException as error:  # noqa: BLE001 - everything thrown is passed to the work
                yielded = work.throw(error)
            else:
                yielded = work.send(received)
        except StopIteration as done:
            result: T = done.value
            return result


def format_iso_time(ms: int) -> str:
    """Format a time as in files: UTC, milliseconds, `Z`."""
    seconds, milliseconds = divmod(ms, 1000)
    return f"{_format_unix_seconds_as_iso(seconds)}.{milliseconds:03d}Z"


@lru_cache(maxsize=4)
def encode_iso_time(ms: int) -> bytes:
    """Return the bytes of `format_iso_time`, for lines that are written often."""
    seconds, milliseconds = divmod(ms, 1000)
    return b"%b.%03dZ" % (_encode_unix_seconds_as_iso(seconds), milliseconds)


@lru_cache(maxsize=4)
def _encode_unix_seconds_as_iso(seconds: int) -> bytes:
    return _format_unix_seconds_as_iso(seconds).encode()


@lru_cache(maxsize=4)
def _format_unix_seconds_as_iso(seconds: int) -> str:
    # Not with strftime, which drops the leading zeros of a year.
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
