"""Store in a PostgreSQL database, shared by processes on any number of machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.clock import Clock
from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.ids import LEAD_ID, IdGenerator, SessionId
from shoal.core.names import TeamName
from shoal.core.store import SessionListEntry, SessionQuestions, SessionStore, Store
from shoal.core.teams.mail_signatures import KEY_SIZE
from shoal.stores.files.home.home_paths import check_safe_file_name, get_run_directory
from shoal.stores.files.sessions.session_files import find_first_prompt_or_title
from shoal.stores.postgres.database_client import DatabaseClient
from shoal.stores.postgres.database_text import to_database_text
from shoal.stores.postgres.postgres_sessions import PostgresQuestions, PostgresSessionStore
from shoal.stores.restored_conversation import rewrite_transcript_session
from shoal.wire.transcript_codec import parse_transcript_line

if TYPE_CHECKING:
    from shoal.stores.postgres.postgres_board import PostgresTaskBoard
    from shoal.stores.postgres.postgres_mailboxes import PostgresMailboxes
    from shoal.stores.postgres.postgres_rosters import PostgresRosters

_HAS_LEAD = f"EXISTS (SELECT FROM shoal.transcript_lines WHERE session = id AND agent = '{LEAD_ID}')"
_LAST_USED = (
    f"(SELECT at FROM shoal.transcript_lines WHERE session = id AND agent = '{LEAD_ID}' "
    "ORDER BY number DESC LIMIT 1)"
)

_IS_LIVE = "EXISTS (SELECT FROM shoal.holders WHERE epoch = lock_holder AND expires_at > clock_timestamp())"
_PREVIEW_LINES = 20
"""Number of lines of a transcript that are read for a list."""


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

    def read_result(self, session: str, name: str) -> bytes | None:
        async def read(raw: Any) -> bytes | None:
            content: bytes | None = await raw.fetchval(
                "SELECT content FROM shoal.results WHERE session = $1 AND name = $2", session, name
            )
            return content

        return self.client.run(lambda worker: worker.execute(read))

    async def end_lease(self, epoch: int) -> None:
        """End the lease of another process: it can write nothing from then on, and its tasks are free."""
        await self.client.call(lambda worker: worker.end_holder(epoch))

    async def wait_until_available(self) -> None:
        """Return when the server answers. Raises `StateFileError` if that takes too long."""
        await self.client.call(lambda worker: worker.execute(lambda raw: raw.execute("SELECT 1")))

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

    def list_sessions(self, cwd: str | None, *, limit: int | None = None) -> tuple[SessionListEntry, ...]:
        async def read(raw: Any) -> list[tuple[Any, list[bytes]]]:
            rows = await raw.fetch(
                f"SELECT id, title, (extract(epoch FROM {_LAST_USED}) * 1000)::bigint AS used, (SELECT "
                f"sum(length(line)) FROM shoal.transcript_lines WHERE session = id AND agent = '{LEAD_ID}') "
                f"FROM shoal.sessions WHERE ($1::text IS NULL OR cwd = $1) AND {_HAS_LEAD} "
                "ORDER BY used DESC, id LIMIT $2",
                None if cwd is None else to_database_text(cwd),
                limit,
            )
            return [(row, await _fetch_first_lines(raw, row[0])) for row in rows]

        found = self.client.run(lambda worker: worker.execute(read))
        return tuple(
            SessionListEntry(
                session=SessionId(row[0]),
                path=None,
                prompt=row[1] or find_first_prompt_or_title(_parse_entries(lines)),
                at=row[2],
                size=int(row[3]),
            )
            for row, lines in found
        )

    def is_session_live(self, session: SessionId) -> bool:
        async def read(raw: Any) -> bool:
            return bool(await raw.fetchval(f"SELECT {_IS_LIVE} FROM shoal.sessions WHERE id = $1", session))

        return self.client.run(lambda worker: worker.execute(read))

    def open_questions(self, session: SessionId) -> PostgresQuestions:
        return self._open_session(session).open_questions()

    def list_session_questions(self) -> tuple[SessionQuestions, ...]:
        async def read(raw: Any) -> list[Any]:
            return list(
                await raw.fetch(
                    f"SELECT id, {_IS_LIVE} FROM shoal.sessions WHERE EXISTS (SELECT FROM shoal.questions "
                    "WHERE session = sessions.id AND (answer IS NULL OR lock_holder IS NOT NULL)) ORDER BY id"
                )
            )

        rows = self.client.run(lambda worker: worker.execute(read))
        sessions = [(self._open_session(SessionId(row[0])), row[1]) for row in rows]
        return tuple(
            SessionQuestions(
                session=each.session,
                is_live=is_live,
                directory=each.directory,
                questions=each.open_questions(),
            )
            for each, is_live in sessions
        )

    def fork_session(self, source: SessionStore, session: SessionId, *, cwd: str) -> PostgresSessionStore:
        content = rewrite_transcript_session(source.read_transcript(LEAD_ID), session)
        fork = self.create_session(session, cwd=cwd)

        async def insert(raw: Any) -> None:
            await insert_transcript(raw, session, LEAD_ID, content)

        self.client.run(lambda worker: worker.transact(insert))
        return fork

    def open_member_session(self, session: SessionId) -> PostgresSessionStore:
        """Open a session for a teammate; unlike `find_session`, its lead need not have written anything."""

        async def read(raw: Any) -> bool:
            return bool(await raw.fetchval("SELECT true FROM shoal.sessions WHERE id = $1", session))

        if not self.client.run(lambda worker: worker.execute(read)):
            raise SessionNotFound(
                f"There is no session {session!r} in the store {self.client.shown_address}.", path=self.home
            )
        return self._open_session(session)

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


async def _fetch_first_lines(raw: Any, session: str) -> list[bytes]:
    rows = await raw.fetch(
        "SELECT line FROM shoal.transcript_lines WHERE session = $1 AND agent = $2 AND number < $3 "
        "ORDER BY number",
        session,
        LEAD_ID,
        _PREVIEW_LINES,
    )
    return [row[0] for row in rows]


def _parse_entries(lines: list[bytes]) -> Iterator[object]:
    for line in lines:
        with suppress(ValueError):
            yield parse_transcript_line(line).entry


async def insert_transcript(raw: Any, session: str, agent: str, content: bytes) -> None:
    """Insert the lines of a whole transcript."""
    lines = complete_last_line(content).split(b"\n")[:-1]
    await raw.executemany(
        "INSERT INTO shoal.transcript_lines (session, agent, number, line) VALUES ($1, $2, $3, $4)",
        [(session, agent, number, line + b"\n") for number, line in enumerate(lines)],
    )


def complete_last_line(content: bytes) -> bytes:
    """Return content whose last line ends, so that the next line does not become a part of it."""
    return content + b"\n" if content and not content.endswith(b"\n") else content


_CONFORMS: Callable[[DatabaseClient, Path], Store] = PostgresStore
"""For the type checker: a missing member of the port is an error here."""
