"""Storage of a session: on disk, or in memory without persistence."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct

import shoal
from shoal.app.config.session_config import SessionConfig
from shoal.core.ports import Journal, Transcript
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.stores.files.sessions.file_transcript import FileTranscript
from shoal.stores.memory_stores import InMemoryJournal, NullTranscript
from shoal.wire.transcript_codec import TranscriptEncoder
from shoal.workspaces.checkpoints import CheckpointStore


class SessionFileStores(Struct, frozen=True, kw_only=True):
    directory: Path
    transcript: Transcript
    journal: Journal
    checkpoints: CheckpointStore


def open_session_file_stores(config: SessionConfig, exit_stack: AsyncExitStack) -> SessionFileStores:
    options, settings, history = config.options, config.settings, config.history
    if not options.persist:
        directory = Path(exit_stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-")))
        return SessionFileStores(
            directory=directory,
            transcript=NullTranscript(),
            journal=InMemoryJournal(options.clock),
            checkpoints=CheckpointStore(directory / "checkpoints"),
        )
    durable = settings.own.durable
    encoder = TranscriptEncoder(session=history.session, cwd=str(config.cwd), version=shoal.__version__)
    transcript = FileTranscript(history.transcript, encoder, durable=durable)
    exit_stack.callback(transcript.close)
    journal = FileJournal(
        history.directory / "journal.jsonl", options.clock, durable=durable, secrets=settings.secret_redactor
    )
    exit_stack.callback(journal.close)
    return SessionFileStores(
        directory=history.directory,
        transcript=transcript,
        journal=journal,
        checkpoints=CheckpointStore(history.directory / "checkpoints"),
    )
