"""A team that has something to do all the time: does its memory stay flat, its mail fast, and is none lost?

It begins to count when each member has had something to do, and prints a row for each minute, or each tenth
of a shorter time: the memory of all processes there are, and how long mail took. Exit 1 where memory grew by
more than 5 % after the first one, or a message was lost or came twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles

import msgspec
from tests.chaos.proc import below
from tests.load.juggling import HOLD, WINDOW, Juggling, JugglingModel, usage_of

import shoal
from shoal.core.requests import Request
from shoal.testing import messages_server
from shoal.testing.replies import Answer, Body
from shoal.wire.content import message_from

MODEL = "anthropic:claude-sonnet-4-5"
PATIENCE = 60.0
"""Seconds until each ball is held by a member, once no more are thrown."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    processes: int
    megabytes: float
    in_files: float
    """Part of these in pages of files, shared with other programs: when one of those ends, this grows."""
    p50: float
    p99: float
    """Milliseconds from a throw to the request that contains it."""
    thrown: int
    caught: int
    tasks: int

    @property
    def own(self) -> float:
        return self.megabytes - self.in_files

    def __str__(self) -> str:
        return (
            f"{self.seconds:6.0f} s  {self.processes:4} processes  {self.megabytes:8.1f} MB  "
            f"p50 {self.p50:7.1f} ms  p99 {self.p99:7.1f} ms  "
            f"{self.thrown:7,} posted  {self.caught:7,} taken  {self.tasks:6,} tasks done"
        )


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=50, help="messages in a second, about")
    parser.add_argument("--backend", choices=["in-process", "process"], default="in-process")
    parser.add_argument("--growth", type=float, default=5, help="percent that memory may grow at most")
    parser.add_argument("--traces", type=int, default=0, help="how many lines of growing memory to name")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        sys.exit(asyncio.run(load(Path(place).resolve(), given)))


async def load(place: Path, given: argparse.Namespace) -> bool:
    juggling = Juggling(given.members, max(1, round(given.rate * HOLD)))
    (place / "project").mkdir()
    os.environ["SHOAL_HOME"] = str(place / "home")
    async with _opened(place / "project", juggling, given.backend, given.members) as session:
        since = time.monotonic()
        await _said(session, "Make the team.")
        while (turn := await session.next_turn()) is not None:
            async for _ in turn:
                pass
        say(f"{given.members} members joined and rest after {time.monotonic() - since:.1f} s")
        async with asyncio.TaskGroup() as tasks:
            lead = tasks.create_task(_led(session))
            await juggling.warm.wait()
            say(f"each has had something to do after {time.monotonic() - since:.1f} s")
            rows = await _measured(juggling, given)
            lead.cancel()
    return _judged(rows, juggling, given.growth / 100)


async def _measured(juggling: Juggling, given: argparse.Namespace) -> list[Row]:
    every = min(60.0, given.minutes * 6)
    since, rows, growing = time.monotonic(), list[Row](), _Growing(given.traces)
    while (now := time.monotonic() - since) < given.minutes * 60 - every / 2:
        await asyncio.sleep(min(every, (len(rows) + 1) * every - now))
        took, juggling.latencies = juggling.latencies or [0.0], []
        pids = [os.getpid(), *below(os.getpid())]
        rows.append(
            Row(
                seconds=time.monotonic() - since,
                processes=len(pids),
                megabytes=_megabytes(pids, "Pss"),
                in_files=_megabytes(pids, "Pss_File"),
                p50=median(took) * 1e3,
                p99=quantiles(took, n=100)[98] * 1e3 if len(took) > 1 else took[0] * 1e3,
                thrown=juggling.thrown,
                caught=juggling.caught,
                tasks=juggling.tasks,
            )
        )
        say(str(rows[-1]))
        growing.look(first=len(rows) == 1)
    growing.tell()
    juggling.stopping = True
    try:
        async with asyncio.timeout(PATIENCE):
            await juggling.all_held.wait()
    except TimeoutError:
        say(f"{juggling.lost} balls were not caught in {PATIENCE:g} s")
    return rows


def _judged(rows: list[Row], juggling: Juggling, most: float) -> bool:
    """Return True if memory grew too much or mail was lost or doubled."""
    first, last = rows[0], rows[-1]
    growth, total = last.own / first.own - 1, last.megabytes / first.megabytes - 1
    say(
        f"memory of all processes {total:+.1%} after the first {_spell(first.seconds)}, "
        f"{growth:+.1%} without what lies in files, "
        f"latency p50 {first.p50:.1f} → {last.p50:.1f} ms, p99 {first.p99:.1f} → {last.p99:.1f} ms, "
        f"{juggling.thrown:,} posted, {juggling.lost} lost, {juggling.again} came twice"
    )
    return growth > most or bool(juggling.lost or juggling.again)


def _spell(seconds: float) -> str:
    return "minute" if round(seconds) == 60 else f"{seconds:.0f} s"


class _Growing:
    """Finds the lines that hold more memory at the end than after the first row."""

    def __init__(self, lines: int) -> None:
        self._lines = lines
        self._before: object = None
        if lines:
            import tracemalloc

            tracemalloc.start(8)

    def look(self, *, first: bool) -> None:
        if self._lines and first:
            import gc
            import tracemalloc

            gc.collect()
            self._before = tracemalloc.take_snapshot()

    def tell(self) -> None:
        if self._lines:
            import gc
            import tracemalloc

            gc.collect()
            after = tracemalloc.take_snapshot()
            for each in after.compare_to(self._before, "traceback")[: self._lines]:  # type: ignore[arg-type]
                say(f"{each.size_diff / 1024:10.0f} kB {each.count_diff:8} blocks")
                for line in each.traceback.format()[-8:]:
                    say(f"    {line.strip()}")


def _megabytes(pids: Sequence[int], kind: str) -> float:
    """Sum the memory; shared pages are counted once."""
    return sum(_share(pid, kind) for pid in pids)


def _share(pid: int, kind: str) -> float:
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next(int(row.split()[1]) for row in rows if row.startswith(f"{kind}:")) / 1024


@asynccontextmanager
async def _opened(
    project: Path, juggling: Juggling, backend: str, members: int
) -> AsyncIterator[shoal.Session]:
    own = {
        "fan_out_preview": None,
        "teammate_mode": backend,
        "max_concurrent": 2 * members,
        "models": {MODEL: {"window": WINDOW, "max_output": 500}},
    }
    options = {"cwd": project, "skip_permissions": True, "settings": json.dumps({"shoal": own})}
    if backend == "in-process":
        async with shoal.open(model=JugglingModel(juggling), **options) as session:
            yield session
        return

    async def think(body: Body) -> Answer:
        messages = [message_from(raw)[0] for raw in body["messages"]]
        system = "\n".join(part["text"] for part in body["system"])
        request = Request(system=system, messages=messages)
        return Answer(content=tuple(await juggling.think(request)), usage=usage_of(request))

    async with messages_server(think, keep_requests=False) as server:
        os.environ |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "key"}
        async with shoal.open(model=MODEL, **options) as session:
            yield session


async def _said(session: shoal.Session, prompt: str) -> None:
    async for _ in session.run(prompt):
        pass


async def _led(session: shoal.Session) -> None:
    """Take turns as a surface does, for everything that arrives for the lead."""
    await _said(session, "Throw the balls.")
    while (turn := await session.next_turn(wait_for_people=True)) is not None:
        async for _ in turn:
            pass


main()
