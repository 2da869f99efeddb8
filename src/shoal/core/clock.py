"""Time as the session sees it: now, sleeping and deadlines, so that tests can hold the clock."""

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
    """Entered around work; raises TimeoutError inside it when the time is up. It can be moved."""

    async def __aenter__(self) -> Deadline: ...

    async def __aexit__(self, *exc: Any) -> None: ...

    def extend(self, seconds: float) -> None:
        """Let the deadline be `seconds` from now."""
        ...


class Clock(Protocol):
    def now(self) -> int:
        """Unix time in milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def deadline(self, seconds: float) -> Deadline: ...


class _LoopDeadline:
    __slots__ = ("_timeout",)

    def __init__(self, seconds: float) -> None:
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> _LoopDeadline:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._timeout.__aexit__(*exc)

    def extend(self, seconds: float) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time() + seconds)


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def deadline(self, seconds: float) -> Deadline:
        return _LoopDeadline(seconds)


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """As a deadline around the work, which is set only where the work waits for something.

    What is done at once is most of what is done, and a timer costs as much as many a tool.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    try:
        async with clock.deadline(seconds):
            return await _rest(work, waits_for)
    finally:
        work.close()


@types.coroutine
def _rest(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """What is left of work that was begun, as `await` would do it from the start."""
    while True:
        try:
            try:
                came = yield waits_for
            except BaseException as error:  # noqa: BLE001 - whatever is thrown is for the work to see
                waits_for = work.throw(error)
            else:
                waits_for = work.send(came)
        except StopIteration as done:
            result: T = done.value
            return result


def iso(ms: int) -> str:
    """A time as files carry it: UTC, milliseconds, `Z`."""
    seconds, rest = divmod(ms, 1000)
    return f"{_whole_seconds(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=4)
def _whole_seconds(seconds: int) -> str:
    # Not by strftime, which leaves out the zeros in front of a year.
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
