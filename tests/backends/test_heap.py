from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from shoal.backends import heap

HAS_IT = sys.platform == "linux" and "glibc" in str(os.confstr("CS_GNU_LIBC_VERSION"))


def resident() -> int:
    """Kilobytes."""
    rows = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmRSS"))


@pytest.mark.skipif(not HAS_IT, reason="the C library has no call for it")
def test_what_is_freed_below_what_is_used_goes_back_to_the_system() -> None:
    many = [bytes(5_000) for _ in range(10_000)]
    used = [many[at] for at in range(0, 10_000, 100)]
    del many
    before = resident()
    assert heap.give_back()
    assert before - resident() > 20_000
    assert len(used) == 100


async def test_it_is_given_back_again_and_again_until_the_block_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = 0
    thrice = asyncio.Event()

    def count() -> bool:
        nonlocal times
        times += 1
        if times == 3:
            thrice.set()
        return True

    monkeypatch.setattr(heap, "give_back", count)
    with heap.kept_small(every=0.001):
        await asyncio.wait_for(thrice.wait(), 10)
    left_with = times
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, done.set)
    await done.wait()
    assert times == left_with
