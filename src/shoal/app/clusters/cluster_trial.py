"""A database and a cluster of three nodes on one machine, to try out several machines."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from shoal.backends.member_listener import find_own_address
from shoal.backends.program_directory import ProgramDirectory
from shoal.backends.ray_node import RayNode, RayNodeSpec
from shoal.backends.ray_settings import explain_missing_ray
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import ProcessLauncher, ProcessLaunchSpec

EXTRA_NODES = 2
_READY_TIMEOUT = 30.0
_SERVER_DIRECTORIES = "usr/lib/postgresql/*/bin"
_SERVER_OPTIONS = ("listen_addresses=127.0.0.1", "shared_buffers=32MB", "max_connections=200")


class TrialCluster(Struct, frozen=True, kw_only=True):
    address: str
    """Head of the cluster."""
    store: str
    """Address of the database."""
    nodes: tuple[int, ...]
    """Process ids of the head and of the other nodes."""
    database: int
    """Process id of the database."""


@asynccontextmanager
async def open_trial_cluster(
    processes: ProcessLauncher, clock: Clock, *, home: Path
) -> AsyncIterator[TrialCluster]:
    """Start everything; stop it all on exit. Raises `ProcessError`."""
    if reason := explain_missing_ray():
        raise ProcessError(reason)
    async with AsyncExitStack() as stack:
        server = TrialDatabase(processes, clock)
        stack.push_async_callback(server.stop)
        store = await server.start()
        host, port = _find_own_host(), _find_free_port()
        specs = [
            RayNodeSpec(port=port, host=host, cpus=1, env={"SHOAL_HOME": str(home)}),
            *(
                RayNodeSpec(
                    address=f"{host}:{port}",
                    host=f"127.0.0.{number + 2}",
                    cpus=1,
                    env={"SHOAL_HOME": str(home)},
                )
                for number in range(EXTRA_NODES)
            ),
        ]
        nodes = [RayNode(spec, processes, clock) for spec in specs]
        stack.push_async_callback(_stop_nodes, nodes)
        head, *others = nodes
        await head.start()
        # All starts have ended when one has failed, so that nothing is started while the nodes are stopped.
        results = await asyncio.gather(*(node.start() for node in others), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        yield TrialCluster(
            address=f"{host}:{port}",
            store=store,
            nodes=tuple(node.pid for node in nodes),
            database=server.pid,
        )


async def _stop_nodes(nodes: Sequence[RayNode]) -> None:
    async with asyncio.TaskGroup() as group:
        for node in nodes:
            group.create_task(node.stop())


class TrialDatabase:
    """PostgreSQL in a temporary directory, without a password, reachable from this machine only."""

    def __init__(self, processes: ProcessLauncher, clock: Clock) -> None:
        self._processes = processes
        self._clock = clock
        self._directory = ProgramDirectory("pg")
        self._stack = AsyncExitStack()
        self.pid = 0

    async def start(self) -> str:
        """Return the address of an empty database. Raises `ProcessError`."""
        user = _find_server_user()
        if user is not None:
            shutil.chown(self._directory.path, user, user)
        port, data = _find_free_port(), str(self._directory.path / "data")
        await self._run(
            user,
            "initdb",
            "-D",
            data,
            "-A",
            "trust",
            "-U",
            "shoal",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale",
            "C",
        )
        options = [f"-c{option}" for option in (*_SERVER_OPTIONS, f"port={port}")]
        argv = ["postgres", "-D", data, "-k", str(self._directory.path), *options]
        process = await self._processes.start_process(self._build_launch(user, argv))
        self._stack.push_async_callback(process.stop, grace=3.0)
        self.pid = process.pid
        await self._wait_until_ready(port)
        return f"postgresql://shoal@127.0.0.1:{port}/postgres"

    async def stop(self) -> None:
        with suppress(ProcessError):
            await self._stack.aclose()
        await asyncio.to_thread(self._directory.remove)

    async def _run(self, user: str | None, *argv: str) -> None:
        process = await self._processes.start_process(self._build_launch(user, list(argv)))
        if await process.wait() != 0:
            raise ProcessError(f"{argv[0]} failed. Its output:\n{self._directory.read_last_output()}")

    def _build_launch(self, user: str | None, argv: list[str]) -> ProcessLaunchSpec:
        program = _find_server_program(argv[0])
        switch = [] if user is None else ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--"]
        return ProcessLaunchSpec(
            argv=[*switch, program, *argv[1:]],
            cwd=self._directory.path,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            stdout=self._directory.output,
            stderr=self._directory.output,
        )

    async def _wait_until_ready(self, port: int) -> None:
        import asyncpg

        try:
            async with self._clock.deadline(_READY_TIMEOUT):
                while True:
                    try:
                        connection = await asyncpg.connect(
                            host="127.0.0.1", port=port, user="shoal", database="postgres"
                        )
                    except (OSError, asyncpg.PostgresError):
                        await self._clock.sleep(0.1)
                    else:
                        await connection.close()
                        return
        except TimeoutError:
            raise ProcessError(
                f"The database did not start. Its output:\n{self._directory.read_last_output()}"
            ) from None


def _find_server_program(name: str) -> str:
    directories = [os.environ.get("PATH", os.defpath)]
    directories += sorted(map(str, Path("/").glob(_SERVER_DIRECTORIES)), reverse=True)
    if (found := shutil.which(name, path=os.pathsep.join(directories))) is None:
        raise ProcessError(
            "PostgreSQL is not installed on this machine. On Debian: apt-get install postgresql"
        )
    return found


def _find_server_user() -> str | None:
    """Return the user to run the server as; None for the current one. The server refuses root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise ProcessError("PostgreSQL refuses to run as root. Run this command as another user.")


def _find_own_host() -> str:
    """Return an address of this machine. Ray replaces a head's loopback address with another one."""
    with suppress(ProcessError):
        if not (host := find_own_address("192.0.2.1:9")).startswith("127."):
            return host
    return "127.0.0.1"


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
