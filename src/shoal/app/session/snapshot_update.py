"""Renews the snapshots of a run while its journal grows, in a process of low priority.

Run as `python -m shoal.app.session.snapshot_update RUN_DIRECTORY TRANSCRIPT`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.backends.process_backend import build_interpreter_environment
from shoal.core.errors import ProcessError, StateFileError
from shoal.core.ids import LEAD_ID
from shoal.core.ports import ProcessLauncher, ProcessLaunchSpec

if TYPE_CHECKING:
    from shoal.app.session.session import Session

UPDATE_AFTER = 16 << 20
"""Bytes by which the journal grows between two updates; a reader reads at most about that many."""
_PRIORITY = 10


class SnapshotUpdater:
    """Starts the process when the journal of the session has grown; one at a time."""

    def __init__(
        self, launcher: ProcessLauncher, directory: Path, transcript: Path, tasks: asyncio.TaskGroup
    ) -> None:
        self._launcher = launcher
        self._directory = directory
        self._transcript = transcript
        self._tasks = tasks
        self._updated_size: int | None = None
        self._task: asyncio.Task[None] | None = None

    def on_journal_growth(self, size: int) -> None:
        if self._updated_size is None:
            # A resumed session has just read its snapshots, and written them if they were old.
            self._updated_size = size
        if size - self._updated_size >= UPDATE_AFTER and (self._task is None or self._task.done()):
            self._updated_size = size
            self._task = self._tasks.create_task(self._run_update())

    def close(self) -> None:
        """Stop waiting for the process; the launcher ends it."""
        if self._task is not None:
            self._task.cancel()

    async def _run_update(self) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            # Readers need no snapshot: without this process they read more of the journal.
            with suppress(ProcessError):
                process = await self._launcher.start_process(
                    ProcessLaunchSpec(
                        argv=(
                            sys.executable,
                            "-m",
                            "shoal.app.session.snapshot_update",
                            str(self._directory),
                            str(self._transcript),
                        ),
                        cwd=self._directory,
                        env=build_interpreter_environment(),
                        stdout=nothing,
                        stderr=nothing,
                    )
                )
                await process.wait()
        finally:
            os.close(nothing)


def start_snapshot_updates(session: Session, tasks: asyncio.TaskGroup, exit_stack: AsyncExitStack) -> None:
    """Renew the snapshots of a session whose journal is a file, until it ends."""
    store, history = session.runtime.store, session.config.history.store
    transcript = history.get_transcript_path(LEAD_ID)
    if transcript is not None:
        updater = SnapshotUpdater(session.runtime.processes.launcher, store.directory, transcript, tasks)
        store.journal.add_growth_listener(updater.on_journal_growth)
        exit_stack.callback(updater.close)


def update_run_snapshots(directory: Path, transcript: Path) -> None:
    from shoal.app.config.journal_recovery import SessionRecoveryState
    from shoal.app.config.undo_history import StartedTurnsState
    from shoal.app.run_access.event_index import RunEventIndex
    from shoal.app.run_access.run_facts import JournaledRunSummary
    from shoal.app.run_access.run_handle import RunStartState
    from shoal.app.run_view.agent_status import RunViewAgentsState
    from shoal.app.run_view.run_view import RunView
    from shoal.app.workflows.step_log import WorkflowRecords
    from shoal.stores.files.sessions.conversation_snapshots import restore_stored_conversation
    from shoal.stores.files.sessions.file_session_store import CONVERSATION_SNAPSHOT
    from shoal.stores.files.sessions.journal_snapshots import update_journal_snapshots
    from shoal.stores.files.sessions.usage_summary import RunUsageState

    kinds = (
        RunUsageState,
        RunViewAgentsState,
        RunView,
        SessionRecoveryState,
        RunStartState,
        JournaledRunSummary,
        RunEventIndex,
        StartedTurnsState,
        WorkflowRecords,
    )
    update_journal_snapshots(directory / "journal.jsonl", kinds)
    with suppress(StateFileError):
        restore_stored_conversation(transcript, directory / CONVERSATION_SNAPSHOT, "")


if __name__ == "__main__":
    os.nice(_PRIORITY)
    update_run_snapshots(Path(sys.argv[1]), Path(sys.argv[2]))
