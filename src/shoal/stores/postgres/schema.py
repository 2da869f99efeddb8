"""Tables of the store and their migrations, which only go forward.

Documents are the bytes of the files that they replace, so that a run can be exported unchanged. Every writer
holds a row in `holders`; its primary key is the fencing epoch.
"""

from __future__ import annotations

from typing import Any

from shoal.core.errors import SettingsError

MIN_SERVER_VERSION = 14
_ENCODINGS = ("UTF8", "SQL_ASCII")
"""Encodings that can store any text. SQL_ASCII means that the server leaves text as it is."""
_MIGRATION_LOCK = 0x73686F616C  # "shoal" in ASCII

_FIRST_TABLES = """
CREATE TABLE shoal.holders (
    epoch bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host text NOT NULL,
    process text NOT NULL,
    renewed_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE TABLE shoal.sessions (
    id text PRIMARY KEY,
    cwd text NOT NULL,
    title text NOT NULL DEFAULT '',
    lock_holder bigint,
    journal_size bigint NOT NULL DEFAULT 0
);
CREATE INDEX sessions_by_cwd ON shoal.sessions (cwd);
CREATE TABLE shoal.transcript_lines (
    session text NOT NULL,
    agent text NOT NULL,
    number bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    line bytea NOT NULL,
    PRIMARY KEY (session, agent, number)
);
CREATE TABLE shoal.agent_metadata (
    session text NOT NULL,
    agent text NOT NULL,
    document bytea NOT NULL,
    PRIMARY KEY (session, agent)
);
CREATE TABLE shoal.journal_lines (
    session text NOT NULL,
    position bigint NOT NULL,
    write_id bigint NOT NULL,
    line bytea NOT NULL,
    PRIMARY KEY (session, position),
    UNIQUE (session, write_id)
);
CREATE TABLE shoal.results (
    session text NOT NULL,
    name text NOT NULL,
    write_id bigint NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (session, name)
);
CREATE TABLE shoal.questions (
    session text NOT NULL,
    id text NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    question bytea NOT NULL,
    answer bytea,
    late_answer bytea,
    PRIMARY KEY (session, id)
);
CREATE TABLE shoal.teams (
    name text PRIMARY KEY,
    document bytea NOT NULL,
    spawned bigint NOT NULL DEFAULT 0
);
CREATE TABLE shoal.team_keys (
    team text PRIMARY KEY,
    key bytea NOT NULL
);
CREATE TABLE shoal.inboxes (
    team text NOT NULL,
    owner text NOT NULL,
    is_foreign boolean NOT NULL,
    PRIMARY KEY (team, owner)
);
CREATE TABLE shoal.mail (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team text NOT NULL,
    owner text NOT NULL,
    id text NOT NULL,
    is_read boolean NOT NULL DEFAULT false,
    is_archived boolean NOT NULL DEFAULT false,
    document bytea NOT NULL,
    UNIQUE (team, owner, id)
);
CREATE INDEX unread_mail ON shoal.mail (team, owner, number) WHERE NOT is_read;
CREATE TABLE shoal.boards (
    name text PRIMARY KEY,
    highest bigint NOT NULL DEFAULT 0
);
CREATE TABLE shoal.board_leases (
    lease text PRIMARY KEY,
    board text NOT NULL,
    holder bigint NOT NULL,
    has_ended boolean NOT NULL DEFAULT false
);
CREATE INDEX ended_board_leases ON shoal.board_leases (board) WHERE has_ended;
CREATE INDEX board_leases_by_holder ON shoal.board_leases (holder);
CREATE TABLE shoal.tasks (
    board text NOT NULL,
    number bigint NOT NULL,
    document bytea NOT NULL,
    status text NOT NULL,
    owner text,
    attempt text,
    lease text GENERATED ALWAYS AS (split_part(attempt, '-', 1)) STORED,
    rank double precision NOT NULL,
    blocked_by bigint[] NOT NULL DEFAULT '{}',
    dependents bigint[] NOT NULL DEFAULT '{}',
    open_blockers bigint NOT NULL DEFAULT 0,
    version bigint NOT NULL DEFAULT 0,
    changed_in xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (board, number)
);
CREATE INDEX claimable_tasks ON shoal.tasks (board, rank, number)
    WHERE status = 'pending' AND owner IS NULL AND open_blockers = 0;
CREATE INDEX claimed_tasks ON shoal.tasks (board, lease) WHERE status = 'in_progress';
CREATE INDEX owned_tasks ON shoal.tasks (board, owner) WHERE owner IS NOT NULL AND status <> 'completed';
CREATE INDEX changed_tasks ON shoal.tasks (board, changed_in);
"""

