"""Where the conversation of an agent of a run is kept."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from shoal.app.outside.watching import Run
from shoal.core.errors import NoSuchSession
from shoal.core.ids import LEAD, AgentId
from shoal.stores.files.places import subagent_path, subagents_of, transcript_path
from shoal.stores.files.sessions import find_session


def conversation_path(run: Run, cwd: str, agent: AgentId) -> Path:
    """`cwd` is where the run began. The file is there once something was said."""
    path = transcript_path(run.home, cwd, run.session)
    if not path.exists():
        with suppress(NoSuchSession):  # as long as nothing is said
            path = find_session(run.home, run.session)
    if agent == LEAD:
        return path
    return subagent_path(subagents_of(path), agent)
