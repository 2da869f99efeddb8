"""Statements on the database of a store, in the thread of its client: connections, retries, lease, hints."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import asyncpg

from shoal.core.errors import SettingsError
from shoal.core.names import AgentName, TeamName
from shoal.core.task_groups import BackgroundTasks
from shoal.stores.postgres.database_address import build_address_error
from shoal.stores.postgres.database_errors import (
    LOST_CONNECTION_ERRORS,
    REPEATABLE_ERRORS,
    build_lease_lost_error,
    build_unreachable_error,
    describe_refusal,
)
from shoal.stores.postgres.hint_schedule import HintSchedule
from shoal.stores.postgres.line_writer import LineWriter
from shoal.stores.postgres.roster_rows import RosterMirror
from shoal.stores.postgres.schema import (
    MIN_SERVER_VERSION,
    SCHEMA_VERSION,
    check_schema_is_known,
    migrate_schema,
    read_schema_version,
)

T = TypeVar("T")
HintListener = Callable[[str | None], None]
"""Called in the thread of the client, with None if any number of hints may have been missed."""

CONNECT_SECONDS = 10.0
_MAX_CONNECTIONS = 4
_POOLER_PROBES = 4
_CONNECT_PATIENCE = 0.5
"""Seconds after which an operation that connects takes a connection that another one has returned."""
_FIRST_PAUSE, _MAX_PAUSE = 0.05, 1.0
_SETTINGS = {
    "synchronous_commit": "on",
    # Shoal is written for these, whatever the database or the user has as defaults.
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "transaction_timeout": "0",
    "idle_session_timeout": "0",
    # The server closes the connections of a machine that is gone after 20 seconds. By default, it keeps them
    # for two hours, and the processes that continue the work may get none.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
_SET_SETTINGS = """
    SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) AS setting (name, value)
    WHERE current_setting(name, true) IS NOT NULL
"""
_SET_SERVICE_COMMITS = "SET synchronous_commit = off"
"""Notifications, renewals and ends of leases need no flush. After a crash of the server, leases are extended,
and a write that relies on an ended lease is flushed after that end."""
_FENCE = "SELECT pg_current_xact_id()::text FROM shoal.holders WHERE epoch = $1 FOR KEY SHARE"
_END_LEASES = """
    , ended AS (UPDATE shoal.board_leases SET has_ended = true
                WHERE holder IN (SELECT epoch FROM dead) RETURNING board)
    , freed AS (UPDATE shoal.sessions SET lock_holder = NULL WHERE lock_holder IN (SELECT epoch FROM dead))
    SELECT DISTINCT board FROM ended
