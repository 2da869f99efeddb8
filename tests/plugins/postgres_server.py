"""A PostgreSQL server for tests, started once per test process and only if a test needs it."""

from __future__ import annotations

import asyncio
import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from setup_env import find_program
from shoal.backends.guardian import collect_descendant_pids, read_process_tree

_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
}
_READY_SECONDS = 60
_EMPTY_TABLES = """
DO $$
BEGIN
    EXECUTE (SELECT 'TRUNCATE ' || string_agg('shoal.' || tablename, ', ') || ' RESTART IDENTITY'
             FROM pg_tables WHERE schemaname = 'shoal' AND tablename <> 'schema_version' HAVING count(*) > 0);
EXCEPTION WHEN null_value_not_allowed THEN NULL;
END $$
"""


class PostgresServer:
    """A server on a socket in a directory of its own. It runs as another user, because it refuses root."""

    def __init__(self, **settings: str) -> None:
        # Not below pytest's directories, which other users cannot enter, and short enough for a socket.
        self.directory = Path(tempfile.mkdtemp(prefix="shoal-pg-", dir="/tmp"))
        self.user = _find_server_user()
        if self.user is not None:
            shutil.chown(self.directory, self.user, self.user)
        self._settings = _SETTINGS | settings
        self._process: subprocess.Popen[bytes] | None = None
        data = str(self.directory / "data")
        self._run(
            "initdb", "-D", data, "-A", "trust", "-U", "shoal", "--no-sync", "-E", "UTF8", "--locale", "C"
        )

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pids(self) -> set[int]:
        if self._process is None:
            return set()
        return {self._process.pid, *collect_descendant_pids(self._process.pid, read_process_tree())}

    @property
    def address(self) -> str:
        return self.build_address("postgres")

    def build_address(self, database: str) -> str:
        return f"postgresql://shoal@/{database}?host={self.directory}"

    def start(self) -> None:
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        self._process = self.start_program(
            "postgres", "-D", self.directory / "data", "-k", self.directory, *options
        )
        self.wait_until_ready(self.address)

    def start_program(self, name: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
        """Start a program as the user of the server."""
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                [find_program(name) or name, *arguments],
                stdout=log,
                stderr=log,
                cwd=self.directory,
                **self._build_user_arguments(),
            )

    def wait_until_ready(self, address: str) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                _execute_in_thread(address, ("SELECT 1",))
            except Exception as error:
                is_early = isinstance(error, OSError) or getattr(error, "sqlstate", "") == "57P03"
                if not is_early or time.monotonic() > deadline:
                    raise RuntimeError((self.directory / "log").read_text()) from error
                time.sleep(0.02)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: by default at once with a clean state, with SIGQUIT as in a crash."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(timeout=30)

    def kill(self) -> None:
        """Kill the server as the system does, and wait until its other processes have noticed."""
        assert self._process is not None
        others = collect_descendant_pids(self._process.pid, read_process_tree())
        self.stop(signal.SIGKILL)
        deadline = time.monotonic() + 30
        while any(Path(f"/proc/{pid}").exists() for pid in others):
            assert time.monotonic() < deadline, "processes of the server are left"
            time.sleep(0.02)

    def wait_until_crashed(self) -> None:
        """Wait until the server has ended on its own."""
        assert self._process is not None
        self._process.wait(timeout=60)
        self._process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def execute(self, *statements: str, database: str = "postgres") -> list[list[object]]:
        """Run statements on a connection of their own; return the rows of the last."""
        return _execute_in_thread(self.build_address(database), statements)

    def create_empty_database(self, name: str = "shoal") -> str:
        """Return the address of a database without tables of a store."""
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", f"CREATE DATABASE {name}")
        return self.build_address(name)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [
                find_program(program) or find_program("postgres").replace("/postgres", f"/{program}"),
                *arguments,
            ],
            check=True,
            capture_output=True,
            cwd=self.directory,
            **self._build_user_arguments(),
        )

    def _build_user_arguments(self) -> dict:
        return {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}


class PoolerProcess:
    """A pooler in front of a server, on a loopback port."""

    def __init__(
        self, server: PostgresServer, mode: str, *, database: str = "shoal", size: int = 100
    ) -> None:
        """`size` is the number of connections to the server."""
        self.server, self.mode, self.database, self.size = server, mode, database, size

    def __enter__(self) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        directory = self.server.directory
        users = directory / "users.txt"
        users.write_text('"shoal" ""\n')
        config = directory / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host={directory} user=shoal\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nauth_type = any\nauth_file = {users}\npool_mode = {self.mode}\n"
            f"default_pool_size = {self.size}\n"
            f"unix_socket_dir =\nlogfile = {directory / 'pgbouncer.log'}\n"
        )
        for path in (users, config):
            path.chmod(0o644)
        self.process = self.server.start_program("pgbouncer", config)
        address = f"postgresql://shoal@127.0.0.1:{port}/{self.database}"
        self.server.wait_until_ready(address)
        return address

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def _execute_in_thread(address: str, statements: tuple[str, ...]) -> list[list[object]]:
    # In a thread, because an event loop may be running in this one.
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(lambda: asyncio.run(_execute(address, statements))).result()


async def _execute(address: str, statements: tuple[str, ...]) -> list[list[object]]:
    import asyncpg

    connection = await asyncpg.connect(address)
    try:
        rows = []
        for statement in statements:
            rows = await connection.fetch(statement)
        return [list(row.values()) for row in rows]
    finally:
        await connection.close()


def _find_server_user() -> str | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise RuntimeError("PostgreSQL refuses root, and there is no other user for it")


@cache
def get_shared_server() -> PostgresServer:
    server = PostgresServer()
    atexit.register(server.remove)
    server.start()
    return server


@cache
def _create_shared_database() -> str:
    return get_shared_server().create_empty_database()


def get_clean_database() -> str:
    """Return the address of a database whose store is empty; its tables exist after the first use."""
    from shoal.stores.postgres.database_client import get_shared_client

    address = _create_shared_database()
    # Its lease, which an earlier test in this process may have taken, is removed with the tables.
    get_shared_client(address).close()
    get_shared_server().execute(_EMPTY_TABLES, database="shoal")
    return address


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Close the connections of the test: without its server, they would be opened again for minutes."""
    module = sys.modules.get("shoal.stores.postgres.database_client")
    if module is not None:
        while module._SHARED_CLIENTS:
            module._SHARED_CLIENTS.popitem()[1].close()


@pytest.fixture
def database() -> str:
    """Address of an empty store in a running server."""
    return get_clean_database()


@cache
def _get_breakable_server() -> PostgresServer:
    server = PostgresServer()
    atexit.register(server.remove)
    return server


@pytest.fixture
def own_server() -> PostgresServer:
    """A server that the test may stop, start and break; `create_empty_database` makes it as new."""
    server = _get_breakable_server()
    if not server.is_running:
        server.start()
    return server
