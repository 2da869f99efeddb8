"""Store in memory: the same state that the files would contain, for as long as the store exists."""

from __future__ import annotations

import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import groupby
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import NamedTuple, TypeAlias
from weakref import finalize

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shoal.core.agents.subagent_metadata import SubagentMetadata
from shoal.core.clock import Clock
from shoal.core.conversation.restored_conversation import RestoredConversation
from shoal.core.conversation.transcript_entries import TranscriptEntry, TranscriptMessageEntry
from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.events import JournaledEvent, JournalRecord
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator, SessionId
from shoal.core.keyword_checks import check_keywords
from shoal.core.names import TeamName
from shoal.core.permissions.questions import Answer, Question
from shoal.core.store import (
    SessionListEntry,
    SessionQuestions,
    SessionStore,
    Store,
    WorkPart,
    WorkSummary,
)
from shoal.core.teams.mail_signatures import KEY_SIZE
from shoal.core.text.redaction import SecretRedactor
from shoal.stores.files.sessions.result_files import FileResultStore
from shoal.stores.journal_records import S, parse_journal_records, replay_records
from shoal.stores.memory.memory_teams import (
    MemoryBoardState,
    MemoryMailboxes,
    MemoryRosters,
    MemoryRosterState,
    MemoryTaskBoard,
    MemoryWatch,
)
from shoal.stores.restored_conversation import restore_agent_transcript, rewrite_transcript_session
from shoal.stores.stored_questions import StoredQuestions
from shoal.stores.stored_work import select_current_parts, summarize_work
from shoal.wire.journal_codec import encode_journal_line
from shoal.wire.json_codec import encode_strict_json
from shoal.wire.transcript_codec import TranscriptEncoder


class MemoryStore:
    """Keeps the sessions of this process in memory. Working files are in a temporary directory.

    `max_events` bounds the journal of each session, for sessions that are never resumed. The temporary
    directory is created in `directory`; by default, where `tempfile` creates them.
    """

    url = None

    @check_keywords("shoal.MemoryStore()")
    def __init__(self, *, max_events: int | None = None, directory: str | None = None) -> None:
        self._max_events = max_events
        self._parent_directory = directory
        self._sessions: dict[SessionId, MemorySessionStore] = {}
        self._boards: dict[str, MemoryBoardState] = {}
        self._mailboxes: dict[TeamName, MemoryMailboxes] = {}
        self._keys: dict[TeamName, bytes] = {}
        self._rosters = MemoryRosterState()
        self._remove_directory: finalize[..., MemoryStore] | None = None
        self._directory: Path | None = None

    def close(self) -> None:
        """Remove the working files; otherwise they are removed together with the store."""
        if self._remove_directory is not None:
            self._remove_directory()

    def create_session(self, session: SessionId, *, cwd: str) -> MemorySessionStore:
        created = self._sessions.get(session)
        if created is not None and created.has_transcript(LEAD_ID):
            raise StateFileError(f"The session {session} already exists. Resume it.", path=Path(cwd))
        if self._directory is None:
            self._directory = Path(mkdtemp(prefix="shoal-", dir=self._parent_directory))
            self._remove_directory = finalize(self, rmtree, self._directory, ignore_errors=True)
        if created is None:
            directory = self._directory / session
            directory.mkdir(mode=0o700, parents=True)
            created = MemorySessionStore(
                session, cwd, directory, siblings=self._sessions, max_events=self._max_events
            )
            self._sessions[session] = created
        return created

    def find_session(self, name: str) -> MemorySessionStore:
        used = {each: found for each, found in self._sessions.items() if found.has_transcript(LEAD_ID)}
        matches = [each for each in used if name and each.startswith(name)]
        if name in used or len(matches) == 1:
            return used[SessionId(name) if name in used else matches[0]]
        titled = [each for each in used.values() if name and each.title == name]
        if titled and not matches:
            return max(titled, key=lambda each: each.last_used)
        problem = (
            f"{len(matches)} sessions start with {name!r}. Type more characters of the id."
            if matches
            else f"There is no session {name!r} in this store."
        )
        raise SessionNotFound(problem, path=Path())

    def find_latest_session(self, cwd: str) -> MemorySessionStore:
        used = [each for each in self._sessions.values() if each.cwd == cwd and each.has_transcript(LEAD_ID)]
        if not used:
            raise SessionNotFound(f"There is no session to continue in {cwd}.", path=Path(cwd))
        return max(used, key=lambda each: each.last_used)

    def list_sessions(self, cwd: str | None, *, limit: int | None = None) -> tuple[SessionListEntry, ...]:
        used = [
            each
            for each in self._sessions.values()
            if cwd in (None, each.cwd) and each.has_transcript(LEAD_ID)
        ]
        newest_first = sorted(used, key=lambda each: -each.last_used)
        return tuple(each.to_list_entry() for each in newest_first[:limit])

    def is_session_live(self, session: SessionId) -> bool:
        found = self._sessions.get(session)
        return found is not None and found.is_locked

    def open_questions(self, session: SessionId) -> MemoryQuestions:
        found = self._sessions.get(session)
        if found is None:
            raise SessionNotFound(f"There is no session {session!r} in this store.", path=Path())
        return found.open_questions()

    def list_session_questions(self) -> tuple[SessionQuestions, ...]:
        return tuple(
            SessionQuestions(
                session=each.session,
                is_live=each.is_locked,
                directory=each.directory,
                questions=each.open_questions(),
            )
            for each in self._sessions.values()
        )

    def fork_session(self, source: SessionStore, session: SessionId, *, cwd: str) -> MemorySessionStore:
        content = source.read_transcript(LEAD_ID)
        fork = self.create_session(session, cwd=cwd)
        fork.transcripts[LEAD_ID] = [rewrite_transcript_session(content, session)]
        return fork

    def open_rosters(self, *, clock: Clock, report: Callable[[str], None]) -> MemoryRosters:
        return MemoryRosters(clock, self._rosters, on_deleted=self._drop_team)

    def open_board(
        self,
        name: str,
        *,
        clock: Clock,
        ids: IdGenerator,
        report: Callable[[str], None],
    ) -> MemoryTaskBoard:
        return MemoryTaskBoard(ids, self._boards.setdefault(name, MemoryBoardState()))

    def open_mailboxes(
        self,
        team: TeamName,
        *,
        clock: Clock,
        ids: IdGenerator,
        report: Callable[[str], None],
    ) -> MemoryMailboxes:
        return self._mailboxes.setdefault(team, MemoryMailboxes())

    def load_signing_key(self, team: TeamName, *, report: Callable[[str], None] = lambda _: None) -> bytes:
        return self._keys.setdefault(team, os.urandom(KEY_SIZE))

    def _drop_team(self, team: TeamName) -> None:
        self._boards.pop(team, None)
        self._mailboxes.pop(team, None)
        self._keys.pop(team, None)