"""
# After a restart of the server nobody could renew, so everybody gets the time of one lease to return.
_END_EXPIRED_HOLDERS = (
    """
    WITH dead AS (DELETE FROM shoal.holders WHERE epoch IN (
        SELECT epoch FROM shoal.holders WHERE expires_at < clock_timestamp()
        AND clock_timestamp() > pg_postmaster_start_time() + $1 * interval '1 second'
        FOR UPDATE SKIP LOCKED) RETURNING epoch)
    """
    + _END_LEASES
)
_END_HOLDERS = (
    "WITH dead AS (DELETE FROM shoal.holders WHERE epoch = ANY($1::bigint[]) RETURNING epoch)" + _END_LEASES
)


async def set_connection_settings(raw: Any, **more: str) -> None:
    """Replace the defaults that a database or a user has for connections."""
    settings = {**_SETTINGS, **more}
    await raw.execute(_SET_SETTINGS, [*settings], [*settings.values()])


class StoreTiming(NamedTuple):
    """Seconds. Tests use shorter ones."""

    lease: float = 15.0
    """A process that did not renew its lease for this long may lose it."""
    poll: float = 5.0
    """Waiters check the tables after this time even without a notification."""
    outage: float = 600.0
    """Operations wait this long for a server that is unavailable."""
    unused: float = 5.0
    """A connection that was not used for this long is closed, if there is another one."""


class _PooledConnection(NamedTuple):
    raw: Any
    backend: tuple[int, Any]
    """Process id and start time of the server process."""


class _IdleConnection(NamedTuple):
    connection: _PooledConnection
    since: float


class ActivityBatch:
    """Changes of the activity of members that are written together."""

    def __init__(self) -> None:
        self.changes: dict[AgentName, bool] = {}
        self.written: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class DatabaseWorker:
    """All methods run in the event loop of the client's thread."""

    def __init__(self, address: str, shown_address: str, timing: StoreTiming) -> None:
        self._address = address
        self._shown_address = shown_address
        self.timing = timing
        self.epoch = 0
        self.has_lost_lease = False
        self._slots = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._idle: list[_IdleConnection] = []
        self._has_idle = asyncio.Event()
        """Set while there may be an idle connection."""
        self._service: _PooledConnection | None = None
        self._service_lock = asyncio.Lock()
        self._returned_at = float("-inf")
        """Time of the last connection after a loss."""
        self._listeners: dict[str, list[HintListener]] = {}
        self._pending_hints: dict[tuple[str, str], None] = {}
        self._has_hints = asyncio.Event()
        self._hint_timer: asyncio.TimerHandle | None = None
        self._hints_due = float("inf")
        self._hint_schedule = HintSchedule()
        self._tasks = BackgroundTasks()
        self._is_closing = False
        self.lines = LineWriter(self)
        self.activity_batches: dict[str, ActivityBatch] = {}
        """Changes to rosters that wait, by team."""
        self.activity_locks: dict[str, asyncio.Lock] = {}
        self._roster_mirrors: dict[TeamName, RosterMirror] = {}

    # --- life

    async def open(self, *, migrate: bool = False) -> None:
        """Connect, check the server and take a lease. A failure is reported at once."""
        try:
            service = await self._connect(is_first=True)
        except (ValueError, OverflowError) as error:
            raise build_address_error(self._shown_address, str(error)) from error
        except (*LOST_CONNECTION_ERRORS, asyncpg.PostgresError) as error:
            raise build_unreachable_error(self._shown_address, error) from error
        try:
            await self._check_server(service.raw, migrate=migrate)
            self.epoch = await self._create_holder(service.raw)
            await service.raw.execute(_SET_SERVICE_COMMITS)
        except asyncpg.PostgresError as error:
            await service.raw.close()
            raise describe_refusal(self._shown_address, error) from error
        except BaseException:
            await service.raw.close()
            raise
        self._service = service
        await self.end_dead_local_holders()
        self.start_task(self._keep_service_running())

    async def aclose(self) -> None:
        self._is_closing = True
        # Everything in this event loop belongs to the worker; calls that wait for the server end too.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._service is not None and not self.has_lost_lease:
            with suppress(Exception):
                async with asyncio.timeout(2), self._service_lock:
                    self._queue_board_hints(await self._service.raw.fetch(_END_HOLDERS, [self.epoch]))
                    await self._send_hints(self._service.raw)
        idle = [each.connection for each in self._idle]
        for connection in (*idle, *([] if self._service is None else [self._service])):
            with suppress(Exception):
                await connection.raw.close(timeout=1)

    def start_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run work that ends with the worker."""
        return self._tasks.start(work)

    def get_roster_mirror(self, team: TeamName) -> RosterMirror:
        return self._roster_mirrors.setdefault(team, RosterMirror(team))

    async def _check_server(self, raw: Any, *, migrate: bool) -> None:
        if raw.get_server_version().major < MIN_SERVER_VERSION:
            raise SettingsError(
                f"The store {self._shown_address} is PostgreSQL {raw.get_server_version().major}. Shoal "
                f"needs version {MIN_SERVER_VERSION} or newer."
            )
        version = await read_schema_version(raw)
        check_schema_is_known(version)
        if version == 0 or migrate:
            await migrate_schema(raw)
        elif version < SCHEMA_VERSION:
            raise SettingsError(
                f"The tables of the store {self._shown_address} are at version {version}, but this version "
                f"of Shoal needs "
                f"version {SCHEMA_VERSION}. Stop all other Shoal processes that use this store, then run: "
                "shoal store migrate"
            )

    async def _create_holder(self, raw: Any) -> int:
        epoch: int = await raw.fetchval(
            "INSERT INTO shoal.holders (host, process, renewed_at, expires_at) VALUES ($1, $2, "
            "clock_timestamp(), clock_timestamp() + $3 * interval '1 second') RETURNING epoch",
            get_host_identity(),
            _get_process_identity(),
            self.timing.lease,
        )
        return epoch

    # --- statements

    async def execute(self, operation: Callable[[Any], Awaitable[T]]) -> T:
        """Run statements that each have the same effect if repeated."""
        deadline = time.monotonic() + self.timing.outage
        while True:
            connection = await self._acquire_connection(deadline)
            try:
                result = await operation(connection.raw)
            except BaseException as error:
                if not self._is_connection_lost(connection, error):
                    self._release_connection(connection)
                    if isinstance(error, REPEATABLE_ERRORS):
                        continue
                    if isinstance(error, asyncpg.PostgresError):
                        raise describe_refusal(self._shown_address, error) from error
                    raise
                await self._discard_connection(connection, deadline)
            else:
                self._release_connection(connection)
                return result

    async def transact(self, operation: Callable[[Any], Awaitable[T]]) -> T:
        """Run statements in one transaction, exactly once, while this process has its lease."""
        deadline = time.monotonic() + self.timing.outage
        while True:
            connection = await self._acquire_connection(deadline)
            commits_transaction: str | None = None
            try:
                async with connection.raw.transaction():
                    transaction_id = await connection.raw.fetchval(_FENCE, self.epoch)
                    if transaction_id is None:
                        raise self.lose_lease()  # noqa: TRY301
                    result = await operation(connection.raw)
                    commits_transaction = transaction_id
            except BaseException as error:
                if not self._is_connection_lost(connection, error):
                    self._release_connection(connection)
                    if isinstance(error, REPEATABLE_ERRORS):
                        continue
                    if isinstance(error, asyncpg.PostgresError):
                        raise describe_refusal(self._shown_address, error) from error
                    raise
                await self._discard_connection(connection, deadline)
                if commits_transaction is not None and await self._is_committed(commits_transaction):
                    return result
            else:
                self._release_connection(connection)
                return result

    def lose_lease(self) -> Exception:
        """Return the error for a write of a process whose lease has ended."""
        self.has_lost_lease = True
        return build_lease_lost_error(self._shown_address)

    async def _is_committed(self, transaction_id: str) -> bool:
        """Return the fate of a transaction whose connection was lost during its commit."""

        async def read_status(raw: Any) -> bool:
            try:
                status = await raw.fetchval("SELECT pg_xact_status($1::text::xid8)", transaction_id)
            except asyncpg.InvalidParameterValueError:
                return False  # lost by a crash of the server, which has forgotten it
            return bool(status == "committed")

        return await self.execute(read_status)

    # --- connections

    async def _connect_raw(self) -> Any:
        raw = await asyncpg.connect(self._address, timeout=CONNECT_SECONDS)
        try:
            # A pooler that has no connection to the server accepts this one, and answers nothing.
            async with asyncio.timeout(CONNECT_SECONDS):
                await raw.execute("SET application_name = 'shoal'")
        except BaseException:
            raw.terminate()
            raise
        return raw

    async def _connect(self, *, is_first: bool = False) -> _PooledConnection:
        raw = await self._connect_raw()
        try:
            if is_first:
                await _check_pooler(raw, self._connect_raw, self._shown_address)
            await self._set_settings(raw)
            row = await raw.fetchrow(
                "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            )
        except BaseException:
            raw.terminate()
            raise
        return _PooledConnection(raw, (row[0], row[1]))

    async def _set_settings(self, raw: Any) -> None:
        """Set what the store relies on for this connection.

        Not with start parameters, because a pooler refuses those that it does not know.
        """
        # A process that is stopped or cut off in a transaction cannot roll it back. Without this, its locks,
        # and that of its lease, would stay until the server notices that the connection is gone.
        milliseconds = f"{max(self.timing.lease, 1.0) * 1000:.0f}"
        await set_connection_settings(raw, idle_in_transaction_session_timeout=milliseconds)

    async def _connect_patiently(self, deadline: float) -> _PooledConnection:
        """Connect again after a loss, until the deadline."""
        pause, started = _FIRST_PAUSE, time.monotonic()
        while True:
            try:
                return await self._connect()
            except (*LOST_CONNECTION_ERRORS, asyncpg.InterfaceError) as error:
                if time.monotonic() > deadline:
                    waited = time.monotonic() - started
                    raise build_unreachable_error(self._shown_address, error, seconds=waited) from error
            except asyncpg.PostgresError as error:
                raise build_unreachable_error(self._shown_address, error) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE)

    async def _acquire_connection(self, deadline: float) -> _PooledConnection:
        await self._slots.acquire()
        try:
            if (connection := self._take_idle_connection()) is not None:
                return connection
            return await self._connect_or_wait_for_idle(deadline)
        except BaseException:
            self._slots.release()
            raise

    def _take_idle_connection(self) -> _PooledConnection | None:
        while self._idle:
            connection = self._idle.pop().connection
            if not connection.raw.is_closed():
                return connection
        self._has_idle.clear()
        return None

    async def _connect_or_wait_for_idle(self, deadline: float) -> _PooledConnection:
        """Connect. If that takes long, take a connection that another operation has returned meanwhile.

        A server or a pooler without a free connection must not stop a process that already has some.
        """
        connecting = self.start_task(self._connect_patiently(deadline))
        try:
            await asyncio.wait((connecting,), timeout=_CONNECT_PATIENCE)
            while not connecting.done():
                returned = self.start_task(self._has_idle.wait())
                await asyncio.wait((connecting, returned), return_when=asyncio.FIRST_COMPLETED)
                returned.cancel()
                if not connecting.done() and (connection := self._take_idle_connection()) is not None:
                    return connection
            return connecting.result()
        finally:
            connecting.cancel()

    def _release_connection(self, connection: _PooledConnection) -> None:
        if connection.raw.is_closed() or self._is_closing:
            connection.raw.terminate()
        else:
            self._add_idle_connection(connection)
        self._slots.release()

    def _add_idle_connection(self, connection: _PooledConnection) -> None:
        self._idle.append(_IdleConnection(connection, time.monotonic()))
        self._has_idle.set()

    def _close_unused_connections(self) -> None:
        """Close the connections that were not needed for a while, except one: other processes need them."""
        while len(self._idle) > 1 and time.monotonic() - self._idle[0].since > self.timing.unused:
            self.start_task(self._close_connection(self._idle.pop(0).connection))

    async def _close_connection(self, connection: _PooledConnection) -> None:
        with suppress(asyncpg.PostgresError, *LOST_CONNECTION_ERRORS, asyncpg.InterfaceError):
            await connection.raw.close(timeout=1)

    async def _discard_connection(self, connection: _PooledConnection, deadline: float) -> None:
        """Drop a lost connection. End its server process, which may still be running, before a repetition."""
        connection.raw.terminate()
        try:
            replacement = await self._connect_patiently(deadline)
            try:
                with suppress(*LOST_CONNECTION_ERRORS):
                    await replacement.raw.fetchval(
                        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                        "WHERE pid = $1 AND backend_start = $2",
                        *connection.backend,
                    )
            finally:
                self._add_idle_connection(replacement)
        finally:
            self._slots.release()

    @staticmethod
    def _is_connection_lost(connection: _PooledConnection, error: BaseException) -> bool:
        return isinstance(error, LOST_CONNECTION_ERRORS) or (
            isinstance(error, asyncpg.InterfaceError) and connection.raw.is_closed()
        )

    # --- lease, notifications and the safety poll, on a connection of their own

    async def _keep_service_running(self) -> None:
        while True:
            try:
                assert self._service is not None
                await self._serve(self._service.raw)
            except (asyncpg.PostgresError, *LOST_CONNECTION_ERRORS, asyncpg.InterfaceError):
                await self._reopen_service()

    async def _serve(self, raw: Any) -> None:
        next_renewal = time.monotonic() + self.timing.lease / 3
        next_poll = time.monotonic() + self.timing.poll
        while True:
            pause = min(next_renewal, next_poll) - time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(pause, 0)):
                    await self._has_hints.wait()
            if self._has_hints.is_set():
                async with self._service_lock:
                    await self._send_hints(raw)
            if time.monotonic() >= next_renewal:
                async with self._service_lock, asyncio.timeout(max(self.timing.lease, 1.0)):
                    await self._renew_lease(raw)
                next_renewal = time.monotonic() + self.timing.lease / 3
            if time.monotonic() >= next_poll:
                self._close_unused_connections()
                self._hint_all_listeners()
                next_poll = time.monotonic() + self.timing.poll

    async def _renew_lease(self, raw: Any) -> None:
        is_renewed = await raw.fetchval(
            "UPDATE shoal.holders SET renewed_at = clock_timestamp(), "
            "expires_at = clock_timestamp() + $2 * interval '1 second' WHERE epoch = $1 RETURNING true",
            self.epoch,
            self.timing.lease,
        )
        if not is_renewed:
            self.has_lost_lease = True
        # A process that was cut off itself does not know yet who else was.
        if time.monotonic() - self._returned_at > self.timing.lease:
            self._queue_board_hints(await raw.fetch(_END_EXPIRED_HOLDERS, self.timing.lease))

    async def _reopen_service(self) -> None:
        lost, self._service = self._service, None
        if lost is not None:
            lost.raw.terminate()
        pause = _FIRST_PAUSE
        while self._service is None:
            try:
                service = await self._connect()
                try:
                    async with self._service_lock:
                        await self._renew_lease_after_loss(service.raw)
                        await service.raw.execute(_SET_SERVICE_COMMITS)
                        for channel in self._listeners:
                            await service.raw.add_listener(channel, self._on_notification)
                except BaseException:
                    # A server that refuses writes would otherwise get one more connection with each attempt.
                    service.raw.terminate()
                    raise
                self._service, self._returned_at = service, time.monotonic()
            except (asyncpg.PostgresError, *LOST_CONNECTION_ERRORS, asyncpg.InterfaceError):
                await asyncio.sleep(pause)
                pause = min(pause * 2, _MAX_PAUSE)
        self._hint_all_listeners()

    async def _renew_lease_after_loss(self, raw: Any) -> None:
        self._returned_at = time.monotonic()
        await self._renew_lease(raw)

    async def end_dead_local_holders(self) -> None:
        """End the leases of processes of this machine that have died."""

        async def find_and_end(raw: Any) -> list[Any]:
            rows = await raw.fetch(
                "SELECT epoch, process FROM shoal.holders WHERE host = $1 AND epoch <> $2",
                get_host_identity(),
                self.epoch,
            )
            dead = [row[0] for row in rows if not is_process_alive(row[1])]
            return await raw.fetch(_END_HOLDERS, dead) if dead else []

        self._queue_board_hints(await self.execute(find_and_end))

    async def end_holder(self, epoch: int) -> None:
        """End the lease of one process, whether it is alive or not."""

        async def end(raw: Any) -> list[Any]:
            return list(await raw.fetch(_END_HOLDERS, [epoch]))

        self._queue_board_hints(await self.execute(end))

    async def end_expired_holders(self) -> None:
        """End the leases that were not renewed in time, unless this process has only just returned itself."""
        if time.monotonic() - self._returned_at > self.timing.lease:

            async def end_expired(raw: Any) -> list[Any]:
                return list(await raw.fetch(_END_EXPIRED_HOLDERS, self.timing.lease))

            self._queue_board_hints(await self.execute(end_expired))

    # --- hints

    def notify(self, channel: str, payload: str = "", *, wakes: bool = True) -> None:
        """Hint listeners, in this process at once and in others soon.

        `wakes` is False for a change that nobody can act on: it is only shown, so it may be a little late.
        """
        for listener in tuple(self._listeners.get(channel, ())):
            listener(payload)
        self._pending_hints[channel, payload] = None
        loop = asyncio.get_running_loop()
        send_at = self._hint_schedule.get_send_time(loop.time(), wakes=wakes)
        if send_at < self._hints_due:
            if self._hint_timer is not None:
                self._hint_timer.cancel()
            self._hints_due, self._hint_timer = send_at, loop.call_at(send_at, self._has_hints.set)

    async def listen(self, channel: str, listener: HintListener) -> None:
        """Call the listener for each hint from now on."""
        listeners = self._listeners.setdefault(channel, [])
        listeners.append(listener)
        if len(listeners) == 1:
            async with self._service_lock:
                # Without a connection, the next one listens to all channels and hints everybody.
                if self._service is not None and self._listeners.get(channel):
                    with suppress(asyncpg.PostgresError, *LOST_CONNECTION_ERRORS, asyncpg.InterfaceError):
                        await self._service.raw.add_listener(channel, self._on_notification)

    async def unlisten(self, channel: str, listener: HintListener) -> None:
        listeners = self._listeners.get(channel, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners and self._listeners.pop(channel, None) is not None:
            async with self._service_lock:
                if self._service is not None and channel not in self._listeners:
                    with suppress(asyncpg.PostgresError, *LOST_CONNECTION_ERRORS, asyncpg.InterfaceError):
                        await self._service.raw.remove_listener(channel, self._on_notification)

    def _on_notification(self, _raw: Any, pid: int, channel: str, payload: str) -> None:
        if self._service is not None and pid == self._service.backend[0]:
            return  # sent by this process, which hinted its listeners already
        for listener in tuple(self._listeners.get(channel, ())):
            listener(payload)

    def _hint_all_listeners(self) -> None:
        for listeners in tuple(self._listeners.values()):
            for listener in tuple(listeners):
                listener(None)

    def _queue_board_hints(self, rows: list[Any]) -> None:
        for row in rows:
            self.notify(build_channel("board", row[0]))

    async def _send_hints(self, raw: Any) -> None:
        self._has_hints.clear()
        if self._hint_timer is not None:
            self._hint_timer.cancel()
        self._hints_due = float("inf")
        hints, self._pending_hints = self._pending_hints, {}
        if hints:
            self._hint_schedule.note_batch(asyncio.get_running_loop().time())
            await raw.execute(
                "SELECT pg_notify(channel, payload) "
                "FROM unnest($1::text[], $2::text[]) AS hint (channel, payload)",
                [channel for channel, _ in hints],
                [payload for _, payload in hints],
            )


def build_channel(kind: str, name: str) -> str:
    """Return a channel name, which has at most 63 bytes."""
    return f"shoal_{kind}_{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:24]}"


def get_host_identity() -> str:
    """Return a name for the process ids that this process can see: those of one boot and one container."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return " ".join(parts)


