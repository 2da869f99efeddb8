"""Work of agents on other machines in the database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId
from shoal.core.store import WorkPart, WorkSummary
from shoal.stores.postgres.database_client import DatabaseClient
from shoal.stores.postgres.database_text import to_database_key
from shoal.wire.work_codec import encode_work_state, parse_work_state

_LAST = "SELECT number, state, bundle FROM shoal.work_parts WHERE session = $1 AND agent = $2"
_SUMMARIES = """
    SELECT DISTINCT ON (agent) agent, state, count(*) OVER parts, first_value(length(bundle)) OVER parts,
        sum(length(bundle)) OVER parts
    FROM shoal.work_parts WHERE session = $1
    WINDOW parts AS (PARTITION BY agent ORDER BY number)
    ORDER BY agent, number DESC
"""


class PostgresWork:
    def __init__(self, client: DatabaseClient, session: SessionId) -> None:
        self._client = client
        self._session = session

    def append_part(self, part: WorkPart) -> None:
        key, state = to_database_key(part.agent), encode_work_state(part)

        async def append(raw: Any) -> None:
            last = await raw.fetchrow(f"{_LAST} ORDER BY number DESC LIMIT 1", self._session, key)
            # The transaction is repeated if the answer to its commit was lost.
            if last is not None and (last[1], last[2]) == (state, part.bundle):
                return
            if part.is_first:
                await raw.execute(
                    "DELETE FROM shoal.work_parts WHERE session = $1 AND agent = $2", self._session, key
                )
            number = 1 if last is None else last[0] + 1
            await insert_work_part(raw, self._session, number, part)

        self._client.run(lambda worker: worker.transact(append))

    def read_parts(self, agent: str) -> tuple[WorkPart, ...]:
        async def read(raw: Any) -> list[Any]:
            return list(await raw.fetch(f"{_LAST} ORDER BY number", self._session, to_database_key(agent)))

        rows = self._client.run(lambda worker: worker.execute(read))
        return tuple(parse_work_row(self._session, agent, state, bundle) for _, state, bundle in rows)

    def list_summaries(self) -> dict[str, WorkSummary]:
        async def read(raw: Any) -> list[Any]:
            return list(await raw.fetch(_SUMMARIES, self._session))

        rows = self._client.run(lambda worker: worker.execute(read))
        summaries = [
            WorkSummary(
                last=parse_work_row(self._session, agent, state),
                parts=parts,
                first_size=first,
                later_size=int(total) - first,
            )
            for agent, state, parts, first, total in rows
        ]
        return {summary.last.agent: summary for summary in summaries}


def parse_work_row(session: SessionId, agent: str, state: bytes, bundle: bytes = b"") -> WorkPart:
    """Raises `StateFileError`."""
    try:
        return parse_work_state(state, bundle)
    except ValueError as error:
        raise StateFileError(
            f"The stored work of {agent} in the session {session} is not valid: {error}. Look for more "
            "damage with shoal store check, and restore the database from a backup.",
            path=Path(),
        ) from error


async def insert_work_part(raw: Any, session: SessionId, number: int, part: WorkPart) -> None:
    await raw.execute(
        "INSERT INTO shoal.work_parts VALUES ($1, $2, $3, $4, $5)",
        session,
        to_database_key(part.agent),
        number,
        encode_work_state(part),
        part.bundle,
    )
