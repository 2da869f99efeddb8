"""File stamps, which show whether a file has changed."""

from __future__ import annotations

import os
import time

from msgspec import Struct

_TICK = 100_000_000
"""Nanoseconds within which a second change may have the same timestamp."""


class Stamp(Struct, frozen=True):
    """Identity and version of a file. `is_settled` is False if the next change might not alter the stamp."""

    facts: tuple[int, ...] = ()
    settled: bool = True


def stamp(path: str) -> Stamp:
    # The clock is read first: a later change is younger than the tick.
    now = time.time_ns()
    facts = _facts(path)
    return Stamp(facts, settled=not facts or now - max(facts[:2]) > _TICK)


def is_still(path: str, seen: Stamp) -> bool:
    if not seen.facts:
        # Most of these files do not exist, and this check costs half as much as an exception.
        return not os.access(path, os.F_OK)
    return seen.settled and _facts(path) == seen.facts


def _facts(path: str) -> tuple[int, ...]:
    try:
        state = os.stat(path)  # noqa: PTH116 - before every call that changes something: pathlib doubles the cost
    except OSError:
        return ()
    return (state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino, state.st_dev)
