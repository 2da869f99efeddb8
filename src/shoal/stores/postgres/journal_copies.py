"""Copies of the journals of a store in PostgreSQL, for commands that show runs from their journals.

Offsets in the store are those of a file, so a copy grows by what was added since the last time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId
from shoal.stores.files.home.home_paths import get_journal_path, make_private_directory
from shoal.stores.files.locks.pid_locks import SessionLock
from shoal.stores.postgres.schema import read_schema_version
from shoal.stores.postgres.store_admin import run_on_connection

_BATCH = 1_000
_SESSIONS = """
    SELECT id, journal_size, EXISTS (SELECT FROM shoal.holders WHERE epoch = lock_holder
        AND expires_at > clock_timestamp()) AS is_live
    FROM shoal.sessions WHERE starts_with(id, $1) AND journal_size > 0
"""
_LINES = """
    SELECT position, line FROM shoal.journal_lines WHERE session = $1 AND position >= $2
    ORDER BY position LIMIT $3
"""


class _StoredSession(Struct, frozen=True, kw_only=True):
    id: SessionId
    journal_size: int
    is_live: bool


class JournalCopies:
    """Context manager. While it is open, runs that are live in the store count as live here as well."""

    def __init__(self, address: str, home: Path, *, session: str = "") -> None:
        """Copy the sessions whose id starts with `session`."""
        name = hashlib.sha256(address.encode()).hexdigest()[:16]
        self._address = address
        self._session = session
        self.home = home / "shoal" / "database" / name
        """Home that contains the copies, and nothing else of the runs."""
        self._locks: dict[SessionId, SessionLock] = {}

    def __enter__(self) -> JournalCopies:
        self.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()

    def refresh(self) -> None:
        """Copy what is new. Raises `StateFileError` if the store cannot be read."""
        make_private_directory(self.home)
        with (self.home / "copy.lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for session in run_on_connection(self._address, self._copy_sessions):
                self._set_live(session.id, is_live=session.is_live)

    async def _copy_sessions(self, raw: Any) -> list[_StoredSession]:
        if not await read_schema_version(raw):
            return []
        sessions = [
            _StoredSession(id=SessionId(row[0]), journal_size=row[1], is_live=row[2])
            for row in await raw.fetch(_SESSIONS, self._session)
        ]
        for session in sessions:
            await self._copy_journal(raw, session)
        return sessions

    async def _copy_journal(self, raw: Any, session: _StoredSession) -> None:
        path = get_journal_path(self.home, session.id)
        make_private_directory(path.parent)
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size > session.journal_size:
                # Another session has the same id now.
                size = file.truncate(0)
            while rows := await raw.fetch(_LINES, session.id, size, _BATCH):
                if rows[0][0] != size:
                    if not size:
                        return  # the journal is damaged; `shoal store check` reports it
                    size = file.truncate(0)
                    continue
                for position, line in rows:
                    file.seek(position)
                    file.write(line)
                    size = position + len(line)

    def _set_live(self, session: SessionId, *, is_live: bool) -> None:
        if is_live and session not in self._locks:
            with suppress(StateFileError):  # another reader of the copies has it
                self._locks[session] = SessionLock(self.home, session)
        elif not is_live and (lock := self._locks.pop(session, None)) is not None:
            lock.release()
