"""`shoal worktree`, as a person types it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from shoal_process import ShoalProgram

from git_repository import GitRepository, run_git
from shoal.app.isolation.repository_worktrees import open_worktrees
from shoal.core.clock import SystemClock
from shoal.workspaces.worktree import Worktree

pytestmark = pytest.mark.needs("git")


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    return GitRepository(tmp_path / "r")


@pytest.fixture
def shoal(repository: GitRepository) -> ShoalProgram:
    return ShoalProgram(repository.top)


async def leave_worktree(
    repository: GitRepository, agent: str, *, finished: bool = True, **files: str
) -> Worktree:
    """Create the worktree that an agent of an ended process leaves behind."""
    home = Path(os.environ["SHOAL_HOME"])
    worktrees = open_worktrees(repository.top, home=home, environ=os.environ, clock=SystemClock())
    worktree = await worktrees.create_worktree(agent, session="5e551011")
    for name, content in files.items():
        (worktree.path / f"{name}.txt").write_text(content)
    if finished:
        await worktrees.finish_worktree(worktree)
    worktrees.close()
    return worktree


async def test_the_work_of_an_agent_is_listed_shown_and_merged(
    repository: GitRepository, shoal: ShoalProgram
) -> None:
    assert (await shoal("worktree", "ls")).text == "This repository has no agent worktrees.\n"
    worktree = await leave_worktree(repository, "a1b2c3d4e5", new="work\n", notes="changed\n")
    listed = (await shoal("worktree", "ls")).text
    assert "agent-a1b2c3d4" in listed
    assert "kept" in listed
    assert "shoal/agent-a1b2c3d4/work" in listed
    (row,) = json.loads((await shoal("worktree", "ls", "--json")).text)
    assert row["agent"] == "a1b2c3d4e5"
    assert row["session"] == "5e551011"
    assert (row["alive"], row["merged"], row["commits"]) == (False, False, 0)
    assert row["files"] == row["uncommitted"] == ["new.txt", "notes.txt"]
    assert row["path"] == str(worktree.path)
    shown = (await shoal("worktree", "show", "a1b2c3d4e5")).text
    assert "new.txt | new, not added" in shown
    assert "notes.txt | 2 +-" in shown
    assert "refs/shoal/kept/agent-a1b2c3d4" in shown
    merged = await shoal("worktree", "merge", "agent-a1b2c3d4")
    assert merged.text == "Merged agent-a1b2c3d4 into main: 1 commit, 2 files. Removed the worktree.\n"
    assert (repository.top / "new.txt").read_text() == "work\n"
    assert not worktree.path.exists()


async def test_a_conflict_is_an_error_that_says_how_to_go_on(
    repository: GitRepository, shoal: ShoalProgram
) -> None:
    worktree = await leave_worktree(repository, "a1b2c3d4e5", notes="theirs\n")
    repository.commit_file("notes.txt", "ours\n")
    ran = await shoal("worktree", "merge", "agent-a1b2c3d4")
    assert ran.code == 1
    assert "conflicts with main in notes.txt" in ran.err
    assert f"cd {worktree.path}" in ran.err
    assert (repository.top / "notes.txt").read_text() == "ours\n"


@pytest.mark.spec("USR-06")
async def test_work_is_removed_only_by_force_and_can_be_brought_back(
    repository: GitRepository, shoal: ShoalProgram
) -> None:
    await leave_worktree(repository, "a1b2c3d4e5", new="work\n")
    refused = await shoal("worktree", "rm", "agent-a1b2c3d4")
    assert refused.code == 1
    assert "unmerged work" in refused.err
    removed = await shoal("worktree", "rm", "agent-a1b2c3d4", "--force")
    assert "Its work is kept under refs/shoal/kept/agent-a1b2c3d4." in removed.text
    assert "ref only" in (await shoal("worktree", "ls")).text
    assert run_git(repository.top, "show", "refs/shoal/kept/agent-a1b2c3d4:new.txt") == "work"
    merged = json.loads((await shoal("worktree", "merge", "agent-a1b2c3d4", "--json")).text)
    assert merged["files"] == ["new.txt"]
    assert json.loads((await shoal("worktree", "ls", "--json")).text) == []


async def test_worktrees_of_dead_processes_are_reaped(repository: GitRepository, shoal: ShoalProgram) -> None:
    idle = await leave_worktree(repository, "a1", finished=False)
    busy = await leave_worktree(repository, "b1", finished=False, new="work\n")
    assert (await shoal("worktree", "ls")).text.count("owner dead") == 2
    assert (await shoal("worktree", "reap")).text.splitlines() == [
        "removed  agent-a1  (it was unchanged)",
        f"kept     agent-b1  {busy.path}",
    ]
    assert not idle.path.exists()
    assert (await shoal("worktree", "reap")).text == "There was nothing to clean up.\n"


async def test_worktree_commands_outside_a_repository_are_refused_with_a_reason(tmp_path: Path) -> None:
    ran = await ShoalProgram(tmp_path)("worktree", "ls")
    assert ran.code == 1
    assert "is not in a git repository" in ran.err
    unknown = await ShoalProgram(GitRepository(tmp_path / "r").top)("worktree", "show", "agent-none")
    assert "This repository has no worktree agent-none" in unknown.err


def make_worker(prompt: str) -> dict[str, Any]:
    isolated = {"isolation": "worktree", "run_in_background": True}
    return {
        "description": "write",
        "prompt": prompt,
        "subagent_type": "general-purpose",
        "name": "joe",
    } | isolated


@pytest.mark.needs("bwrap")
async def test_a_run_shows_how_to_merge_the_worktrees_of_its_agents(
    repository: GitRepository, shoal: ShoalProgram, tmp_path: Path
) -> None:
    script = tmp_path / "script.json"
    written = {"file_path": "new.txt", "content": "work\n"}
    steps = [
        {"match": "job", "tools": [{"name": "Write", "input": written}]},
        {"match": "new.txt", "text": "It is written."},
        {"match": "begin", "tools": [{"name": "Agent", "input": make_worker("job")}]},
        {"text": "Well.", "repeat": True},
    ]
    script.write_text(json.dumps(steps))
    ran = await shoal("-p", "begin", "--model", f"scripted:{script}", "--permission-mode", "acceptEdits")
    (row,) = json.loads((await shoal("worktree", "ls", "--json")).text)
    how = f"shoal worktree merge {row['name']}"
    assert f"agent joe left work in a worktree; merge it: {how}" in ran.err
    assert (await shoal(*how.split()[1:])).code == 0
    assert (repository.top / "new.txt").read_text() == "work\n"


@pytest.mark.slow
@pytest.mark.needs("bwrap")
async def test_a_run_shows_how_to_merge_the_worktree_of_a_stopped_agent(
    repository: GitRepository, shoal: ShoalProgram, tmp_path: Path
) -> None:
    script = tmp_path / "script.json"
    calls = [
        {"name": "Write", "input": {"file_path": "new.txt", "content": "work\n"}},
        {"name": "Bash", "input": {"command": "sleep 600"}},
    ]
    steps = [
        {"match": "job", "tools": calls},
        {"match": "begin", "tools": [{"name": "Agent", "input": make_worker("job")}]},
        {"text": "Well.", "repeat": True},
    ]
    script.write_text(json.dumps(steps))
    flags = ("--permission-mode", "acceptEdits", "--allowedTools", "Bash(sleep:*)", "--deadline", "4s")
    ran = await shoal("-p", "begin", "--model", f"scripted:{script}", *flags)
    assert ran.code == 4
    (row,) = json.loads((await shoal("worktree", "ls", "--json")).text)
    assert f"shoal worktree merge {row['name']}" in ran.err
