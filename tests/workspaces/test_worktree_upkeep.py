"""Looking at worktrees, bringing their work back one at a time, removing them."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from git_rig import SESSION, Repository, git
from shoal.core.clock import SystemClock
from shoal.core.errors import MergeConflict, WorktreeError
from shoal.workspaces.worktree import Worktree
from shoal.workspaces.worktrees import Worktrees

pytestmark = pytest.mark.needs("git")


async def worked(repository: Repository, worktrees: Worktrees, agent: str, **files: str) -> Worktree:
    """A worktree in which an agent has written files and ended."""
    worktree = await repository.made(agent, by=worktrees)
    for name, content in files.items():
        (worktree.path / f"{name}.txt").write_text(content)
    await worktrees.finish(worktree)
    return worktree


async def test_a_merge_brings_in_what_is_committed_and_what_is_not(repository: Repository) -> None:
    worktrees = repository.worktrees()
    worktree = await repository.made(by=worktrees)
    (worktree.path / "done.txt").write_text("done\n")
    repository.commit("do it", worktree.path)
    (worktree.path / "notes.txt").write_text("changed\n")
    (worktree.path / "new.txt").write_text("new\n")
    await worktrees.finish(worktree)
    repository.commit_file("meanwhile.txt", "meanwhile\n")
    merged = await worktrees.merge(worktree.name)
    assert (merged.into, merged.commits) == ("main", 2)
    assert merged.files == ("done.txt", "new.txt", "notes.txt")
    for name, content in (("done", "done\n"), ("notes", "changed\n"), ("new", "new\n"), ("meanwhile",) * 2):
        assert (repository.top / f"{name}.txt").read_text().strip() == content.strip()
    assert git(repository.top, "status", "--porcelain") == ""
    assert git(repository.top, "log", "--first-parent", "--format=%s", "-2").splitlines() == [
        "Merge the work of agent-a0123456",
        "write meanwhile.txt",
    ]
    assert git(repository.top, "log", "-1", "--format=%an", merged.commit) == "A Person"
    assert repository.nothing_left()
    assert repository.kept == {}


@pytest.mark.spec("USR-06")
async def test_a_conflict_leaves_the_checkout_as_it_was_and_names_the_files(repository: Repository) -> None:
    worktrees = repository.worktrees()
    worktree = await worked(repository, worktrees, "a0123456789", notes="theirs\n", new="new\n")
    repository.commit_file("notes.txt", "ours\n")
    (repository.top / "sub/code.py").write_text("local\n")
    (repository.top / "stray.txt").write_text("stray\n")
    before = repository.state()
    with pytest.raises(MergeConflict) as conflict:
        await worktrees.merge(worktree.name)
    assert conflict.value.files == ("notes.txt",)
    assert f"cd {worktree.path}" in str(conflict.value)
    assert repository.state() == before
    assert not (repository.top / ".git/MERGE_HEAD").exists()
    assert git(worktree.path, "status", "--porcelain") == ""
    assert [git(worktree.path, "rev-parse", "HEAD")] == list(repository.kept.values())
    # As the sentence says.
    git(worktree.path, "merge", "-q", "-X", "ours", "main")
    assert (await worktrees.merge(worktree.name)).commits == 2
    assert (repository.top / "notes.txt").read_text() == "theirs\n"
    assert (repository.top / "sub/code.py").read_text() == "local\n"
    assert repository.nothing_left()


async def test_an_older_git_finds_conflicts_too(repository: Repository, tmp_path: Path) -> None:
    """One that cannot merge without a checkout."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    script = f'#!/bin/sh\ncase "$*" in *merge-tree*) exit 129;; esac\nexec {shutil.which("git")} "$@"\n'
    (bin_directory / "git").write_text(script)
    (bin_directory / "git").chmod(0o755)
    env = {**os.environ, "PATH": f"{bin_directory}:{os.environ['PATH']}"}
    worktrees = Worktrees(repository.top, repository.home, env=env, clock=SystemClock())
    worktree = await worked(repository, worktrees, "a0123456789", notes="theirs\n")
    repository.commit_file("notes.txt", "ours\n")
    (repository.top / "sub/code.py").write_text("local\n")
    before = repository.state()
    with pytest.raises(MergeConflict) as conflict:
        await worktrees.merge(worktree.name)
    assert conflict.value.files == ("notes.txt",)
    assert repository.state() == before


async def test_local_changes_that_a_merge_would_overwrite_are_safe(repository: Repository) -> None:
    worktrees = repository.worktrees()
    worktree = await worked(repository, worktrees, "a0123456789", notes="theirs\n", new="new\n")
    (repository.top / "notes.txt").write_text("local\n")
    before = repository.state()
    with pytest.raises(WorktreeError, match=r"(?s)nothing was changed.*notes\.txt"):
        await worktrees.merge(worktree.name)
    assert repository.state() == before
    git(repository.top, "add", "notes.txt")
    with pytest.raises(WorktreeError, match="staged changes"):
        await worktrees.merge(worktree.name)
    git(repository.top, "reset", "-q", "--hard")
    (repository.top / "new.txt").write_text("untracked\n")
    with pytest.raises(WorktreeError, match=r"(?s)nothing was changed.*new\.txt"):
        await worktrees.merge(worktree.name)
    assert (repository.top / "new.txt").read_text() == "untracked\n"
    git(repository.top, "checkout", "-q", "--detach")
    with pytest.raises(WorktreeError, match="on no branch"):
        await worktrees.merge(worktree.name)


