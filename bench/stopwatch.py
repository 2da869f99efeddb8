"""CPU and wall time of a piece of work, and the median or the minimum of several."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from statistics import median

from msgspec import Struct


class TimeSpent(Struct, frozen=True):
    """CPU and wall time in seconds."""

    cpu: float
    wall: float

    def divide_by(self, count: int) -> TimeSpent:
        return TimeSpent(self.cpu / count, self.wall / count)


class Stopwatch:
    """Measures this process alone, and starts without the garbage of earlier work."""

    def __init__(self) -> None:
        gc.collect()
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def read_time(self) -> TimeSpent:
        return TimeSpent(time.process_time() - self._cpu, time.perf_counter() - self._wall)


def compute_median(samples: Iterable[TimeSpent]) -> TimeSpent:
    times = tuple(samples)
    return TimeSpent(median(s.cpu for s in times), median(s.wall for s in times))


def find_minimum(samples: Iterable[TimeSpent]) -> TimeSpent:
    """Return the minimum, for work so long that other load slows every sample."""
    times = tuple(samples)
    return TimeSpent(min(s.cpu for s in times), min(s.wall for s in times))


def to_milliseconds(spent: TimeSpent) -> TimeSpent:
    """Convert seconds to milliseconds."""
    return TimeSpent(spent.cpu * 1e3, spent.wall * 1e3)
