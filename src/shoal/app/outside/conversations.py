"""Location of an agent's conversation."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from shoal.app.outside.watching import Run
from shoal.core.errors import NoSuchSession
from shoal.core.ids import LEAD, AgentId
from shoal.stores.files.places import subagent_path, subagents_of, transcript_path
from shoal.stores.files.sessions import find_session


def conversation_path(run: Run, cwd: str, agent: AgentId) -> Path:
    """Return the path. `cwd` is the start directory of the run. The file exists once there is a message."""
    path = transcript_path(run.home, cwd, run.session)
    if not path.exists():
        with suppress(NoSuchSession):  # until there is a message
            path = find_session(run.home, run.session)
    if agent == LEAD:
        return path
    return subagent_path(subagents_of(path), agent)
