"""State of one session in the database: lock, transcripts, metadata, journal, results and questions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from shoal.core.agents.subagent_metadata import SubagentMetadata
from shoal.core.clock import Clock
from shoal.core.conversation.restored_conversation import RestoredConversation
from shoal.core.conversation.transcript_entries import TranscriptEntry
from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.events import JournaledEvent, JournalRecord
from shoal.core.ids import LEAD_ID, AgentId, SessionId
from shoal.core.permissions.questions import Answer, Question
from shoal.core.session_locks import describe_used_session
from shoal.core.text.redaction import SecretRedactor
from shoal.stores.files.home.home_paths import (
    create_file_atomically,
    make_private_directory,
    to_safe_file_name,
)
from shoal.stores.journal_records import S, parse_journal_records, replay_records
from shoal.stores.postgres.database_client import DatabaseClient
from shoal.stores.postgres.database_text import to_database_key, to_database_text
from shoal.stores.postgres.database_worker import DatabaseWorker, build_channel, get_host_identity
from shoal.stores.postgres.line_writer import EntryLine, EventLine, TranscriptEnd
from shoal.stores.postgres.postgres_hints import PostgresWatch
from shoal.stores.postgres.postgres_work import PostgresWork
from shoal.stores.restored_conversation import restore_agent_transcript
from shoal.stores.stored_questions import StoredQuestions
from shoal.wire.journal_codec import encode_journal_line, parse_journal_line
from shoal.wire.json_codec import encode_json
from shoal.wire.question_codec import (
    encode_answer,
    encode_question,
    is_matching_answer_type,
    parse_answer,
    parse_question,
)
from shoal.wire.subagent_metadata_codec import encode_subagent_metadata, parse_subagent_metadata
from shoal.wire.transcript_codec import TranscriptEncoder

T = TypeVar("T")
_READ_BATCH = 2_000
_SEARCHED_EVENTS = 5_000
"""Number of events, the newest ones, in which the time of a question is looked up."""
_LOCK_CHECK_SECONDS = 0.2


class _LockHolder(NamedTuple):
    host: str
    process: str
    renewed_at: datetime
    is_late: bool
    """True if it did not renew its lease in time, so that it may be dead."""

    @property
    def is_local(self) -> bool:
        """True if it is on this machine, which ends the leases of its own dead processes."""
        return self.host == get_host_identity()

    @property
    def description(self) -> str:
        return f"process {self.process.partition(' ')[0]} on {self.host.partition(' ')[0]}"


class PostgresSessionStore:
    def __init__(self, client: DatabaseClient, session: SessionId, directory: Path) -> None:
        self.session = session
        self.directory = directory
        self.client = client

    def report_damaged_files(self, *, now: int | None) -> tuple[str, ...]:
        return ()

    def acquire_lock(self) -> None:
        """Become the only writer; wait for the end of the lease of a holder that may be dead.

        A process on another machine is known to be alive only once it renews its lease.
        """
        first: _LockHolder | None = None
        while (holder := self._try_lock()) is not None:
            has_renewed = first is not None and holder.renewed_at != first.renewed_at
            if not holder.is_late and (holder.is_local or has_renewed):
                raise StateFileError(
                    describe_used_session(self.session, holder.description), path=self.directory
                )
            first = first or holder
            time.sleep(_LOCK_CHECK_SECONDS)
        make_private_directory(self.directory)
        self._restore_results()

    def _try_lock(self) -> _LockHolder | None:
        """Take the lock and return None; otherwise return its holder."""

        async def lock(worker: DatabaseWorker) -> _LockHolder | None:
            await worker.end_dead_local_holders()
            await worker.end_expired_holders()

            async def take_lock(raw: Any) -> _LockHolder | None:
                holder = await raw.fetchrow(
                    "SELECT host, process, renewed_at, "
                    "renewed_at < clock_timestamp() - $2 * interval '1 second' "
                    "FROM shoal.sessions JOIN shoal.holders ON epoch = lock_holder WHERE id = $1 "
                    "FOR UPDATE OF sessions",
                    self.session,
                    worker.timing.lease / 2,
                )
                if holder is not None:
                    return _LockHolder(*holder)
                await raw.execute(
                    "UPDATE shoal.sessions SET lock_holder = $2 WHERE id = $1", self.session, worker.epoch
                )
                return None

            return await worker.transact(take_lock)

        return self.client.run(lock)

    def release_lock(self, *, unused: bool = False) -> None:
        if unused:
            with suppress(OSError):
                self.directory.rmdir()
        if not self.client.is_usable:
            return  # the lock ended with the lease

        async def release(worker: DatabaseWorker) -> None:
            async def unlock(raw: Any) -> None:
                had_lock = await raw.fetchval(
                    "UPDATE shoal.sessions SET lock_holder = NULL WHERE id = $1 AND lock_holder = $2 "
                    "RETURNING true",
                    self.session,
                    worker.epoch,
                )
                if unused and had_lock:  # a teammate opens the session without the lock
                    await raw.execute(
                        "DELETE FROM shoal.sessions WHERE id = $1 AND NOT EXISTS (SELECT FROM "
                        "shoal.transcript_lines WHERE session = $1 AND agent = $2)",
                        self.session,
                        LEAD_ID,
                    )

            await worker.transact(unlock)

        self.client.run(release)

    # --- transcripts

    def open_transcript(
        self, agent: AgentId, *, cwd: str, version: str, title: str = ""
    ) -> PostgresTranscript:
        encoder = TranscriptEncoder(
            session=self.session,
            cwd=cwd,
            version=version,
            agent=None if agent == LEAD_ID else agent,
            title=title,
        )
        return PostgresTranscript(self, agent, encoder, title)

    def has_transcript(self, agent: AgentId) -> bool:
        return bool(
            self.fetch_value(
                "SELECT EXISTS (SELECT FROM shoal.transcript_lines WHERE session = $1 AND agent = $2)",
                self.session,
                to_database_text(agent),
            )
        )

    def read_transcript(self, agent: AgentId) -> bytes:
        async def read(raw: Any) -> list[Any]:
            return list(
                await raw.fetch(
                    "SELECT line FROM shoal.transcript_lines WHERE session = $1 AND agent = $2 "
                    "ORDER BY number",
                    self.session,
                    to_database_text(agent),
                )
            )

        rows = self.client.run(lambda worker: worker.execute(read))
        if not rows:
            raise SessionNotFound(
                f"There is no transcript for {agent} in the session {self.session}.", path=self.directory
            )
        return b"".join(row[0] for row in rows)

    def restore_conversation(self, agent: AgentId) -> RestoredConversation:
        return restore_agent_transcript(self.read_transcript(agent), agent)

    def get_transcript_path(self, agent: AgentId) -> None:
        return None

    # --- metadata

    def save_agent_metadata(self, agent: AgentId, metadata: SubagentMetadata) -> None:
        self.write_document(agent, encode_subagent_metadata(metadata))

    def save_agent_mode(self, agent: AgentId, mode: str) -> None:
        document = self._read_metadata_document(agent)
        if document is None:
            raise SessionNotFound(
                f"There is no metadata for agent {agent} in the session {self.session}.", path=self.directory
            )
        self._parse_metadata(agent, document)
        # The raw content: unknown fields of other programs stay.
        self.write_document(agent, msgspec.json.encode({**msgspec.json.decode(document), "mode": mode}))

    def read_agent_metadata(self, agent: AgentId) -> SubagentMetadata | None:
        document = self._read_metadata_document(agent)
        return None if document is None else self._parse_metadata(agent, document)

    def _read_metadata_document(self, agent: AgentId) -> bytes | None:
        document: bytes | None = self.fetch_value(
            "SELECT document FROM shoal.agent_metadata WHERE session = $1 AND agent = $2",
            self.session,
            to_database_text(agent),
        )
        return document

    def _parse_metadata(self, agent: AgentId, document: bytes) -> SubagentMetadata:
        try:
            return parse_subagent_metadata(document)
        except (ValueError, RecursionError) as error:
            # It holds the restrictions of the agent: as a general-purpose agent it could do more.
            raise StateFileError(
                f"The metadata of agent {agent} in the session {self.session} is not valid: {error}.",
                path=self.directory,
            ) from error

    def write_document(self, agent: AgentId, document: bytes) -> None:
        async def write(raw: Any) -> None:
            await raw.execute(
                "INSERT INTO shoal.agent_metadata VALUES ($1, $2, $3) "
                "ON CONFLICT (session, agent) DO UPDATE SET document = excluded.document",
                self.session,
                to_database_text(agent),
                document,
            )

        self.client.run(lambda worker: worker.transact(write))

    # --- journal, results, questions

    def open_journal(self, clock: Clock, *, secrets: SecretRedactor) -> PostgresJournal:
        return PostgresJournal(self, clock, secrets)

    def open_results(self) -> PostgresResultStore:
        return PostgresResultStore(self)

    def open_questions(self) -> PostgresQuestions:
        return PostgresQuestions(self)

    def open_work(self) -> PostgresWork:
        return PostgresWork(self.client, self.session)

    def _restore_results(self) -> None:
        """Write the results that agents read as files, if this machine does not have them."""
        results = self.directory / "results"

        async def list_names(raw: Any) -> list[str]:
            return [
                row[0]
                for row in await raw.fetch("SELECT name FROM shoal.results WHERE session = $1", self.session)
            ]

        for name in self.client.run(lambda worker: worker.execute(list_names)):
            path = results / to_safe_file_name(name)
            if not path.exists():
                content = self.fetch_value(
                    "SELECT content FROM shoal.results WHERE session = $1 AND name = $2", self.session, name
                )
                create_file_atomically(path, content or b"")

    def fetch_value(self, query: str, *arguments: object) -> Any:
        async def fetch(raw: Any) -> Any:
            return await raw.fetchval(query, *arguments)

        return self.client.run(lambda worker: worker.execute(fetch))


class PostgresTranscript:
    def __init__(
        self, store: PostgresSessionStore, agent: AgentId, encoder: TranscriptEncoder, title: str
    ) -> None:
        self._store = store
        self._encoder = encoder
        self._end = TranscriptEnd(store.session, agent, title)

    def append(self, entry: TranscriptEntry) -> None:
        line = EntryLine(self._store.session, self._encoder.encode_entry(entry), self._end)
        self._store.client.append_lines((line,))

    def set_title(self, title: str) -> None:
        self._encoder.set_title(title)
        self._end.set_title(title)

    def close(self) -> None: ...


class PostgresJournal:
    """Journal with the same offsets as the file that it replaces."""

    def __init__(self, store: PostgresSessionStore, clock: Clock, secrets: SecretRedactor) -> None:
        self._store = store
        self._clock = clock
        self._secrets = secrets
        self._position: int | None = None

    def append(self, event: JournaledEvent) -> None:
        self.append_all((event,))

    def append_all(self, events: Sequence[JournaledEvent]) -> None:
        lines = [
            EventLine(
                self._store.session,
                encode_journal_line(event, self._clock.now(), self._secrets),
                int.from_bytes(os.urandom(8), signed=True),
                self._store.directory,
            )
            for event in events
        ]
        if lines:
            position = self._store.client.append_lines(lines)
            self._position = position + len(lines[-1].line)

    def read_records(self, offset: int = 0) -> Iterator[JournalRecord]:
        while rows := self._read_lines(offset):
            chunks = (row[1] for row in rows)
            yield from parse_journal_records(chunks, rows[0][0])
            offset = rows[-1][0] + len(rows[-1][1])

    def replay(
        self,
        kind: type[S],
        settle: Callable[[S], None] | None = None,
        *,
        report_problem: Callable[[str], None] = lambda _: None,
    ) -> S:
        return replay_records(kind, self.read_records())

    def _read_lines(self, offset: int) -> list[Any]:
        async def read(raw: Any) -> list[Any]:
            return list(
                await raw.fetch(
                    "SELECT position, line FROM shoal.journal_lines WHERE session = $1 AND position >= $2 "
                    "ORDER BY position LIMIT $3",
                    self._store.session,
                    offset,
                    _READ_BATCH,
                )
            )

        return self._store.client.run(lambda worker: worker.execute(read))

    def get_position(self) -> int:
        if self._position is None:
            self._position = (
                self._store.fetch_value(
                    "SELECT journal_size FROM shoal.sessions WHERE id = $1", self._store.session
                )
                or 0
            )
        return self._position

    def add_growth_listener(self, listener: Callable[[int], None]) -> None: ...

    def close(self) -> None: ...


class PostgresResultStore:
    """Results in the database, and as files on this machine, which agents read with their file tools."""

    def __init__(self, store: PostgresSessionStore) -> None:
        self._store = store

    def save_result(self, name: str, content: bytes) -> Path:
        safe_path = Path(to_safe_file_name(name))
        write_id = int.from_bytes(os.urandom(8), signed=True)
        for number in count(1):
            file_name = safe_path.name if number == 1 else f"{safe_path.stem}-{number}{safe_path.suffix}"
            if self._insert(file_name, write_id, content):
                path = self._store.directory / "results" / file_name
                create_file_atomically(path, content)
                return path
        raise AssertionError("count() does not end")

    def _insert(self, name: str, write_id: int, content: bytes) -> bool:
        async def insert(raw: Any) -> bool:
            return bool(
                await raw.fetchval(
                    "INSERT INTO shoal.results VALUES ($1, $2, $3, $4) ON CONFLICT (session, name) "
                    "DO NOTHING RETURNING true",
                    self._store.session,
                    name,
                    write_id,
                    content,
                )
            )

        return self._store.client.run(lambda worker: worker.transact(insert))


class PostgresQuestions(StoredQuestions):
    def __init__(self, store: PostgresSessionStore) -> None:
        self.directory = store.directory / "questions"
        self._store = store
        self._channel = build_channel("answers", store.session)

    def store_question(self, question: Question) -> None:
        async def store(raw: Any) -> None:
            # An earlier answer under this id belonged to another call.
            await raw.execute(
                "DELETE FROM shoal.questions WHERE session = $1 AND id = $2", self._session, _id(question.id)
            )
            await raw.execute(
                "INSERT INTO shoal.questions (session, id, question) VALUES ($1, $2, $3)",
                self._session,
                _id(question.id),
                encode_question(question),
            )

        self._store.client.run(lambda worker: worker.transact(store))

    def get(self, question_id: str) -> Question | None:
        document = self._read_column("question", question_id)
        return None if document is None else parse_question(document)

    def create_answer(self, question_id: str, answer: Answer) -> bool:
        return self._create("answer", question_id, answer)

    def create_late_answer(self, question_id: str, answer: Answer) -> bool:
        return self._create("late_answer", question_id, answer)

    def read_answer(self, question: Question) -> Answer | None:
        document = self._read_column("answer", question.id)
        answer = None if document is None else parse_answer(document)
        return answer if answer is not None and is_matching_answer_type(answer, question) else None

    def read_late_answer(self, question_id: str) -> Answer | None:
        document = self._read_column("late_answer", question_id)
        return None if document is None else parse_answer(document)

    def list_open_questions(self) -> tuple[Question, ...]:
        async def read(raw: Any) -> list[Any]:
            return list(
                await raw.fetch(
                    "SELECT question FROM shoal.questions WHERE session = $1 AND answer IS NULL "
                    "ORDER BY number",
                    self._session,
                )
            )

        rows = self._store.client.run(lambda worker: worker.execute(read))
        return tuple(parse_question(row[0]) for row in rows)

    def find_questions(self, start: str) -> tuple[Question, ...]:
        async def read(raw: Any) -> list[Any]:
            return list(
                await raw.fetch(
                    "SELECT question FROM shoal.questions WHERE session = $1 AND starts_with(id, $2) "
                    "ORDER BY id",
                    self._session,
                    _id(start),
                )
            )

        rows = self._store.client.run(lambda worker: worker.execute(read))
        return tuple(parse_question(row[0]) for row in rows)

    def get_asked_time(self, question: Question) -> int | None:
        """Return the time of its event in the newest part of the journal; None if it is not there."""

        async def read(raw: Any) -> bytes | None:
            line: bytes | None = await raw.fetchval(
                "SELECT line FROM (SELECT position, line FROM shoal.journal_lines WHERE session = $1 "
                "ORDER BY position DESC LIMIT $3) AS newest "
                "WHERE position($2::bytea IN line) > 0 ORDER BY position LIMIT 1",
                self._session,
                b'"id":' + encode_json(question.id),
                _SEARCHED_EVENTS,
            )
            return line

        line = self._store.client.run(lambda worker: worker.execute(read))
        return None if line is None else parse_journal_line(line)[0]

    def watch_answers(self, on_change: Callable[[], None]) -> PostgresWatch:
        watch = PostgresWatch(self._store.client, self._channel, on_change)
        watch.start_and_wait()
        return watch

    @property
    def _session(self) -> SessionId:
        return self._store.session

    def _read_column(self, column: str, question_id: str) -> bytes | None:
        document: bytes | None = self._store.fetch_value(
            f"SELECT {column} FROM shoal.questions WHERE session = $1 AND id = $2",
            self._session,
            _id(question_id),
        )
        return document

    def _create(self, column: str, question_id: str, answer: Answer) -> bool:
        async def create(raw: Any) -> bool:
            return bool(
                await raw.fetchval(
                    f"UPDATE shoal.questions SET {column} = $3 WHERE session = $1 AND id = $2 "
                    f"AND {column} IS NULL RETURNING true",
                    self._session,
                    _id(question_id),
                    encode_answer(answer),
                )
            )

        async def create_and_notify(worker: DatabaseWorker) -> bool:
            is_first = await worker.transact(create)
            if is_first:
                worker.notify(self._channel)
            return is_first

        return self._store.client.run(create_and_notify)


def _id(question_id: str) -> str:
    # It may be an id that a model's server chose.
    return to_database_key(question_id)
