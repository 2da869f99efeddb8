"""Measures the task board: claims from many processes, and lists, against the plain way."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from bench.child_process import SOURCES
from bench.figures import Figure, Section
from bench.stopwatch import Stopwatch, TimeSpent, compute_median, to_milliseconds

_CLAIMANT = Path(__file__).with_name("claimant.py")


class BoardBenchSize(Struct, frozen=True, kw_only=True):
    claimants: int = 8
    tasks: int = 1_000
    listed: int = 10_000
    repeats: int = 3


def measure_board(size: BoardBenchSize) -> Section:
    ours = compute_median([_measure_claims("ours", size, size.tasks) for _ in range(size.repeats)])
    # The plain way reads the whole board for each claim: a part of them shows what one costs.
    bare = _measure_claims("plain", size, max(1, size.tasks // size.claimants // 10))
    cold_list, warm_list, plain_list = _measure_lists(size)
    return Section(
        name="The task board",
        unit="ms",
        other="a lock directory around reading every file and writing one in place",
        column="plain",
        figures=[
            Figure(
                name=f"a claim, {size.claimants} processes, {size.tasks:,} tasks",
                ours=ours,
                bare=bare,
                target=1.0,
                judged="wall",
            ),
            Figure(
                name=f"list of {size.listed:,}, cold",
                ours=cold_list,
                bare=plain_list,
                target=150.0,
                judged="wall",
            ),
            Figure(name="  when nothing changed", ours=warm_list, bare=plain_list, target=2.0, judged="wall"),
        ],
    )


def write_tasks(home: Path, count: int) -> None:
    directory = home / "tasks" / "bench"
    directory.mkdir(parents=True)
    for number in range(1, count + 1):
        task = {
            "id": str(number),
            "subject": f"Do the thing number {number}",
            "description": "All of it, and then look whether it works.",
            "activeForm": "Doing it",
            "status": "pending",
            "blocks": [],
            "blockedBy": [],
        }
        (directory / f"{number}.json").write_text(json.dumps(task))


def _measure_claims(variant: str, size: BoardBenchSize, max_claims: int) -> TimeSpent:
    """Return the time per claim: wall time from the start signal to the last claim, CPU of all claimants."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        write_tasks(Path(directory), size.tasks)
        claimants = [
            subprocess.Popen(
                [sys.executable, str(_CLAIMANT), variant, directory, f"agent-{number}", str(max_claims)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": SOURCES},
            )
            for number in range(size.claimants)
        ]
        for claimant in claimants:
            _read_line(claimant)
        watch = Stopwatch()
        for claimant in claimants:
            _send_go(claimant)
        ends = [_read_line(claimant).split() for claimant in claimants]
        wall = watch.read_time().wall
        for claimant in claimants:
            _send_go(claimant)
            claimant.communicate()
    claimed = sum(int(count) for count, _ in ends)
    assert claimed == min(size.tasks, max_claims * size.claimants), f"{claimed} of {size.tasks} tasks claimed"
    return to_milliseconds(TimeSpent(sum(float(cpu) for _, cpu in ends), wall).divide_by(claimed))


def _read_line(claimant: subprocess.Popen[str]) -> str:
    assert claimant.stdout is not None
    return claimant.stdout.readline()


def _send_go(claimant: subprocess.Popen[str]) -> None:
    assert claimant.stdin is not None
    claimant.stdin.write("go\n")
    claimant.stdin.flush()


def _measure_lists(size: BoardBenchSize) -> tuple[TimeSpent, TimeSpent, TimeSpent]:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        home = Path(directory)
        write_tasks(home, size.listed)
        cold: list[TimeSpent] = []
        warm: list[TimeSpent] = []
        plain: list[TimeSpent] = []
        for repeat in range(size.repeats + 1):
            first, second = asyncio.run(_time_lists(home, size.listed))
            plain_time = _time_call(lambda: _list_plainly(home, size.listed))
            if repeat:  # the first one warms up
                cold.append(first)
                warm.append(second)
                plain.append(plain_time)
    return (
        to_milliseconds(compute_median(cold)),
        to_milliseconds(compute_median(warm)),
        to_milliseconds(compute_median(plain)),
    )


async def _time_lists(home: Path, count: int) -> tuple[TimeSpent, TimeSpent]:
    from shoal.core.clock import SystemClock
    from shoal.core.ids import IdGenerator
    from shoal.stores.files.board.file_task_board import FileTaskBoard

    board = FileTaskBoard(home, "bench", clock=SystemClock(), ids=IdGenerator())
    watch = Stopwatch()
    assert len(await board.list_tasks()) == count
    cold = watch.read_time()
    watch = Stopwatch()
    assert len(await board.list_tasks()) == count
    warm = watch.read_time()
    await board.aclose()
    return cold, warm


def _list_plainly(home: Path, count: int) -> None:
    tasks = [json.loads(path.read_bytes()) for path in (home / "tasks" / "bench").glob("[0-9]*.json")]
    assert len(sorted(tasks, key=lambda task: int(task["id"]))) == count


def _time_call(work: Callable[[], object]) -> TimeSpent:
    watch = Stopwatch()
    work()
    return watch.read_time()
