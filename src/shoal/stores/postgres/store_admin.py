"""Administration of a PostgreSQL store: its tables, its state, and runs that move between it and files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
from msgspec import Struct

from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.ids import LEAD_ID, SessionId
from shoal.stores.files.file_store import FileStore
from shoal.stores.files.home.exported_files import check_exported_files
from shoal.stores.files.home.home_paths import to_possible_session_id
from shoal.stores.files.home.run_copy import read_run_files, write_run_files
from shoal.stores.files.sessions.damaged_files import report_damaged_session_files
from shoal.stores.postgres.database_address import (
    build_address_error,
    check_database_address,
    hide_password,
)
from shoal.stores.postgres.database_client import get_shared_client
from shoal.stores.postgres.database_errors import (
    LOST_CONNECTION_ERRORS,
    build_unreachable_error,
    describe_refusal,
)
from shoal.stores.postgres.database_worker import CONNECT_SECONDS, set_connection_settings
from shoal.stores.postgres.postgres_sessions import PostgresSessionStore
from shoal.stores.postgres.postgres_store import PostgresStore
from shoal.stores.postgres.run_rows import insert_run_rows, read_run_rows
from shoal.stores.postgres.schema import (
    SCHEMA_VERSION,
    check_schema_is_known,
    migrate_schema,
    read_schema_version,
)
from shoal.stores.stored_run import describe_unreadable_lines

T = TypeVar("T")
_COUNTS = {
    "sessions": "SELECT count(*) FROM shoal.sessions",
    "teams": "SELECT count(*) FROM shoal.teams",
    "open tasks": "SELECT count(*) FROM shoal.tasks WHERE status IN ('pending', 'in_progress')",
    "unread mail": "SELECT count(*) FROM shoal.mail WHERE NOT is_read",
    "bytes": "SELECT pg_database_size(current_database())",
}
_CHECKS = {
    "a journal has a gap or an overlap": """
        SELECT session FROM (SELECT session, position, lag(position + length(line), 1, 0::bigint)
        OVER (PARTITION BY session ORDER BY position) AS expected FROM shoal.journal_lines) AS lines
        WHERE position <> expected GROUP BY session""",
    "a journal's size differs from the size stored with its session": """
        SELECT id FROM shoal.sessions WHERE journal_size <> coalesce(
        (SELECT sum(length(line)) FROM shoal.journal_lines WHERE session = id), 0)""",
    "a transcript has a gap": """
        SELECT session || ' ' || agent FROM shoal.transcript_lines GROUP BY session, agent
        HAVING max(number) + 1 <> count(*)""",
    "a task has a wrong number of open blockers": """
        SELECT board || ' ' || number FROM shoal.tasks AS task WHERE status <> 'deleted'
        AND open_blockers <> (SELECT count(*) FROM shoal.tasks AS blocker WHERE blocker.board = task.board
        AND blocker.number = ANY(task.blocked_by) AND blocker.status NOT IN ('completed', 'deleted'))""",
    "a blocker does not list a task that it blocks": """
        SELECT task.board || ' ' || task.number FROM shoal.tasks AS task JOIN shoal.tasks AS blocker
        ON blocker.board = task.board AND blocker.number = ANY(task.blocked_by)
        WHERE task.status <> 'deleted' AND blocker.status <> 'deleted'
        AND NOT task.number = ANY(blocker.dependents)""",
    "a claimed task has an unknown lease": """
        SELECT board || ' ' || number FROM shoal.tasks AS task WHERE status = 'in_progress'
        AND lease IS NOT NULL
        AND NOT EXISTS (SELECT FROM shoal.board_leases WHERE board_leases.lease = task.lease)""",
    "mail has no inbox": """
        SELECT DISTINCT team || ' ' || owner FROM shoal.mail WHERE NOT EXISTS (SELECT FROM shoal.inboxes
        WHERE inboxes.team = mail.team AND inboxes.owner = mail.owner)""",
    "the stored work of an agent has a gap": """
        SELECT session || ' ' || agent FROM shoal.work_parts GROUP BY session, agent
        HAVING max(number) - min(number) + 1 <> count(*)
        OR position('"is_first":true'::bytea IN (array_agg(state ORDER BY number))[1]) = 0""",
    "stored work has no session": """
        SELECT DISTINCT session FROM shoal.work_parts WHERE NOT EXISTS (SELECT FROM shoal.sessions
        WHERE id = session)""",
    "a lock belongs to a process that has ended": """
        SELECT id FROM shoal.sessions WHERE lock_holder IS NOT NULL
        AND NOT EXISTS (SELECT FROM shoal.holders WHERE epoch = lock_holder)""",
}
"""Problems by description; each query returns the names of what is wrong."""


class PostgresStoreStatus(Struct, frozen=True, kw_only=True):
    address: str
    server: str
    version: int
    """Version of the tables; 0 if there are none yet."""
    needed_version: int
    counts: dict[str, int]
    processes: tuple[str, ...]
    """Processes that have a lease."""


class ImportedRun(Struct, frozen=True, kw_only=True):
    session: SessionId
    damage: tuple[str, ...]
    """A sentence for each file that is damaged and was imported as it is."""


def read_store_status(address: str) -> PostgresStoreStatus:
    async def read(raw: Any) -> PostgresStoreStatus:
        version = await read_schema_version(raw)
        counts = {name: await raw.fetchval(query) for name, query in _COUNTS.items()} if version else {}
        holders = await raw.fetch("SELECT host, process FROM shoal.holders ORDER BY epoch") if version else ()
        return PostgresStoreStatus(
            address=hide_password(address),
            server=await raw.fetchval("SHOW server_version"),
            version=version,
            needed_version=SCHEMA_VERSION,
            counts=counts,
            processes=tuple(f"{host.split()[0]} {process.split()[0]}" for host, process in holders),
        )

    return run_on_connection(address, read)


def migrate_store(address: str) -> tuple[int, int]:
    """Bring the tables to the version of this program; return the version before and after."""
    return run_on_connection(address, migrate_schema)


def find_store_problems(address: str) -> list[str]:
    """Check that the tables are consistent; return a sentence for each problem."""

    async def check(raw: Any) -> list[str]:
        version = await read_schema_version(raw)
        check_schema_is_known(version)
        if not version:
            return []
        async with raw.transaction(isolation="repeatable_read", readonly=True):
            return [
                f"{row[0]}: {problem}."
                for problem, query in _CHECKS.items()
                for row in await raw.fetch(query)
            ]

    return run_on_connection(address, check)


def import_run(address: str, home: Path, name: str) -> ImportedRun:
    """Copy a run from the files of a home to the store. Nothing else may have it open.

    Raises `StateFileError`, and imports nothing, if an exported file is damaged or a part would be left out.
    """
    try:
        source = FileStore(home).find_session(name)
    except SessionNotFound:
        check_exported_files(
            home, to_possible_session_id(name)
        )  # its conversation may be the file that is missing
        raise
    store = PostgresStore(get_shared_client(address), home)
    source.acquire_lock()
    try:
        check_exported_files(home, source.session)
        run = read_run_files(home, source.session)
        damage = (
            *report_damaged_session_files(home, source.session, now=None),
            *describe_unreadable_lines(run),
        )

        async def insert(raw: Any) -> None:
            await insert_run_rows(raw, run)

        store.client.run(lambda worker: worker.transact(insert))
    finally:
        source.release_lock()
        store.close()
    return ImportedRun(session=run.session, damage=damage)


def export_run(address: str, home: Path, name: str) -> tuple[SessionId, Path]:
    """Copy a run from the store to the files of a home; return its id and the transcript of the lead."""
    store = PostgresStore(get_shared_client(address), home)
    try:
        return _export_session(store, home, store.find_session(name))
    finally:
        store.close()


def _export_session(store: PostgresStore, home: Path, source: PostgresSessionStore) -> tuple[SessionId, Path]:
    source.acquire_lock()
    try:

        async def read(raw: Any) -> Any:
            async with raw.transaction(isolation="repeatable_read", readonly=True):
                return await read_run_rows(raw, source.session)

        run = store.client.run(lambda worker: worker.execute(read))
        if LEAD_ID not in run.transcripts:
            raise StateFileError(f"The session {run.session} has no conversation.", path=home)
        return run.session, write_run_files(home, run)
    finally:
        source.release_lock()


def run_on_connection(address: str, work: Callable[[Any], Awaitable[T]]) -> T:
    """Run work on a connection without a lease, which needs no tables."""
    check_database_address(address)
    shown_address = hide_password(address)

    async def connect_and_run() -> T:
        try:
            raw = await asyncpg.connect(address, timeout=CONNECT_SECONDS)
        except (ValueError, OverflowError) as error:
            raise build_address_error(shown_address, str(error)) from error
        except (*LOST_CONNECTION_ERRORS, asyncpg.PostgresError) as error:
            raise build_unreachable_error(shown_address, error) from error
        try:
            await set_connection_settings(raw)
            return await work(raw)
        except asyncpg.PostgresError as error:
            raise describe_refusal(shown_address, error) from error
        finally:
            await raw.close()

    # In another thread: commands call this with or without a running event loop.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, connect_and_run()).result()
