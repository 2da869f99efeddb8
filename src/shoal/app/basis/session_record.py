"""Storage of a session: on disk, or in memory without persistence."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct

import shoal
from shoal.app.basis.basis import Basis
from shoal.core.ports import Journal, Transcript
from shoal.stores.files.journal import FileJournal
from shoal.stores.files.transcripts import FileTranscript
from shoal.stores.memory import MemoryJournal, NoTranscript
from shoal.wire.transcript import Lines
from shoal.workspaces.checkpoints import Checkpoints


class Record(Struct, frozen=True, kw_only=True):
    directory: Path
    transcript: Transcript
    journal: Journal
    checkpoints: Checkpoints


def open_record(basis: Basis, leave: AsyncExitStack) -> Record:
    options, settings, history = basis.options, basis.settings, basis.history
    if not options.persist:
        directory = Path(leave.enter_context(tempfile.TemporaryDirectory(prefix="shoal-")))
        return Record(
            directory=directory,
            transcript=NoTranscript(),
            journal=MemoryJournal(options.clock),
            checkpoints=Checkpoints(directory / "checkpoints"),
        )
    durable = settings.own.durable
    lines = Lines(session=history.session, cwd=str(basis.cwd), version=shoal.__version__)
    transcript = FileTranscript(history.transcript, lines, durable=durable)
    leave.callback(transcript.close)
    journal = FileJournal(
        history.directory / "journal.jsonl", options.clock, durable=durable, secrets=settings.secrets
    )
    leave.callback(journal.close)
    return Record(
        directory=history.directory,
        transcript=transcript,
        journal=journal,
        checkpoints=Checkpoints(history.directory / "checkpoints"),
    )
