"""CPU and wall time of a piece of work, and the median or the minimum of several."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from statistics import median

from msgspec import Struct


class Spent(Struct, frozen=True):
    """CPU and wall time in seconds."""

    cpu: float
    wall: float

    def per(self, count: int) -> Spent:
        return Spent(self.cpu / count, self.wall / count)


class Stopwatch:
    """Measures this process alone, and starts without the garbage of earlier work."""

    def __init__(self) -> None:
        gc.collect()
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def read(self) -> Spent:
        return Spent(time.process_time() - self._cpu, time.perf_counter() - self._wall)


def middle(samples: Iterable[Spent]) -> Spent:
    seen = tuple(samples)
    return Spent(median(s.cpu for s in seen), median(s.wall for s in seen))


def best(samples: Iterable[Spent]) -> Spent:
    """Return the minimum, for work so long that other load slows every sample."""
    seen = tuple(samples)
    return Spent(min(s.cpu for s in seen), min(s.wall for s in seen))


def ms(spent: Spent) -> Spent:
    """Convert seconds to milliseconds."""
    return Spent(spent.cpu * 1e3, spent.wall * 1e3)
