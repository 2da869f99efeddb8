"""Copies of journals and transcripts of a store in PostgreSQL, for commands that show runs from files.

Offsets in the store are those of a file, so a copy grows by what was added since the last time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.ids import LEAD_ID, AgentId, SessionId
from shoal.stores.files.home.home_paths import (
    check_safe_file_name,
    get_journal_path,
    get_subagent_transcript_path,
    get_subagent_transcripts_directory,
    make_private_directory,
)
from shoal.stores.postgres.database_text import to_database_text
from shoal.stores.postgres.database_worker import get_host_identity, is_process_alive
from shoal.stores.postgres.schema import read_schema_version
from shoal.stores.postgres.store_admin import run_on_connection
from shoal.wire.journal_codec import parse_journal_line

_BATCH = 1_000
_HOLDER_SECONDS = 0.5
"""Seconds for which it stays known who works on the runs, unless somebody keeps the copies current."""
_SESSIONS = """
    SELECT id, journal_size, host, process,
        (SELECT array_agg(questions.id ORDER BY number) FROM shoal.questions
         WHERE session = sessions.id AND answer IS NULL)
    FROM shoal.sessions LEFT JOIN shoal.holders ON epoch = lock_holder AND expires_at > clock_timestamp()
    WHERE starts_with(sessions.id, $1) AND journal_size > 0
"""
_JOURNAL_LINES = """
    SELECT position, line FROM shoal.journal_lines WHERE session = $1 AND position >= $2
    ORDER BY position LIMIT $3
"""
_COPIED_LINES = """
    SELECT count(*), coalesce(max(line_end), 0)::bigint FROM (
        SELECT sum(length(line)) OVER (ORDER BY number) AS line_end
        FROM shoal.transcript_lines WHERE session = $1 AND agent = $2) AS lines
    WHERE line_end <= $3
"""
_TRANSCRIPT_LINES = """
    SELECT line FROM shoal.transcript_lines WHERE session = $1 AND agent = $2 AND number >= $3
    ORDER BY number LIMIT $4
