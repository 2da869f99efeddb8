"""Measures how long mail takes to wake a process on another node, through a database that both reach by TCP.

The nodes are network namespaces. Without the rights for these, both processes are on loopback.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.child_process import SOURCES
from bench.figures import Figure
from bench.stopwatch import TimeSpent

if TYPE_CHECKING:
    from postgres_server import PostgresServer

_CLIENT = Path(__file__).with_name("store_client.py")
_LOOPBACK = "127.0.77.1"
"""Address of this machine at which no other database listens."""
_PORT = 5432


def measure_wakes_between_nodes(count: int, root: Path) -> Figure:
    """Measure with a server that puts every commit on the disk. It uses plug-ins of the tests."""
    with _open_nodes() as (kind, host, nodes), _run_server(host) as address:
        waits = _measure_waits(count, address, root, nodes)
    spent = median(waits)
    return Figure(
        name=f"a wake between {kind}, p50",
        ours=TimeSpent(cpu=spent, wall=spent),
        target=5.0,
        judged="wall",
    )


@contextmanager
def _open_nodes() -> Iterator[tuple[str, str, list[Sequence[str]]]]:
    """Yield the kind of two nodes, the address of the server, and the prefix of the commands on each node."""
    from network_namespaces import LEAD_ADDRESS, NamespaceNetwork, explain_no_namespaces

    if explain_no_namespaces():
        yield "two processes over TCP", _LOOPBACK, [(), ()]
        return
    network = NamespaceNetwork(2)
    try:
        network.open()
        with network.enter_lead():
            yield "two network namespaces", LEAD_ADDRESS, [network.get_prefix(each) for each in range(2)]
    finally:
        network.close()


@contextmanager
def _run_server(host: str) -> Iterator[str]:
    """Run a database that listens at an address; yield its address for clients."""
    from postgres_server import PostgresServer

    server = PostgresServer(fsync="on", full_page_writes="on", shared_buffers="128MB", listen_addresses=host)
    _trust_network(server, host)
    try:
        server.start()
        yield f"postgresql://shoal@{host}:{_PORT}/postgres"
    finally:
        server.remove()


def _trust_network(server: PostgresServer, host: str) -> None:
    with (server.directory / "data" / "pg_hba.conf").open("a") as file:
        file.write(f"host all all {host}/24 trust\n")


def _measure_waits(count: int, address: str, root: Path, nodes: Sequence[Sequence[str]]) -> list[float]:
    """Return the milliseconds from the end of each post to the wake of its reader."""
    reader, writer = (
        subprocess.Popen(
            [*node, sys.executable, _CLIENT, address, root, work, "ann", str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )
        for node, work in zip(nodes, ("wait", "wake"), strict=True)
    )
    with reader, writer:
        waits = []
        for _ in range(count):
            assert _read_line(reader) == "ready"
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
            # Both clocks are the monotonic clock of this machine.
            posted, woken = float(_read_line(writer)), float(_read_line(reader))
            waits.append((woken - posted) * 1_000)
    return waits


def _read_line(client: subprocess.Popen[str]) -> str:
    assert client.stdout is not None
    return client.stdout.readline().strip()
