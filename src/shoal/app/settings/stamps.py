"""Whether a file is the one that was looked at before."""

from __future__ import annotations

import os
import time

from msgspec import Struct

_TICK = 100_000_000
"""Nanoseconds within which a second change may leave the same time behind."""


class Stamp(Struct, frozen=True):
    """What tells that a file is another. `settled` is False where the next change might not show in it."""

    facts: tuple[int, ...] = ()
    settled: bool = True


def stamp(path: str) -> Stamp:
    # The clock is read first: a change after it is younger than the tick.
    now = time.time_ns()
    facts = _facts(path)
    return Stamp(facts, settled=not facts or now - max(facts[:2]) > _TICK)


def is_still(path: str, seen: Stamp) -> bool:
    if not seen.facts:
        # Most of them are not there, and this tells it at half the price of an exception.
        return not os.access(path, os.F_OK)
    return seen.settled and _facts(path) == seen.facts


def _facts(path: str) -> tuple[int, ...]:
    try:
        state = os.stat(path)  # noqa: PTH116 - before every call that changes something: pathlib doubles its cost
    except OSError:
        return ()
    return (state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino, state.st_dev)
