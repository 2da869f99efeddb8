"""State of one session as files: transcripts under `projects/`, the rest in the directory of its run."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from shoal.core.agents.subagent_metadata import SubagentMetadata
from shoal.core.clock import Clock
from shoal.core.conversation.restored_conversation import RestoredConversation
from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.ids import LEAD_ID, AgentId, SessionId
from shoal.core.text.redaction import SecretRedactor
from shoal.stores.files.home.home_paths import (
    create_or_replace_private_file,
    get_run_directory,
    get_subagent_transcript_path,
    get_subagent_transcripts_directory,
    read_state_file,
    to_safe_file_name,
)
from shoal.stores.files.locks.pid_locks import SessionLock, is_session_running
from shoal.stores.files.sessions.conversation_snapshots import restore_stored_conversation
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.stores.files.sessions.file_transcript import FileTranscript
from shoal.stores.files.sessions.question_files import QuestionFiles
from shoal.stores.files.sessions.result_files import FileResultStore
from shoal.stores.files.sessions.session_files import read_transcript_file
from shoal.stores.files.sessions.work_files import WorkFiles
from shoal.wire.subagent_metadata_codec import encode_subagent_metadata, parse_subagent_metadata
from shoal.wire.transcript_codec import TranscriptEncoder

CONVERSATION_SNAPSHOT = "snapshot-conversation"
"""Name of the snapshot of the lead's conversation; those of other agents have their id as a suffix."""


class FileSessionStore:
    """`directory` is the run's, if it is not the usual one of the home."""

    def __init__(
        self,
        home: Path,
        session: SessionId,
        transcript: Path,
        *,
        directory: Path | None = None,
        durable: bool = False,
    ) -> None:
        self.session = session
        self.transcript = transcript
        self.directory = get_run_directory(home, session) if directory is None else directory
        self._home = home
        self._durable = durable
        self._lock: SessionLock | None = None

    def report_damaged_files(self, *, now: int | None) -> tuple[str, ...]:
        from shoal.stores.files.sessions.damaged_files import (
            report_damaged_home_files,
            report_damaged_session_files,
        )

        if is_session_running(self._home, self.session):
            return ()  # its files change all the time, and it cannot be resumed now
        if not os.path.lexists(self.transcript) and now is not None:
            return report_damaged_home_files(self._home, now=now)
        return report_damaged_session_files(self._home, self.session, now=now)

    def acquire_lock(self) -> None:
        self._lock = SessionLock(self._home, self.session)

    def release_lock(self, *, unused: bool = False) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            (lock.release_unused if unused else lock.release)()

    def open_transcript(self, agent: AgentId, *, cwd: str, version: str, title: str = "") -> FileTranscript:
        encoder = TranscriptEncoder(
            session=self.session,
            cwd=cwd,
            version=version,
            agent=None if agent == LEAD_ID else agent,
            title=title,
        )
        return FileTranscript(self.get_transcript_path(agent), encoder, durable=self._durable)

    def has_transcript(self, agent: AgentId) -> bool:
        return self.get_transcript_path(agent).exists()

    def read_transcript(self, agent: AgentId) -> bytes:
        return read_transcript_file(self.get_transcript_path(agent))

    def restore_conversation(self, agent: AgentId) -> RestoredConversation:
        suffix = "" if agent == LEAD_ID else f"-{to_safe_file_name(agent)}"
        return restore_stored_conversation(
            self.get_transcript_path(agent),
            self.directory / f"{CONVERSATION_SNAPSHOT}{suffix}",
            "" if agent == LEAD_ID else agent,
        )

    def get_transcript_path(self, agent: AgentId) -> Path:
        if agent == LEAD_ID:
            return self.transcript
        return get_subagent_transcript_path(get_subagent_transcripts_directory(self.transcript), agent)

    def save_agent_metadata(self, agent: AgentId, metadata: SubagentMetadata) -> None:
        create_or_replace_private_file(
            self._get_metadata_path(agent), encode_subagent_metadata(metadata), durable=self._durable
        )

    def save_agent_mode(self, agent: AgentId, mode: str) -> None:
        path, content = self._get_metadata_path(agent), self._read_metadata_file(agent)
        if content is None:
            raise SessionNotFound(f"There is no metadata for agent {agent} in {path}.", path=path)
        _parse_metadata(content, path)
        # The raw content: unknown fields of other programs stay.
        raw = msgspec.json.decode(content)
        create_or_replace_private_file(
            path, msgspec.json.encode({**raw, "mode": mode}), durable=self._durable
        )

    def read_agent_metadata(self, agent: AgentId) -> SubagentMetadata | None:
        content = self._read_metadata_file(agent)
        return None if content is None else _parse_metadata(content, self._get_metadata_path(agent))

    def _read_metadata_file(self, agent: AgentId) -> bytes | None:
        path = self._get_metadata_path(agent)
        try:
            return read_state_file(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateFileError(f"Cannot read {path}: {error.strerror}.", path=path) from error

    def _get_metadata_path(self, agent: AgentId) -> Path:
        return self.get_transcript_path(agent).with_suffix(".meta.json")

    def open_journal(self, clock: Clock, *, secrets: SecretRedactor) -> FileJournal:
        return FileJournal(self.directory / "journal.jsonl", clock, durable=self._durable, secrets=secrets)

    def open_results(self) -> FileResultStore:
        return FileResultStore(self.directory / "results", durable=self._durable)

    def open_questions(self) -> QuestionFiles:
        return QuestionFiles(self.directory / "questions", durable=self._durable)

    def open_work(self) -> WorkFiles:
        return WorkFiles(self.directory / "agent-work", durable=self._durable)


def _parse_metadata(content: bytes, path: Path) -> SubagentMetadata:
    try:
        return parse_subagent_metadata(content)
    except (ValueError, RecursionError) as error:
        # It holds the restrictions of the agent: as a general-purpose agent it could do more.
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise StateFileError(f"{path} is not valid: {reason}.", path=path) from error
