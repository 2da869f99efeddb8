"""Measures a store in PostgreSQL beside the files: posts, claims and wakes, and claims on a large board."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from bench.bench_session import use_empty_home
from bench.child_process import SOURCES
from bench.figures import Figure, Section
from bench.node_wakes import measure_wakes_between_nodes
from bench.stopwatch import TimeSpent

_CLIENT = Path(__file__).with_name("store_client.py")
_PLUGINS = Path(__file__).parents[1] / "tests" / "plugins"
_SCRIPTS = Path(__file__).parents[1] / "scripts"


class StoreBenchSize(Struct, frozen=True, kw_only=True):
    clients: int = 8
    operations: int = 250
    """Operations of each client."""
    wakes: int = 100
    boards: tuple[int, int] = (1_000, 100_000)
    claims: int = 200


def measure_store(size: StoreBenchSize) -> Section:
    """Measure on a server with the default settings, so that every commit is on the disk."""
    sys.path[:0] = [str(_PLUGINS), str(_SCRIPTS)]
    from postgres_server import PostgresServer

    server = PostgresServer(fsync="on", full_page_writes="on", shared_buffers="128MB")
    server.start()
    try:
        with use_empty_home() as root:
            address = server.create_empty_database()
            files = f"file:{root / 'files'}"
            figures = [
                *_compare_rates("a post", "post", size, address, files, root, round(1_000 / 3_000, 2)),
                *_compare_rates("a claim", "claim", size, address, files, root, round(1_000 / 4_000, 2)),
                _measure_wake(size, address, root),
                measure_wakes_between_nodes(size.wakes, root),
                *_measure_board_sizes(size, address, root),
            ]
    finally:
        server.remove()
    return Section(
        name="The store in PostgreSQL",
        unit="ms",
        other="the same calls on files",
        column="files",
        figures=figures,
    )


def _compare_rates(
    name: str, work: str, size: StoreBenchSize, address: str, files: str, root: Path, target: float
) -> list[Figure]:
    ours, on_files = (_measure_rate(work, size, place, root) for place in (address, files))
    sql = _measure_rate(f"sql-{work}", size, address, root)
    return [
        Figure(
            name=f"{name}, {size.clients} processes at once",
            ours=ours,
            bare=on_files,
            target=target,
            judged="wall",
        ),
        Figure(name="  files: plain SQL on the same server", ours=ours, bare=sql, judged="wall"),
    ]


def _measure_rate(work: str, size: StoreBenchSize, address: str, root: Path) -> TimeSpent:
    """Return the milliseconds for one operation of all clients together."""
    if work == "claim":
        asyncio.run(_create_tasks(address, root, "bench", size.clients * size.operations))
    elif work == "sql-claim":
        insert_tasks(address, root, "sql-bench", size.clients * size.operations)
    clients = [
        subprocess.Popen(
            [sys.executable, _CLIENT, address, root, work, f"w{number}", str(size.operations)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )
        for number in range(size.clients)
    ]
    for client in clients:
        assert _read_line(client) == "ready"
    started = time.perf_counter()
    for client in clients:
        _write_line(client)
    for client in clients:
        _read_line(client)
    spent = (time.perf_counter() - started) * 1_000 / (size.clients * size.operations)
    for client in clients:
        _write_line(client)
        client.communicate()
    return TimeSpent(cpu=spent, wall=spent)


def _read_line(client: subprocess.Popen[str]) -> str:
    assert client.stdout is not None
    return client.stdout.readline().strip()


def _write_line(client: subprocess.Popen[str]) -> None:
    assert client.stdin is not None
    client.stdin.write("\n")
    client.stdin.flush()


def _make_services() -> dict[str, Any]:
    from shoal.core.clock import SystemClock
    from shoal.core.ids import IdGenerator

    return {"clock": SystemClock(), "ids": IdGenerator(), "report": lambda _: None}


async def _create_tasks(address: str, root: Path, board_name: str, count: int) -> None:
    from shoal.core.teams.tasks import TaskDraft
    from shoal.stores.store_choice import open_store

    board = open_store(address, home=root).open_board(board_name, **_make_services())
    for number in range(count):
        await board.create(TaskDraft(subject=f"task {number}", description="do it"))
    await board.aclose()


def _measure_wake(size: StoreBenchSize, address: str, root: Path) -> Figure:
    from shoal.core.names import AgentName, TeamName
    from shoal.core.teams.mail import MailMessage
    from shoal.stores.postgres.database_client import DatabaseClient
    from shoal.stores.postgres.postgres_store import PostgresStore

    async def measure() -> float:
        stores = [PostgresStore(DatabaseClient(address), root) for _ in range(2)]
        reader, writer = (each.open_mailboxes(TeamName("wakes"), **_make_services()) for each in stores)
        owner, waits = AgentName("ann"), []
        await reader.open_inbox(owner)
        for number in range(size.wakes):
            waiting = asyncio.create_task(reader.wait_for_mail(owner))
            await asyncio.sleep(0.01)
            mail = MailMessage(id=f"{number}", sender=AgentName("bob"), text="x", timestamp="t")
            await writer.post(owner, mail)
            posted = time.perf_counter()
            await waiting
            waits.append((time.perf_counter() - posted) * 1_000)
            await reader.mark_read(owner, [mail.id])
        for store in stores:
            await asyncio.to_thread(store.close)
        return median(waits)

    spent = asyncio.run(measure())
    return Figure(
        name="a wake of another client, local socket, p50",
        ours=TimeSpent(cpu=spent, wall=spent),
        target=5.0,
        judged="wall",
    )


def _measure_board_sizes(size: StoreBenchSize, address: str, root: Path) -> list[Figure]:
    from shoal.core.names import AgentName
    from shoal.stores.store_choice import open_store

    async def measure(name: str) -> float:
        board, spent = open_store(address, home=root).open_board(name, **_make_services()), []
        for _ in range(size.claims):
            started = time.perf_counter()
            assert await board.claim_next(by=AgentName("ann")) is not None
            spent.append((time.perf_counter() - started) * 1_000)
        await board.aclose()
        return median(spent)

    times = []
    for count in size.boards:
        insert_tasks(address, root, f"board-{count}", count)
        times.append(asyncio.run(measure(f"board-{count}")))
    small, large = (TimeSpent(cpu=each, wall=each) for each in times)
    return [
        Figure(name=f"a claim of {size.boards[0]:,} tasks, one process", ours=small),
        Figure(
            name=f"  of {size.boards[1]:,} (files: of {size.boards[0]:,} in PostgreSQL)",
            ours=large,
            bare=small,
            target=small.wall * 1.5,
            judged="wall",
        ),
    ]


def insert_tasks(address: str, root: Path, board: str, count: int) -> None:
    """Fill a board by one statement: one call for each task would take minutes."""
    from shoal.stores.postgres.postgres_store import PostgresStore
    from shoal.stores.store_choice import open_store

    store = open_store(address, home=root)
    assert isinstance(store, PostgresStore)

    async def insert(raw: Any) -> None:
        await raw.execute(
            "INSERT INTO shoal.boards VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET highest = $2",
            board,
            count,
        )
        await raw.execute(
            "INSERT INTO shoal.tasks (board, number, document, status, rank) SELECT $1, number, convert_to("
            "json_build_object('id', number::text, 'subject', 'task', 'status', 'pending')::text, 'UTF8'), "
            "'pending', number FROM generate_series(1, $2::bigint) AS number",
            board,
            count,
        )

    store.client.run(lambda worker: worker.transact(insert))