_MEMBER_ROWS = """
ALTER TABLE shoal.teams ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY;
CREATE TABLE shoal.team_members (
    team bigint NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL,
    entry bytea NOT NULL,
    is_active boolean,
    is_removed boolean NOT NULL DEFAULT false,
    version bigint NOT NULL DEFAULT 0,
    changed_in xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (team, number)
);
CREATE UNIQUE INDEX member_names ON shoal.team_members (team, name) WHERE NOT is_removed;
CREATE INDEX changed_members ON shoal.team_members (team, changed_in);
"""

_WORK_PARTS = """
CREATE TABLE shoal.work_parts (
    session text NOT NULL,
    agent text NOT NULL,
    number bigint NOT NULL,
    state bytea NOT NULL,
    bundle bytea NOT NULL,
    PRIMARY KEY (session, agent, number)
);
ALTER TABLE shoal.work_parts ALTER COLUMN bundle SET STORAGE EXTERNAL;
"""

MIGRATIONS: tuple[str, ...] = (_FIRST_TABLES, _MEMBER_ROWS, _WORK_PARTS)
"""SQL of each version, beginning with version 1. A released entry is never changed."""
SCHEMA_VERSION = len(MIGRATIONS)


async def read_schema_version(connection: Any) -> int:
    """Return the version of the tables; 0 if there are none."""
    if await connection.fetchval("SELECT to_regclass('shoal.schema_version')") is None:
        return 0
    return int(await connection.fetchval("SELECT version FROM shoal.schema_version") or 0)


async def migrate_schema(connection: Any) -> tuple[int, int]:
    """Bring the tables to the version of this program; return the version before and after."""
    # Two programs may start on an empty database at the same moment. The lock is taken before the
    # transaction, which would not see the tables that the other created while it waited.
    await connection.execute("SELECT pg_advisory_lock($1)", _MIGRATION_LOCK)
    try:
        async with connection.transaction():
            before = await read_schema_version(connection)
            check_schema_is_known(before)
            if before == 0:
                _check_encoding(connection.get_settings().server_encoding)
                await connection.execute(
                    "CREATE SCHEMA IF NOT EXISTS shoal;"
                    "CREATE TABLE shoal.schema_version (version int NOT NULL);"
                    "INSERT INTO shoal.schema_version VALUES (0)"
                )
            for migration in MIGRATIONS[before:]:
                await connection.execute(migration)
            await connection.execute("UPDATE shoal.schema_version SET version = $1", SCHEMA_VERSION)
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", _MIGRATION_LOCK)
    return before, SCHEMA_VERSION


def check_schema_is_known(version: int) -> None:
    if version > SCHEMA_VERSION:
        raise SettingsError(
            f"The tables of this store are at version {version}, but this version of Shoal supports only "
            f"versions up to "
            f"{SCHEMA_VERSION}. Update Shoal on this machine."
        )


def _check_encoding(encoding: str) -> None:
    if encoding not in _ENCODINGS:
        raise SettingsError(
            f"The encoding of the database is {encoding}, which cannot store all names and titles. Create "
            "another one: createdb --encoding UTF8 --template template0 NAME"
        )