"""


class RunHolder(Struct, frozen=True, kw_only=True):
    """Process that works on a run."""

    host: str
    pid: int
    is_local: bool
    """True if it is on this machine, so that its id is valid here."""


class _StoredRun(Struct, frozen=True, kw_only=True):
    id: SessionId
    journal_size: int
    holder: RunHolder | None
    open_questions: tuple[str, ...]


class _CopiedTranscript(Struct, frozen=True, kw_only=True):
    session: SessionId
    agent: AgentId
    size: int = -1
    """Size of the copy when it was last written; less than 0 if that is unknown."""
    lines: int = 0


class RunCopies:
    def __init__(self, address: str, home: Path, *, session: str = "") -> None:
        """Copy the runs whose session starts with `session`."""
        name = hashlib.sha256(address.encode()).hexdigest()[:16]
        self._address = address
        self._session = session
        self.home = home / "shoal" / "database" / name
        """Home that contains the copies, and nothing else of the runs."""
        self.is_kept_current = False
        """True while somebody calls `refresh` once a second."""
        self.change_listeners: list[Callable[[set[str]], None]] = []
        """Called in any thread with the runs that started, ended, asked or were answered."""
        self._runs: dict[SessionId, _StoredRun] = {}
        self._read_at = -_HOLDER_SECONDS
        self._transcripts: dict[Path, _CopiedTranscript] = {}

    def refresh(self) -> None:
        """Copy what is new. Raises `StateFileError` if the store cannot be read."""
        with self._lock_copies():
            self._set_runs(run_on_connection(self._address, self._copy_journals))

    def find_holder(self, session: SessionId) -> RunHolder | None:
        """Return the process that works on the run; None if there is none."""
        if not self.is_kept_current and time.monotonic() - self._read_at > _HOLDER_SECONDS:
            self._set_runs(run_on_connection(self._address, self._read_runs))
        found = self._runs.get(session)
        return None if found is None else found.holder

    def copy_transcript(self, session: SessionId, agent: AgentId) -> Path:
        """Copy what is new in a transcript, and return the copy; it may be empty."""
        path = self.home / "projects" / "copies" / f"{check_safe_file_name(session, self.home)}.jsonl"
        if agent != LEAD_ID:
            path = get_subagent_transcript_path(get_subagent_transcripts_directory(path), agent)

        async def copy(raw: Any) -> None:
            if await read_schema_version(raw):
                known = self._transcripts.get(path) or _CopiedTranscript(session=session, agent=agent)
                self._transcripts[path] = await _copy_transcript_lines(raw, path, known)

        with self._lock_copies():
            run_on_connection(self._address, copy)
        return path

    @contextmanager
    def _lock_copies(self) -> Iterator[None]:
        make_private_directory(self.home)
        with (self.home / "copy.lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    async def _copy_journals(self, raw: Any) -> list[_StoredRun]:
        runs = await self._read_runs(raw)
        for run in runs:
            path = get_journal_path(self.home, run.id)
            last_line = await _copy_journal_lines(raw, path, run, partial(self._copy_transcripts, raw, run))
            with suppress(ValueError, OSError):  # lists of runs are sorted by the time of the last event
                at = parse_journal_line(last_line)[0] / 1000
                os.utime(path, (at, at))
        return runs

    async def _copy_transcripts(self, raw: Any, run: _StoredRun) -> None:
        """Copy what is new in the transcripts that were copied before."""
        for path, known in self._transcripts.items():
            if known.session == run.id:
                self._transcripts[path] = await _copy_transcript_lines(raw, path, known)

    async def _read_runs(self, raw: Any) -> list[_StoredRun]:
        if not await read_schema_version(raw):
            return []
        return [
            _StoredRun(
                id=SessionId(row[0]),
                journal_size=row[1],
                holder=_build_holder(row[2], row[3]),
                open_questions=tuple(row[4] or ()),
            )
            for row in await raw.fetch(_SESSIONS, to_database_text(self._session))
        ]

    def _set_runs(self, runs: Iterable[_StoredRun]) -> None:
        before, self._runs = self._runs, {run.id: run for run in runs}
        self._read_at = time.monotonic()
        changed: set[str] = set()
        for run in self._runs.values():
            old = before.get(run.id)
            if old is None or (old.holder, old.open_questions) != (run.holder, run.open_questions):
                changed.add(run.id)
        for listener in self.change_listeners if changed else ():
            listener(changed)


def _build_holder(host: str | None, process: str | None) -> RunHolder | None:
    if host is None or process is None:
        return None
    is_local = host == get_host_identity()
    if is_local and not is_process_alive(process):
        return None  # its lease has not ended yet
    return RunHolder(host=host.partition(" ")[0], pid=int(process.partition(" ")[0]), is_local=is_local)


async def _copy_journal_lines(
    raw: Any, path: Path, run: _StoredRun, copy_transcripts: Callable[[], Awaitable[None]]
) -> bytes:
    """Append the lines that the copy does not have, and return the last one.

    An entry is written before the events that mention it, so transcripts are copied after the events were
    read and before they are written.
    """
    last_line = b""
    with _open_copy(path) as file:
        end = file.seek(0, os.SEEK_END)
        if end > run.journal_size:
            # Another session has the same id now.
            end = file.truncate(0)
        while rows := await raw.fetch(_JOURNAL_LINES, run.id, end, _BATCH):
            if rows[0][0] != end:
                if not end:
                    break  # the journal is damaged; `shoal store check` reports it
                end = file.truncate(0)
                continue
            await copy_transcripts()
            for position, line in rows:
                file.seek(position)
                file.write(line)
                end, last_line = position + len(line), line
    return last_line


async def _copy_transcript_lines(raw: Any, path: Path, known: _CopiedTranscript) -> _CopiedTranscript:
    """Append the lines that the copy does not have."""
    agent = to_database_text(known.agent)
    with _open_copy(path) as file:
        size = file.seek(0, os.SEEK_END)
        if known.size != size:
            lines, size = await raw.fetchrow(_COPIED_LINES, known.session, agent, size)
            file.seek(file.truncate(size))  # drop a line that was only partly written
            known = replace(known, size=size, lines=lines)
        while rows := await raw.fetch(_TRANSCRIPT_LINES, known.session, agent, known.lines, _BATCH):
            content = b"".join(row[0] for row in rows)
            file.write(content)
            known = replace(known, size=known.size + len(content), lines=known.lines + len(rows))
    return known


def _open_copy(path: Path) -> IO[bytes]:
    make_private_directory(path.parent)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b")
