"""A clock that stands still until a test advances it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any

from shoal.core.clock import Deadline

START = 1_767_225_600_000
"""The first moment of 2026, in milliseconds."""
_ROUNDS = 10_000


class FakeClock:
    """Sleepers and deadlines wake in the order of their time, each before time moves on."""

    def __init__(self, *, start: int = START) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._one_more = asyncio.Event()

    def now(self) -> int:
        return self._start + round(self._elapsed * 1000)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wake_event = asyncio.Event()
        alarm = self.set_alarm(seconds, wake_event.set)
        try:
            await wake_event.wait()
        finally:
            self.cancel_alarm(alarm)

    def deadline(self, seconds: float) -> Deadline:
        return _FakeDeadline(self, seconds)

    @property
    def sleepers(self) -> int:
        """Number of sleeps and deadlines that wait."""
        return len(self._waiting)

    @property
    def seconds_to_next_alarm(self) -> float | None:
        """Seconds until the next of them; None if nothing waits."""
        return self._waiting[0][0] - self._elapsed if self._waiting else None

    async def advance(self, seconds: float) -> None:
        """Advance the time; each sleeper that wakes runs at its own time until it waits again."""
        end_time = self._elapsed + seconds
        await run_until_idle()
        while (wait := self.seconds_to_next_alarm) is not None and self._elapsed + wait <= end_time:
            moment, _, wake = heapq.heappop(self._waiting)
            self._elapsed = moment
            wake()
            await run_until_idle()
        self._elapsed = end_time

    async def wait_for_sleepers(self, sleepers: int = 1, *, within: float = 5.0) -> None:
        """Return when that many sleeps and deadlines wait, even if real I/O comes first."""
        async with asyncio.timeout(within):
            while self.sleepers < sleepers:
                self._one_more.clear()
                await self._one_more.wait()

    def set_alarm(self, seconds: float, wake: Callable[[], None]) -> int:
        alarm = next(self._order)
        heapq.heappush(self._waiting, (self._elapsed + max(0.0, seconds), alarm, wake))
        self._one_more.set()
        return alarm

    def cancel_alarm(self, alarm: int) -> None:
        self._waiting = [entry for entry in self._waiting if entry[1] != alarm]
        heapq.heapify(self._waiting)


async def run_until_idle() -> None:
    """Let everything that can run do so, until all tasks wait for something."""
    loop = asyncio.get_running_loop()
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)
        if not getattr(loop, "_ready", ()):
            return
    raise RuntimeError(
        f"The event loop is still busy after {_ROUNDS} rounds: a task keeps running without waiting for the "
        "clock."
    )


class _FakeDeadline:
    """asyncio.timeout, triggered by the fake clock."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)
        self._alarm: int | None = None

    async def __aenter__(self) -> _FakeDeadline:
        await self._timeout.__aenter__()
        self.extend(self._seconds)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self._cancel_alarm()
        await self._timeout.__aexit__(*exc)

    def extend(self, seconds: float) -> None:
        self._cancel_alarm()
        self._alarm = self._clock.set_alarm(seconds, self._expire_timeout)

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._clock.cancel_alarm(self._alarm)
            self._alarm = None

    def _expire_timeout(self) -> None:
        self._alarm = None
        self._timeout.reschedule(asyncio.get_running_loop().time())
