"""Work that agents leave in worktrees is listed where users look for it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import shoal
from agent_scripts import call_tool, read_events, run_all_turns, script_agents, spawn_agent
from git_repository import GitRepository
from shoal.app.isolation.repository_worktrees import open_worktrees
from shoal.core.clock import SystemClock
from shoal.core.events import NoteAdded

pytestmark = pytest.mark.needs("git", "bwrap")


@pytest.mark.spec("ISO-02", "USR-06")
async def test_retained_work_of_an_agent_is_listed_and_merged(repository: GitRepository) -> None:
    model = script_agents(
        lead=[spawn_agent("You fix it", "c1", isolation="worktree"), "end"],
        You=[call_tool("Write", "w1", file_path="new.txt", content="work\n"), "done"],
    )
    async with shoal.open(cwd=repository.top, model=model, skip_permissions=True) as session:
        await run_all_turns(session)
    home = Path(os.environ["SHOAL_HOME"])
    worktrees = open_worktrees(repository.top, home=home, environ=os.environ, clock=SystemClock())
    (standing,) = await worktrees.list_worktrees()
    assert standing.work is not None
    assert standing.work.uncommitted == ("new.txt",)
    assert not standing.alive
    await worktrees.merge_worktree(standing.name)
    assert (repository.top / "new.txt").read_text() == "work\n"
    assert await worktrees.list_worktrees() == []


@pytest.mark.spec("USR-06")
async def test_a_session_removes_worktrees_of_dead_owners_before_it_creates_one(
    repository: GitRepository,
) -> None:
    home = Path(os.environ["SHOAL_HOME"])
    dead = open_worktrees(repository.top, home=home, environ=os.environ, clock=SystemClock())
    idle, busy = [await dead.create_worktree(name, session="before") for name in ("b1", "c1")]
    (busy.path / "new.txt").write_text("work\n")
    dead.close()
    model = script_agents(lead=[spawn_agent("You look", "c1", isolation="worktree"), "end"], You=["done"])
    async with shoal.open(cwd=repository.top, model=model, skip_permissions=True) as session:
        await run_all_turns(session)
    assert not idle.path.exists()
    assert list(repository.retained_refs) == [f"refs/shoal/kept/{busy.name}"]
    notes = [event.text for event in read_events(session) if isinstance(event, NoteAdded)]
    assert [each for each in notes if str(busy.path) in each]


@pytest.mark.spec("USR-06", "USR-12")
@pytest.mark.parametrize("work", ["work\n", ""])
async def test_work_left_by_a_killed_process_is_reported_after_a_resume(
    repository: GitRepository, work: str
) -> None:
    """The process was killed after the agent ended and before its worktree was inspected."""
    written = [call_tool("Write", "w1", file_path="new.txt", content="work\n")]
    model = script_agents(
        lead=[spawn_agent("You fix it", "c1", isolation="worktree", run_in_background=True), "hm", "end"],
        You=[*written, "done"],
    )
    async with shoal.open(cwd=repository.top, model=model, skip_permissions=True) as session:
        await run_all_turns(session)
    path = _simulate_kill(session.id, work)
    async with shoal.open(cwd=repository.top, model=model, skip_permissions=True, resume=session.id) as again:
        await run_all_turns(again)
        conversation = str(again.agent.conversation.messages)
    assert "<status>completed</status>" in conversation
    assert (f"<worktree><path>{path}</path>" in conversation) == bool(work)
    assert path.exists() == bool(work)


def _simulate_kill(session: str, work: str) -> Path:
    home = Path(os.environ["SHOAL_HOME"])
    (transcript,) = home.glob(f"projects/*/{session}.jsonl")
    journal = home / "shoal/runs" / session / "journal.jsonl"
    (record,) = home.glob("worktrees/*/agent-*.json")
    lines = transcript.read_text().splitlines(keepends=True)
    delivery_index = next(at for at, line in enumerate(lines) if '"delivered"' in line)
    transcript.write_text("".join(lines[:delivery_index]))
    events = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in events if '"type":"work_kept"' not in line))
    facts = json.loads(record.read_text())
    record.write_text(json.dumps({**facts, "state": "live"}))
    path = Path(facts["path"])
    if not work:
        (path / "new.txt").unlink()
    return path


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    return GitRepository(tmp_path)
