from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent_scripts import call_tool, run_all_turns
from shoal.app.session.member_main import trim_heap_when_member_idles
from shoal.backends import heap_trim
from team_scripts import open_session, script_team, spawn_member

HAS_IT = sys.platform == "linux" and "glibc" in str(os.confstr("CS_GNU_LIBC_VERSION"))


def read_resident_size() -> int:
    """Kilobytes."""
    rows = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmRSS"))


@pytest.mark.skipif(not HAS_IT, reason="the C library has no call for it")
def test_trimming_returns_freed_memory_to_the_system() -> None:
    many = [bytes(5_000) for _ in range(10_000)]
    used = [many[at] for at in range(0, 10_000, 100)]
    del many
    before = read_resident_size()
    assert heap_trim.trim_heap()
    assert before - read_resident_size() > 20_000
    assert len(used) == 100


def test_frequent_idling_trims_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    times = list[float]()
    freed, now = heap_trim.HeapTrimmer(), 0.0
    monkeypatch.setattr(heap_trim, "trim_heap", lambda: times.append(now))
    for now in (1.0, 2.0, 20.5, 21.0, 30.0, 100.0):
        freed.trim_if_due(now)
    assert times == [1.0, 21.0, 100.0]


async def test_the_heap_is_trimmed_when_a_member_goes_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[float]()
    monkeypatch.setattr(heap_trim, "trim_heap", lambda: given.append(1))
    lead = [call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "wait"]
    async with open_session(tmp_path, script_team(lead=lead, ann=["done"])) as session:
        trim_heap_when_member_idles(session)
        await run_all_turns(session, "Go.")
    assert given == [1]
