from __future__ import annotations

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as some

from shoal.core.teams.compact_id_set import CompactIdSet


@given(some.lists(some.text()), some.lists(some.lists(some.text(), max_size=40), max_size=20), some.text())
def test_the_set_contains_exactly_the_added_ids(first: list[str], more: list[list[str]], other: str) -> None:
    seen, known = CompactIdSet(first), set(first)
    for each in more:
        seen.add_ids(each)
        known.update(each)
    assert all(each in seen for each in known)
    assert (other in seen) == (other in known)
    assert len(seen) == len(known)


@pytest.mark.slow
def test_an_id_takes_less_than_thirty_bytes() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        seen = CompactIdSet()
        for number in range(50_000):
            seen.add_ids([f"message-{number:040}"])
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(seen) == 50_000
    assert used / 50_000 < 30