def _get_process_identity() -> str:
    pid = os.getpid()
    return f"{pid} {_read_start_time(pid)}"


def is_process_alive(identity: str) -> bool:
    """Return False if this process has ended; its id may be in use again."""
    pid_text, _, started = identity.partition(" ")
    pid = int(pid_text)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _read_start_time(pid) == started


def _read_start_time(pid: int) -> str:
    """Return the start of a process in clock ticks; empty if the kernel does not report it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    fields = stat.rpartition(b")")[2].split()
    # A zombie has ended: its parent has only not noticed yet.
    return "" if fields[0] == b"Z" else fields[19].decode()


async def _check_pooler(raw: Any, connect: Callable[[], Awaitable[Any]], address: str) -> None:
    """Raise `SettingsError` if a pooler is in transaction mode.

    A pooler reports a made-up process id at the start of a connection. In transaction mode, another client
    gets the server connection of one that is between two transactions.
    """
    if await raw.fetchval("SELECT pg_backend_pid()") == raw.get_server_pid():
        return
    other = await connect()
    try:
        for _ in range(_POOLER_PROBES):
            before = await raw.fetchval("SELECT pg_backend_pid()")
            async with other.transaction():
                taken = await other.fetchval("SELECT pg_backend_pid()")
                after = await raw.fetchval("SELECT pg_backend_pid()")
            if taken in (before, after) or before != after:
                raise _build_pooler_error(address)
    except (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError) as error:
        raise _build_pooler_error(address) from error
    except asyncpg.PostgresConnectionError as error:
        if "pooling mode" in str(error):
            raise _build_pooler_error(address) from error
        raise
    finally:
        await other.close()


def _build_pooler_error(address: str) -> SettingsError:
    return SettingsError(
        f"The store {address} is behind a connection pooler in transaction or statement mode. Notifications "
        "and prepared statements belong to one server connection, so Shoal cannot use it. Set "
        "pool_mode = session in the pooler, or use the address of the server itself."
    )
