"""Location of an agent's conversation."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from shoal.app.run_access.run_handle import RunHandle
from shoal.core.errors import SessionNotFound
from shoal.core.ids import LEAD_ID, AgentId
from shoal.stores.files.home.home_paths import (
    get_subagent_transcript_path,
    get_subagent_transcripts_directory,
    get_transcript_path,
)
from shoal.stores.files.sessions.session_files import find_session_transcript


def find_agent_transcript_path(run: RunHandle, cwd: str, agent: AgentId) -> Path:
    """Return the path. `cwd` is the start directory of the run. The file exists once there is a message.

    A transcript in a database is copied to the file by each call.
    """
    if run.copies is not None:
        return run.copies.copy_transcript(run.session, agent)
    path = get_transcript_path(run.home, cwd, run.session)
    if not path.exists():
        with suppress(SessionNotFound):  # until there is a message
            path = find_session_transcript(run.home, run.session)
    if agent == LEAD_ID:
        return path
    return get_subagent_transcript_path(get_subagent_transcripts_directory(path), agent)
