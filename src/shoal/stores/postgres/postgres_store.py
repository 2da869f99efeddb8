"""Store in a PostgreSQL database, shared by processes on any number of machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.clock import Clock
from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.ids import LEAD_ID, IdGenerator, SessionId
from shoal.core.names import TeamName
from shoal.core.store import SessionStore, Store
from shoal.core.teams.mail_signatures import KEY_SIZE
from shoal.stores.files.home.home_paths import check_safe_file_name, get_run_directory
from shoal.stores.postgres.database_client import DatabaseClient
from shoal.stores.postgres.database_text import to_database_text
from shoal.stores.postgres.postgres_sessions import PostgresSessionStore
from shoal.stores.restored_conversation import rewrite_transcript_session

if TYPE_CHECKING:
    from shoal.stores.postgres.postgres_board import PostgresTaskBoard
    from shoal.stores.postgres.postgres_mailboxes import PostgresMailboxes
    from shoal.stores.postgres.postgres_rosters import PostgresRosters

_HAS_LEAD = f"EXISTS (SELECT FROM shoal.transcript_lines WHERE session = id AND agent = '{LEAD_ID}')"
_LAST_USED = (
    f"(SELECT at FROM shoal.transcript_lines WHERE session = id AND agent = '{LEAD_ID}' "
    "ORDER BY number DESC LIMIT 1)"
)


class PostgresStore:
    """`home` contains the working files of the runs on this machine."""

    def __init__(self, client: DatabaseClient, home: Path) -> None:
        self.client = client
        self.home = home

    @property
    def url(self) -> str:
        return self.client.address

    def close(self) -> None:
        """End the lease of this process. Without it, the lease ends with the process."""
        self.client.close()

    async def end_lease(self, epoch: int) -> None:
        """End the lease of another process: it can write nothing from then on, and its tasks are free."""
        await self.client.call(lambda worker: worker.end_holder(epoch))

    def create_session(self, session: SessionId, *, cwd: str) -> PostgresSessionStore:
        check_safe_file_name(session, self.home)

        async def create(raw: Any) -> bool:
            if await raw.fetchval(f"SELECT {_HAS_LEAD} FROM (SELECT $1::text AS id) AS wanted", session):
                return False
            await raw.execute(
                "INSERT INTO shoal.sessions (id, cwd) VALUES ($1, $2) "
                "ON CONFLICT (id) DO UPDATE SET cwd = excluded.cwd",
                session,
                to_database_text(cwd),
            )
            return True

        if not self.client.run(lambda worker: worker.transact(create)):
            raise StateFileError(
                f"The session {session} already exists. Resume it: shoal --resume {session}", path=self.home
            )
        return self._open_session(session)

    def find_session(self, name: str) -> PostgresSessionStore:
        text = to_database_text(name)

        async def find(raw: Any) -> list[Any]:
            return list(
                await raw.fetch(
                    f"SELECT id, starts_with(id, $1) FROM shoal.sessions WHERE {_HAS_LEAD} "
                    f"AND (starts_with(id, $1) OR title = $1) ORDER BY {_LAST_USED} DESC",
                    text,
                )
            )

        rows = self.client.run(lambda worker: worker.execute(find)) if text else []
        matches = [row[0] for row in rows if row[1]]
        if name in matches or len(matches) == 1:
            return self._open_session(SessionId(name if name in matches else matches[0]))
        if rows and not matches:
            return self._open_session(SessionId(rows[0][0]))
        problem = (
            f"{len(matches)} sessions start with {name!r}. Type more characters of the id."
            if matches
            else f"There is no session {name!r} in the store {self.client.shown_address}."
        )
        raise SessionNotFound(problem, path=self.home)

    def find_latest_session(self, cwd: str) -> PostgresSessionStore:
        async def find(raw: Any) -> str | None:
            session: str | None = await raw.fetchval(
                f"SELECT id FROM shoal.sessions WHERE cwd = $1 AND {_HAS_LEAD} "
                f"ORDER BY {_LAST_USED} DESC LIMIT 1",
                to_database_text(cwd),
            )
            return session

        session = self.client.run(lambda worker: worker.execute(find))
        if session is None:
            raise SessionNotFound(
                f"There is no session to continue in {cwd} in the store {self.client.shown_address}.",
                path=Path(cwd),
            )
        return self._open_session(SessionId(session))

    def fork_session(self, source: SessionStore, session: SessionId, *, cwd: str) -> PostgresSessionStore:
        content = rewrite_transcript_session(source.read_transcript(LEAD_ID), session)
        fork = self.create_session(session, cwd=cwd)

        async def insert(raw: Any) -> None:
            await insert_transcript(raw, session, LEAD_ID, content)

        self.client.run(lambda worker: worker.transact(insert))
        return fork

    def _open_session(self, session: SessionId) -> PostgresSessionStore:
        return PostgresSessionStore(self.client, session, get_run_directory(self.home, session))

    def open_rosters(self, *, clock: Clock, report: Callable[[str], None]) -> PostgresRosters:
        from shoal.stores.postgres.postgres_rosters import PostgresRosters

        return PostgresRosters(self.client, clock)

    def open_board(
        self, name: str, *, clock: Clock, ids: IdGenerator, report: Callable[[str], None]
    ) -> PostgresTaskBoard:
        from shoal.stores.postgres.postgres_board import PostgresTaskBoard

        return PostgresTaskBoard(self.client, name, ids)

    def open_mailboxes(
        self, team: TeamName, *, clock: Clock, ids: IdGenerator, report: Callable[[str], None]
    ) -> PostgresMailboxes:
        from shoal.stores.postgres.postgres_mailboxes import PostgresMailboxes

        return PostgresMailboxes(self.client, team)

    def load_signing_key(self, team: TeamName, *, report: Callable[[str], None] = lambda _: None) -> bytes:
        async def load(raw: Any) -> bytes:
            from os import urandom

            await raw.execute(
                "INSERT INTO shoal.team_keys VALUES ($1, $2) ON CONFLICT DO NOTHING", team, urandom(KEY_SIZE)
            )
            key: bytes = await raw.fetchval("SELECT key FROM shoal.team_keys WHERE team = $1", team)
            return key

        return self.client.run(lambda worker: worker.transact(load))


async def insert_transcript(raw: Any, session: str, agent: str, content: bytes) -> None:
    """Insert the lines of a whole transcript; a last line without an end stays as it is."""
    lines = content.splitlines(keepends=True)
    await raw.executemany(
        "INSERT INTO shoal.transcript_lines (session, agent, number, line) VALUES ($1, $2, $3, $4)",
        [(session, agent, number, line) for number, line in enumerate(lines)],
    )


_CONFORMS: Callable[[DatabaseClient, Path], Store] = PostgresStore
"""For the type checker: a missing member of the port is an error here."""
