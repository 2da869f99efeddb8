"""Time as the session sees it: now, sleeping and deadlines, so that tests can hold the clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol


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


def iso(ms: int) -> str:
    """A time as files carry it: UTC, milliseconds, `Z`."""
    seconds, rest = divmod(ms, 1000)
    return f"{_whole_seconds(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=4)
def _whole_seconds(seconds: int) -> str:
    # Not by strftime, which leaves out the zeros in front of a year.
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
