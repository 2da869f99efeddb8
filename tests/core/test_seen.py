from __future__ import annotations

import gc
import tracemalloc

from hypothesis import given
from hypothesis import strategies as some

from shoal.core.seen import Seen


@given(some.lists(some.text()), some.lists(some.lists(some.text(), max_size=40), max_size=20), some.text())
def test_just_those_that_were_seen_are_known(first: list[str], more: list[list[str]], other: str) -> None:
    seen, known = Seen(first), set(first)
    for each in more:
        seen.update(each)
        known.update(each)
    assert all(each in seen for each in known)
    assert (other in seen) == (other in known)
    assert len(seen) == len(known)


def test_many_take_some_twenty_bytes_each() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        seen = Seen()
        for number in range(50_000):
            seen.update([f"message-{number:040}"])
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(seen) == 50_000
    assert used / 50_000 < 30
