"""Opened storage of a session."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct

import shoal
from shoal.app.config.session_config import SessionConfig
from shoal.core.ids import LEAD_ID
from shoal.core.ports import Journal, ResultStore, Transcript
from shoal.core.store import QuestionStore
from shoal.workspaces.checkpoints import CheckpointStore


class OpenedSessionStore(Struct, frozen=True, kw_only=True):
    directory: Path
    """Directory for working files of the run."""
    transcript: Transcript
    """Transcript of the lead."""
    journal: Journal
    results: ResultStore
    questions: QuestionStore
    checkpoints: CheckpointStore


def open_session_store(config: SessionConfig, exit_stack: AsyncExitStack) -> OpenedSessionStore:
    settings, store = config.settings, config.history.store
    durable = settings.own.durable
    transcript = store.open_transcript(
        LEAD_ID,
        cwd=str(config.cwd),
        version=shoal.__version__,
        durable=durable,
        title=config.options.title or "",
    )
    exit_stack.callback(transcript.close)
    journal = store.open_journal(config.options.clock, secrets=settings.secret_redactor, durable=durable)
    exit_stack.callback(journal.close)
    return OpenedSessionStore(
        directory=store.directory,
        transcript=transcript,
        journal=journal,
        results=store.open_results(),
        questions=store.open_questions(),
        checkpoints=CheckpointStore(store.directory / "checkpoints"),
    )
