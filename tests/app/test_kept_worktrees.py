"""What agents of a session leave in worktrees is where people look for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import shoal
from cast import agent, all_turns, cast, use
from git_rig import Repository
from shoal.app.worktrees import worktrees_of
from shoal.core.clock import SystemClock

pytestmark = pytest.mark.needs("git", "bwrap")


@pytest.mark.spec("ISO-02", "USR-06")
async def test_what_an_agent_of_a_session_left_is_listed_and_merged(repository: Repository) -> None:
    model = cast(
        lead=[agent("You fix it", "c1", isolation="worktree"), "end"],
        You=[use("Write", "w1", file_path="new.txt", content="work\n"), "done"],
    )
    async with shoal.open(cwd=repository.top, model=model, skip_permissions=True) as session:
        await all_turns(session)
    home = Path(os.environ["SHOAL_HOME"])
    worktrees = worktrees_of(repository.top, home=home, environ=os.environ, clock=SystemClock())
    (standing,) = await worktrees.list()
    assert standing.work is not None
    assert standing.work.uncommitted == ("new.txt",)
    assert not standing.alive
    await worktrees.merge(standing.name)
    assert (repository.top / "new.txt").read_text() == "work\n"
    assert await worktrees.list() == []


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)
