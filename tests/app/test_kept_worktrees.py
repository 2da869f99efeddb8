"""What agents of a session leave in worktrees is where people look for it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import shoal
from cast import agent, all_turns, cast, recorded, use
from git_rig import Repository
from shoal.app.quarters.worktrees import worktrees_of
from shoal.core.clock import SystemClock
from shoal.core.events import Noted

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


@pytest.mark.spec("USR-06")
async def test_a_session_clears_what_dead_owners_left_before_it_makes_a_worktree(
    repository: Repository,
) -> None:
    home = Path(os.environ["SHOAL_HOME"])
    dead = worktrees_of(repository.top, home=home, environ=os.environ, clock=SystemClock())
    idle, busy = [await dead.make(name, session="before") for name in ("b1", "c1")]
    (busy.path / "new.txt").write_text("work\n")
    dead.close()
    model = cast(lead=[agent("You look", "c1", isolation="worktree"), "end"], You=["done"])
    async with shoal.open(cwd=repository.top, model=model, skip_permissions=True) as session:
        await all_turns(session)
    assert not idle.path.exists()
    assert list(repository.kept) == [f"refs/shoal/kept/{busy.name}"]
    notes = [event.text for event in recorded(session) if isinstance(event, Noted)]
    assert [each for each in notes if str(busy.path) in each]


@pytest.mark.spec("USR-06", "USR-12")
@pytest.mark.parametrize("work", ["work\n", ""])
async def test_work_that_nobody_saw_to_before_the_end_of_the_process_is_told_of(
    repository: Repository, work: str
) -> None:
    """The process was killed when the agent had ended, and its worktree was not looked at yet."""
    written = [use("Write", "w1", file_path="new.txt", content="work\n")]
    model = cast(
        lead=[agent("You fix it", "c1", isolation="worktree", run_in_background=True), "hm", "end"],
        You=[*written, "done"],
    )
    async with shoal.open(cwd=repository.top, model=model, skip_permissions=True) as session:
        await all_turns(session)
    path = _as_if_killed(session.id, work)
    async with shoal.open(cwd=repository.top, model=model, skip_permissions=True, resume=session.id) as again:
        await all_turns(again)
        told = str(again.agent.conversation.messages)
    assert "<status>completed</status>" in told
    assert (f"<worktree><path>{path}</path>" in told) == bool(work)
    assert path.exists() == bool(work)


def _as_if_killed(session: str, work: str) -> Path:
    home = Path(os.environ["SHOAL_HOME"])
    (transcript,) = home.glob(f"projects/*/{session}.jsonl")
    journal = home / "shoal/runs" / session / "journal.jsonl"
    (record,) = home.glob("worktrees/*/agent-*.json")
    lines = transcript.read_text().splitlines(keepends=True)
    told = next(at for at, line in enumerate(lines) if '"delivered"' in line)
    transcript.write_text("".join(lines[:told]))
    events = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in events if '"type":"work_kept"' not in line))
    facts = json.loads(record.read_text())
    record.write_text(json.dumps({**facts, "state": "live"}))
    path = Path(facts["path"])
    if not work:
        (path / "new.txt").unlink()
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)
