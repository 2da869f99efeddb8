from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Iterator
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
        trim_heap_when_member_idles(session, heap_trim.HeapTrimmer())
        await run_all_turns(session, "Go.")
    assert given == [1]


def test_a_slow_trim_is_not_repeated_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    times, elapsed = list[float](), 0.0

    def trim_slowly() -> bool:
        nonlocal elapsed
        times.append(now)
        elapsed += 0.05
        return True

    trimmer, now = heap_trim.HeapTrimmer(), 0.0
    monkeypatch.setattr(heap_trim, "trim_heap", trim_slowly)
    monkeypatch.setattr(heap_trim.time, "perf_counter", lambda: elapsed)
    for now in (0.0, 21.0, 49.0, 51.0):
        trimmer.trim_if_due(now)
    assert times == [0.0, 51.0]


async def test_members_of_one_process_share_a_trimmer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, trimmer = list[float](), heap_trim.HeapTrimmer()
    monkeypatch.setattr(heap_trim, "trim_heap", lambda: given.append(1))
    for number in range(2):
        lead = [call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "wait"]
        directory = tmp_path / str(number)
        directory.mkdir()
        async with open_session(directory, script_team(lead=lead, ann=["done"])) as session:
            trim_heap_when_member_idles(session, trimmer)
            await run_all_turns(session, "Go.")
    assert given == [1]


@pytest.fixture
def unfrozen_heap() -> Iterator[None]:
    before = gc.get_freeze_count()
    gc.unfreeze()
    yield
    gc.unfreeze()
    if before:
        gc.freeze()


@pytest.mark.usefixtures("unfrozen_heap")
def test_objects_of_started_teammates_are_not_searched_until_many_of_them_have_ended() -> None:
    heap = heap_trim.StartedObjects()
    for _ in range(heap_trim.STARTS_PER_FREEZE - 1):
        heap.add_teammate()
    assert not gc.get_freeze_count()
    heap.add_teammate()
    assert gc.get_freeze_count()
    for _ in range(2):
        heap.remove_teammate()
    assert gc.get_freeze_count()
    for _ in range(2):
        heap.remove_teammate()
    assert not gc.get_freeze_count()


@pytest.mark.slow
@pytest.mark.usefixtures("unfrozen_heap")
def test_cycles_of_ended_teammates_are_collected() -> None:
    class Node:
        def __init__(self) -> None:
            self.itself = self
            ended.append(weakref.ref(self))

    heap, ended = heap_trim.StartedObjects(), list[weakref.ref[Node]]()
    nodes = [Node() for _ in range(heap_trim.STARTS_PER_FREEZE)]
    for _ in range(len(nodes)):
        heap.add_teammate()
    while nodes:
        nodes.pop()
        heap.remove_teammate()
    gc.collect()
    assert not any(node() for node in ended)