async def test_many_merges_at_once_go_one_after_the_other(repository: Repository) -> None:
    worktrees = repository.worktrees()
    made = [
        await worked(repository, worktrees, f"{at}a", **{f"file{at}": "x\n"}, notes=f"{at}\n")
        for at in range(4)
    ]
    alone = [await worked(repository, worktrees, f"{at}b", **{f"other{at}": "x\n"}) for at in range(4)]
    ends = await asyncio.gather(
        *(repository.worktrees().merge(each.name) for each in (*made, *alone)), return_exceptions=True
    )
    conflicts = [end for end in ends if isinstance(end, MergeConflict)]
    assert len(conflicts) == 3
    assert len([end for end in ends if not isinstance(end, BaseException)]) == 5
    assert git(repository.top, "status", "--porcelain") == ""
    assert all((repository.top / f"other{at}.txt").exists() for at in range(4))
    assert len(repository.kept) == 3


async def test_a_hook_that_the_work_brings_is_not_run_by_the_merge(
    repository: Repository, tmp_path: Path
) -> None:
    git(repository.top, "config", "core.hooksPath", "hooks")
    worktrees = repository.worktrees()
    worktree = await repository.made(by=worktrees)
    (worktree.path / "hooks").mkdir()
    for name in ("post-merge", "pre-merge-commit", "post-checkout", "post-commit"):
        hook = worktree.path / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    await worktrees.finish(worktree)
    await worktrees.merge(worktree.name)
    assert (repository.top / "hooks/post-merge").exists()
    assert not (tmp_path / "ran").exists()


@pytest.mark.spec("USR-06")
async def test_what_is_not_merged_is_removed_only_by_force_and_stays_under_its_ref(
    repository: Repository,
) -> None:
    worktrees = repository.worktrees()
    worktree = await worked(repository, worktrees, "a0123456789", new="work\n")
    with pytest.raises(WorktreeError, match=r"not merged: changes that are not committed \(new\.txt\)"):
        await worktrees.remove(worktree.name)
    assert (worktree.path / "new.txt").exists()
    removed = await worktrees.remove(worktree.name, force=True)
    assert removed.ref == "refs/shoal/kept/agent-a0123456"
    assert repository.nothing_left()
    assert git(repository.top, "show", f"{removed.ref}:new.txt") == "work"
    (standing,) = await worktrees.list()
    assert (standing.name, standing.record, standing.ref) == (worktree.name, None, removed.ref)
    _, stat = await worktrees.show(worktree.name)
    assert "new.txt" in stat
    await worktrees.merge(worktree.name)
    assert (repository.top / "new.txt").read_text() == "work\n"
    assert repository.kept == {}


async def test_what_was_merged_by_hand_from_the_ref_is_removed_without_force(repository: Repository) -> None:
    worktrees = repository.worktrees()
    worktree = await worked(repository, worktrees, "a0123456789", new="work\n")
    git(repository.top, "merge", "-q", "refs/shoal/kept/agent-a0123456")
    removed = await worktrees.remove(worktree.name)
    assert removed.ref is None
    assert repository.nothing_left()
    assert repository.kept == {}


async def test_commits_on_another_branch_of_the_agent_outlive_the_merge(repository: Repository) -> None:
    worktrees = repository.worktrees()
    worktree = await repository.made(by=worktrees)
    git(worktree.path, "switch", "-qc", "shoal/agent-a0123456/aside")
    aside = repository.commit_file("aside.txt", "aside\n", worktree.path)
    git(worktree.path, "switch", "-q", "shoal/agent-a0123456/work")
    repository.commit_file("done.txt", "done\n", worktree.path)
    await worktrees.finish(worktree)
    await worktrees.merge(worktree.name)
    assert not (repository.top / "aside.txt").exists()
    (ref,) = repository.kept
    assert aside in git(repository.top, "rev-list", ref)


async def test_a_worktree_whose_agent_works_is_not_touched(repository: Repository) -> None:
    worktree = await repository.made()
    other = repository.worktrees()
    for act in (other.merge, other.remove):
        with pytest.raises(WorktreeError, match="still at work"):
            await act(worktree.name)
    with pytest.raises(WorktreeError, match="still at work"):
        await other.remove(worktree.name, force=True)
    with pytest.raises(WorktreeError, match="still at work"):
        await other.reopen(worktree.name, session=SESSION)
    with pytest.raises(WorktreeError, match="no worktree agent-none"):
        await other.merge("agent-none")
    with pytest.raises(WorktreeError, match="no worktree \\.\\./x"):
        await other.remove("../x")


async def test_the_list_tells_how_each_stands(repository: Repository) -> None:
    living, dead = repository.worktrees(), repository.worktrees()
    await repository.made("a1", by=living)
    await worked(repository, living, "b1", new="work\n")
    gone = await repository.made("c1", by=dead)
    repository.commit_file("done.txt", "done\n", gone.path)
    dead.close()
    a, b, c = await repository.worktrees().list()
    assert [each.record.state for each in (a, b, c) if each.record] == ["live", "kept", "live"]
    assert (a.alive, a.merged, a.ref) == (True, True, None)
    assert (b.alive, b.merged, b.ref) == (True, False, "refs/shoal/kept/agent-b1")
    assert (c.alive, c.merged, c.ref) == (False, False, None)
    assert c.work is not None
    assert (c.work.commits, c.work.subjects, c.work.files) == (1, ("write done.txt",), ("done.txt",))
    _, stat = await repository.worktrees().show("agent-b1")
    assert "new.txt | new, not added" in stat
    _, stat = await repository.worktrees().show("agent-c1")
    assert "done.txt | 1 +" in stat
