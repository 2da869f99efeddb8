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
from tests.chaos.process_table import list_descendants
from tests.load.mail_workload import HOLD_SECONDS, WINDOW, MailWorkload, MailWorkloadModel, estimate_usage

import shoal
from shoal.core.conversation.model_requests import ModelRequest
from shoal.testing import messages_server
from shoal.testing.mock_replies import MockReply, RequestBody
from shoal.wire.json_codec import parse_conversation_message

MODEL = "anthropic:claude-sonnet-4-5"
CATCH_TIMEOUT = 60.0
"""Seconds until each ball is held by a member, once no more are thrown."""


class LoadRow(msgspec.Struct, frozen=True, kw_only=True):
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
    def own_megabytes(self) -> float:
        return self.megabytes - self.in_files

    def __str__(self) -> str:
        return (
            f"{self.seconds:6.0f} s  {self.processes:4} processes  {self.megabytes:8.1f} MB  "
            f"p50 {self.p50:7.1f} ms  p99 {self.p99:7.1f} ms  "
            f"{self.thrown:7,} posted  {self.caught:7,} taken  {self.tasks:6,} tasks done"
        )


def print_line(line: str) -> None:
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
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as place:
        sys.exit(asyncio.run(run_load(Path(place).resolve(), given)))


async def run_load(directory: Path, arguments: argparse.Namespace) -> bool:
    juggling = MailWorkload(arguments.members, max(1, round(arguments.rate * HOLD_SECONDS)))
    (directory / "project").mkdir()
    os.environ["SHOAL_HOME"] = str(directory / "home")
    async with _open_session(
        directory / "project", juggling, arguments.backend, arguments.members
    ) as session:
        since = time.monotonic()
        await _run_prompt(session, "Make the team.")
        while (turn := await session.next_turn()) is not None:
            async for _ in turn:
                pass
        print_line(f"{arguments.members} members joined and rest after {time.monotonic() - since:.1f} s")
        async with asyncio.TaskGroup() as tasks:
            lead = tasks.create_task(_take_lead_turns(session))
            await juggling.is_warm.wait()
            print_line(f"each has had something to do after {time.monotonic() - since:.1f} s")
            rows = await _measure_rows(juggling, arguments)
            lead.cancel()
    return _has_failed(rows, juggling, arguments.growth / 100)


async def _measure_rows(workload: MailWorkload, arguments: argparse.Namespace) -> list[LoadRow]:
    every = min(60.0, arguments.minutes * 6)
    since, rows, growing = time.monotonic(), list[LoadRow](), _GrowthTracer(arguments.traces)
    while (now := time.monotonic() - since) < arguments.minutes * 60 - every / 2:
        await asyncio.sleep(min(every, (len(rows) + 1) * every - now))
        took, workload.latencies = workload.latencies or [0.0], []
        pids = [os.getpid(), *list_descendants(os.getpid())]
        rows.append(
            LoadRow(
                seconds=time.monotonic() - since,
                processes=len(pids),
                megabytes=_sum_megabytes(pids, "Pss"),
                in_files=_sum_megabytes(pids, "Pss_File"),
                p50=median(took) * 1e3,
                p99=quantiles(took, n=100)[98] * 1e3 if len(took) > 1 else took[0] * 1e3,
                thrown=workload.thrown,
                caught=workload.caught,
                tasks=workload.tasks,
            )
        )
        print_line(str(rows[-1]))
        growing.take_baseline(first=len(rows) == 1)
    growing.print_growth()
    workload.is_stopping = True
    try:
        async with asyncio.timeout(CATCH_TIMEOUT):
            await workload.all_held.wait()
    except TimeoutError:
        print_line(f"{workload.lost} balls were not caught in {CATCH_TIMEOUT:g} s")
    return rows


def _has_failed(rows: list[LoadRow], workload: MailWorkload, max_growth: float) -> bool:
    """Return True if memory grew too much or mail was lost or doubled."""
    first, last = rows[0], rows[-1]
    growth, total = last.own_megabytes / first.own_megabytes - 1, last.megabytes / first.megabytes - 1
    print_line(
        f"memory of all processes {total:+.1%} after the first {_format_seconds(first.seconds)}, "
        f"{growth:+.1%} without what lies in files, "
        f"latency p50 {first.p50:.1f} → {last.p50:.1f} ms, p99 {first.p99:.1f} → {last.p99:.1f} ms, "
        f"{workload.thrown:,} posted, {workload.lost} lost, {workload.duplicates} came twice"
    )
    return growth > max_growth or bool(workload.lost or workload.duplicates)


def _format_seconds(seconds: float) -> str:
    return "minute" if round(seconds) == 60 else f"{seconds:.0f} s"


class _GrowthTracer:
    """Finds the lines that hold more memory at the end than after the first row."""

    def __init__(self, lines: int) -> None:
        self._lines = lines
        self._before: object = None
        if lines:
            import tracemalloc

            tracemalloc.start(8)

    def take_baseline(self, *, first: bool) -> None:
        if self._lines and first:
            import gc
            import tracemalloc

            gc.collect()
            self._before = tracemalloc.take_snapshot()

    def print_growth(self) -> None:
        if self._lines:
            import gc
            import tracemalloc

            gc.collect()
            after = tracemalloc.take_snapshot()
            for each in after.compare_to(self._before, "traceback")[: self._lines]:  # type: ignore[arg-type]
                print_line(f"{each.size_diff / 1024:10.0f} kB {each.count_diff:8} blocks")
                for line in each.traceback.format()[-8:]:
                    print_line(f"    {line.strip()}")


def _sum_megabytes(pids: Sequence[int], kind: str) -> float:
    """Sum the memory; shared pages are counted once."""
    return sum(_read_megabytes(pid, kind) for pid in pids)


def _read_megabytes(pid: int, kind: str) -> float:
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next(int(row.split()[1]) for row in rows if row.startswith(f"{kind}:")) / 1024


@asynccontextmanager
async def _open_session(
    project: Path, workload: MailWorkload, backend: str, members: int
) -> AsyncIterator[shoal.Session]:
    own = {
        "fan_out_preview": None,
        "teammate_mode": backend,
        "max_concurrent": 2 * members,
        "models": {MODEL: {"window": WINDOW, "max_output": 500}},
    }
    options = {"cwd": project, "skip_permissions": True, "settings": json.dumps({"shoal": own})}
    if backend == "in-process":
        async with shoal.open(model=MailWorkloadModel(workload), **options) as session:
            yield session
        return

    async def choose_reply(body: RequestBody) -> MockReply:
        messages = [parse_conversation_message(raw)[0] for raw in body["messages"]]
        system = "\n".join(part["text"] for part in body["system"])
        request = ModelRequest(system=system, messages=messages)
        return MockReply(content=tuple(await workload.choose_reply(request)), usage=estimate_usage(request))

    async with messages_server(choose_reply, keep_requests=False) as server:
        os.environ |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "key"}
        async with shoal.open(model=MODEL, **options) as session:
            yield session


async def _run_prompt(session: shoal.Session, prompt: str) -> None:
    async for _ in session.run(prompt):
        pass


async def _take_lead_turns(session: shoal.Session) -> None:
    """Take turns as a surface does, for everything that arrives for the lead."""
    await _run_prompt(session, "Throw the balls.")
    while (turn := await session.next_turn(wait_for_input=True)) is not None:
        async for _ in turn:
            pass


main()
