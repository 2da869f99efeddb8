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

from bench.children import SOURCES
from bench.figures import Figure, Section
from bench.timing import Spent, Stopwatch, middle, ms

_CLAIMANT = Path(__file__).with_name("claimant.py")


class Size(Struct, frozen=True, kw_only=True):
    claimants: int = 8
    tasks: int = 1_000
    listed: int = 10_000
    repeats: int = 3


def measure(size: Size) -> Section:
    ours = middle([_claims("ours", size, size.tasks) for _ in range(size.repeats)])
    # The plain way reads the whole board for each claim: a part of them shows what one costs.
    bare = _claims("plain", size, max(1, size.tasks // size.claimants // 10))
    cold, warm, plain = _lists(size)
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
            Figure(name=f"list of {size.listed:,}, cold", ours=cold, bare=plain, target=150.0, judged="wall"),
            Figure(name="  when nothing changed", ours=warm, bare=plain, target=2.0, judged="wall"),
        ],
    )


def put_tasks(home: Path, count: int) -> None:
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


def _claims(how: str, size: Size, most: int) -> Spent:
    """Return the time per claim: wall time from the start signal to the last claim, CPU of all claimants."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as place:
        put_tasks(Path(place), size.tasks)
        claimants = [
            subprocess.Popen(
                [sys.executable, str(_CLAIMANT), how, place, f"agent-{number}", str(most)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": SOURCES},
            )
            for number in range(size.claimants)
        ]
        for claimant in claimants:
            _heard(claimant)
        watch = Stopwatch()
        for claimant in claimants:
            _tell(claimant)
        ends = [_heard(claimant).split() for claimant in claimants]
        wall = watch.read().wall
        for claimant in claimants:
            _tell(claimant)
            claimant.communicate()
    claimed = sum(int(count) for count, _ in ends)
    assert claimed == min(size.tasks, most * size.claimants), f"{claimed} of {size.tasks} tasks claimed"
    return ms(Spent(sum(float(cpu) for _, cpu in ends), wall).per(claimed))


def _heard(claimant: subprocess.Popen[str]) -> str:
    assert claimant.stdout is not None
    return claimant.stdout.readline()


def _tell(claimant: subprocess.Popen[str]) -> None:
    assert claimant.stdin is not None
    claimant.stdin.write("go\n")
    claimant.stdin.flush()


def _lists(size: Size) -> tuple[Spent, Spent, Spent]:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as place:
        home = Path(place)
        put_tasks(home, size.listed)
        cold: list[Spent] = []
        warm: list[Spent] = []
        plain: list[Spent] = []
        for repeat in range(size.repeats + 1):
            first, second = asyncio.run(_listed(home, size.listed))
            whole = _spent(lambda: _plain_list(home, size.listed))
            if repeat:  # the first one warms up
                cold.append(first)
                warm.append(second)
                plain.append(whole)
    return ms(middle(cold)), ms(middle(warm)), ms(middle(plain))


async def _listed(home: Path, count: int) -> tuple[Spent, Spent]:
    from shoal.core.clock import SystemClock
    from shoal.core.ids import Ids
    from shoal.stores.files.board import FileTaskBoard

    board = FileTaskBoard(home, "bench", clock=SystemClock(), ids=Ids())
    watch = Stopwatch()
    assert len(await board.list()) == count
    cold = watch.read()
    watch = Stopwatch()
    assert len(await board.list()) == count
    warm = watch.read()
    await board.aclose()
    return cold, warm


def _plain_list(home: Path, count: int) -> None:
    tasks = [json.loads(path.read_bytes()) for path in (home / "tasks" / "bench").glob("[0-9]*.json")]
    assert len(sorted(tasks, key=lambda task: int(task["id"]))) == count


def _spent(work: Callable[[], object]) -> Spent:
    watch = Stopwatch()
    work()
    return watch.read()