class TranscriptOrigin(NamedTuple):
    """Fields that every line of a transcript repeats."""

    cwd: str
    version: str


class UnpackedEntries(Struct, frozen=True):
    """Entries that share their messages with the conversation."""

    origin: TranscriptOrigin
    entries: list[TranscriptEntry]


class PackedEntries(Struct, frozen=True, gc=False):
    """Message entries as JSON, compressed unless they are small."""

    origin: TranscriptOrigin
    content: bytes


TranscriptPart: TypeAlias = bytes | UnpackedEntries | PackedEntries
"""Encoded lines of another store, or entries."""
_COMPRESSED = b"z"
"""Start of compressed entries; those that are not compressed start as JSON does."""
_UNCOMPRESSED_SIZE = 1_024
"""Bytes below which entries are not compressed, because that would save little memory."""
_UNCOMPRESSED_TOTAL = 512 * 1_024
"""Bytes of other entries that are not compressed either: that would take 5 % of the time of a short agent."""
_MESSAGE_ENTRIES_DECODER = msgspec.json.Decoder(list[TranscriptMessageEntry])


class MemorySessionStore:
    def __init__(
        self,
        session: SessionId,
        cwd: str,
        directory: Path,
        *,
        siblings: Sized,
        max_events: int | None = None,
    ) -> None:
        """`siblings` are the sessions of the store, including this one."""
        self.session = session
        self.cwd = cwd
        self.directory = directory
        self.last_used = 0
        """Monotonic time in nanoseconds."""
        self.title = ""
        self.transcripts: dict[AgentId, list[TranscriptPart]] = {}
        self._metadata: dict[AgentId, SubagentMetadata] = {}
        self._journal_events: deque[tuple[int, int, JournaledEvent]] = deque(maxlen=max_events)
        self._questions = MemoryQuestions(directory / "questions")
        self._work = MemoryWork()
        self._siblings = siblings
        self._uncompressed_bytes = 0
        self.is_locked = False

    def report_damaged_files(self, *, now: int | None) -> tuple[str, ...]:
        return ()

    def acquire_lock(self) -> None:
        if self.is_locked:
            raise StateFileError(
                f"The session {self.session} is in use. Close it first, or continue in a fork.",
                path=self.directory,
            )
        self.is_locked = True

    def release_lock(self, *, unused: bool = False) -> None:
        self.is_locked = False

    def open_transcript(self, agent: AgentId, *, cwd: str, version: str, title: str = "") -> MemoryTranscript:
        self.title = title or self.title
        return MemoryTranscript(self, agent, TranscriptOrigin(cwd, version))

    def has_transcript(self, agent: AgentId) -> bool:
        return agent in self.transcripts

    def read_transcript(self, agent: AgentId) -> bytes:
        if agent not in self.transcripts:
            raise SessionNotFound(
                f"There is no transcript for {agent} in the session {self.session}.", path=self.directory
            )
        return b"".join(self._encode_lines(agent, part) for part in self.transcripts[agent])

    def restore_conversation(self, agent: AgentId) -> RestoredConversation:
        return restore_agent_transcript(self.read_transcript(agent), agent)

    def to_list_entry(self) -> SessionListEntry:
        content = self.read_transcript(LEAD_ID)
        messages = restore_agent_transcript(content, LEAD_ID).messages
        prompt = next((message.text for message in messages if message.role == "user"), "")
        return SessionListEntry(
            session=self.session,
            path=None,
            prompt=self.title or prompt,
            at=(time.time_ns() - (time.monotonic_ns() - self.last_used)) // 1_000_000,
            size=len(content),
        )

    def add_transcript_part(self, agent: AgentId, part: UnpackedEntries) -> list[TranscriptPart]:
        """Add a part to the transcript; return all its parts."""
        parts = self.transcripts.setdefault(agent, [])
        parts.append(part)
        return parts

    def set_title(self, title: str) -> None:
        self.title = title

    def pack_transcript(self, agent: AgentId) -> None:
        """Pack the entries of an ended agent: there may be thousands, and few are resumed.

        The lead of the only session stays as it is, because such a store often ends with its session.
        """
        if agent == LEAD_ID and len(self._siblings) == 1:
            return
        if parts := self.transcripts.get(agent):
            parts[:] = [
                packed
                for part in parts
                for packed in (self._pack_entries(part) if isinstance(part, UnpackedEntries) else (part,))
            ]

    def _pack_entries(self, part: UnpackedEntries) -> Iterator[TranscriptPart]:
        for kind, group in groupby(part.entries, type):
            entries = list(group)
            content = _encode_if_possible(entries) if kind is TranscriptMessageEntry else None
            if content is None:
                yield UnpackedEntries(part.origin, entries)
            else:
                yield PackedEntries(part.origin, self._compress_if_large(content))

    def _compress_if_large(self, content: bytes) -> bytes:
        size = len(content)
        if size < _UNCOMPRESSED_SIZE:
            return content
        if self._uncompressed_bytes + size <= _UNCOMPRESSED_TOTAL // len(self._siblings):
            self._uncompressed_bytes += size
            return content
        return _COMPRESSED + _compress(content)

    def _encode_lines(self, agent: AgentId, part: TranscriptPart) -> bytes:
        if isinstance(part, bytes):
            return part
        encoder = TranscriptEncoder(
            session=self.session,
            cwd=part.origin.cwd,
            version=part.origin.version,
            agent=None if agent == LEAD_ID else agent,
        )
        entries = part.entries if isinstance(part, UnpackedEntries) else _unpack_entries(part)
        return b"".join(map(encoder.encode_entry, entries))

    def get_transcript_path(self, agent: AgentId) -> None:
        return None

    def save_agent_metadata(self, agent: AgentId, metadata: SubagentMetadata) -> None:
        self._metadata[agent] = metadata

    def save_agent_mode(self, agent: AgentId, mode: str) -> None:
        if agent not in self._metadata:
            raise SessionNotFound(
                f"There is no metadata for agent {agent} in the session {self.session}.", path=self.directory
            )
        self._metadata[agent] = replace(self._metadata[agent], mode=mode)

    def read_agent_metadata(self, agent: AgentId) -> SubagentMetadata | None:
        return self._metadata.get(agent)

    def open_journal(self, clock: Clock, *, secrets: SecretRedactor) -> MemoryJournal:
        return MemoryJournal(clock, secrets, self._journal_events)

    def open_results(self) -> FileResultStore:
        # Agents read a result with their file tools, so it is a file in every store.
        return FileResultStore(self.directory / "results")

    def open_questions(self) -> MemoryQuestions:
        return self._questions

    def open_work(self) -> MemoryWork:
        return self._work


