from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cast import all_turns, use
from shoal.app.session.outpost import stay_small
from shoal.backends import heap
from troupe import member, opened, troupe

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


def test_one_that_rests_often_gives_it_back_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    times = list[float]()
    freed, now = heap.Freed(), 0.0
    monkeypatch.setattr(heap, "give_back", lambda: times.append(now))
    for now in (1.0, 2.0, 20.5, 21.0, 30.0, 100.0):
        freed.rests(now)
    assert times == [1.0, 21.0, 100.0]


async def test_a_teammate_that_comes_to_rest_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[float]()
    monkeypatch.setattr(heap, "give_back", lambda: given.append(1))
    lead = [use("TeamCreate", team_name="crew"), member("ann"), "wait"]
    async with opened(tmp_path, troupe(lead=lead, ann=["done"])) as session:
        stay_small(session)
        await all_turns(session, "Go.")
    assert given == [1]