class MemoryWork:
    def __init__(self) -> None:
        self._parts: dict[str, tuple[WorkPart, ...]] = {}

    def append_part(self, part: WorkPart) -> None:
        earlier = self.read_parts(part.agent)
        if earlier[-1:] != (part,):
            self._parts[part.agent] = select_current_parts((*earlier, part))

    def read_parts(self, agent: str) -> tuple[WorkPart, ...]:
        return self._parts.get(agent, ())

    def list_summaries(self) -> dict[str, WorkSummary]:
        return summarize_work(part for parts in self._parts.values() for part in parts)


class MemoryTranscript:
    def __init__(self, store: MemorySessionStore, agent: AgentId, origin: TranscriptOrigin) -> None:
        self._store = store
        self._agent = agent
        self._origin = origin
        self._parts: list[TranscriptPart] = []
        self._last: UnpackedEntries | None = None
        """Part to which entries are added, unless another writer has added a later one."""

    def append(self, entry: TranscriptEntry) -> None:
        last = self._last
        if last is None or self._parts[-1] is not last:
            last = self._last = UnpackedEntries(self._origin, [])
            self._parts = self._store.add_transcript_part(self._agent, last)
        last.entries.append(entry)
        self._store.last_used = time.monotonic_ns()

    def set_title(self, title: str) -> None:
        self._store.set_title(title)

    def close(self) -> None:
        self._store.pack_transcript(self._agent)


def _compress(content: bytes) -> bytes:
    # A window of 4 KB: to clear the default tables takes seven times as long as to compress one agent.
    # Negative: without a checksum, which memory does not need.
    packer = zlib.compressobj(1, zlib.DEFLATED, -12, 5)
    return packer.compress(content) + packer.flush()


def _encode_if_possible(entries: list[TranscriptEntry]) -> bytes | None:
    try:
        return encode_strict_json(entries)
    except (TypeError, ValueError, RecursionError):
        return None  # a lone surrogate, for example


def _unpack_entries(packed: PackedEntries) -> list[TranscriptMessageEntry]:
    content = packed.content
    if content.startswith(_COMPRESSED):
        content = zlib.decompress(content[len(_COMPRESSED) :], -12)
    return _MESSAGE_ENTRIES_DECODER.decode(content)


class MemoryJournal:
    """Events with their number and time. Each is one step of the offset."""

    def __init__(
        self,
        clock: Clock,
        secrets: SecretRedactor,
        events: deque[tuple[int, int, JournaledEvent]] | None = None,
    ) -> None:
        self._clock = clock
        self._secrets = secrets
        self._events: deque[tuple[int, int, JournaledEvent]] = deque() if events is None else events

    def append(self, event: JournaledEvent) -> None:
        events = self._events
        events.append((events[-1][0] + 1 if events else 0, self._clock.now(), event))

    def append_all(self, events: Sequence[JournaledEvent]) -> None:
        for event in events:
            self.append(event)

    def read_records(self, offset: int = 0) -> Iterator[JournalRecord]:
        for number, at, event in tuple(self._events):
            if number >= offset:
                # As the line that a file would hold: without secrets, and as another process reads it.
                line = encode_journal_line(event, at, self._secrets)
                for record in parse_journal_records((line,), number):
                    yield replace(record, next=number + 1)

    def replay(
        self,
        kind: type[S],
        settle: Callable[[S], None] | None = None,
        *,
        report_problem: Callable[[str], None] = lambda _: None,
    ) -> S:
        return replay_records(kind, self.read_records())

    def get_position(self) -> int:
        return self._events[-1][0] + 1 if self._events else 0

    def add_growth_listener(self, listener: Callable[[int], None]) -> None: ...

    def close(self) -> None: ...


class MemoryQuestions(StoredQuestions):
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._questions: dict[str, Question] = {}
        self._asked_at: dict[str, int] = {}
        self._answers: dict[str, Answer] = {}
        self._late_answers: dict[str, Answer] = {}
        self._watches: list[MemoryWatch] = []

    def store_question(self, question: Question) -> None:
        # An earlier answer under this id belonged to another call.
        for part in (self._questions, self._answers, self._late_answers):
            part.pop(question.id, None)
        self._questions[question.id] = question
        self._asked_at[question.id] = time.time_ns() // 1_000_000

    def find_questions(self, start: str) -> tuple[Question, ...]:
        return tuple(each for name, each in self._questions.items() if name.startswith(start))

    def get_asked_time(self, question: Question) -> int | None:
        return self._asked_at.get(question.id)

    def get(self, question_id: str) -> Question | None:
        return self._questions.get(question_id)

    def create_answer(self, question_id: str, answer: Answer) -> bool:
        return self._create_in(self._answers, question_id, answer)

    def read_answer(self, question: Question) -> Answer | None:
        return self._answers.get(question.id)

    def create_late_answer(self, question_id: str, answer: Answer) -> bool:
        return self._create_in(self._late_answers, question_id, answer)

    def read_late_answer(self, question_id: str) -> Answer | None:
        return self._late_answers.get(question_id)

    def list_open_questions(self) -> tuple[Question, ...]:
        return tuple(each for each in self._questions.values() if each.id not in self._answers)

    def watch_answers(self, on_change: Callable[[], None]) -> MemoryWatch:
        return MemoryWatch(self._watches, on_change)

    def _create_in(self, answers: dict[str, Answer], question_id: str, answer: Answer) -> bool:
        if answers.setdefault(question_id, answer) is not answer:
            return False
        for watch in tuple(self._watches):
            watch.notify()
        return True


_CONFORMS: Callable[[], Store] = MemoryStore
"""For the type checker: a missing member of the port is an error here."""
