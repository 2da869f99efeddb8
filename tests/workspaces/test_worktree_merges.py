"""Listing worktrees, merging their work one at a time, and removing them."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from git_repository import SESSION, GitRepository, run_git
from shoal.core.clock import SystemClock
from shoal.core.errors import MergeConflict, WorktreeError
from shoal.workspaces.worktree import Worktree
from shoal.workspaces.worktree_service import WorktreeService

pytestmark = pytest.mark.needs("git")


async def finish_work(
    repository: GitRepository, worktrees: WorktreeService, agent: str, **files: str
) -> Worktree:
    """Create a worktree in which an agent wrote files and ended."""
    worktree = await repository.create_worktree(agent, service=worktrees)
    for name, content in files.items():
        (worktree.path / f"{name}.txt").write_text(content)
    await worktrees.finish_worktree(worktree)
    return worktree


async def test_a_merge_includes_committed_and_uncommitted_work(repository: GitRepository) -> None:
    worktrees = repository.open_worktrees()
    worktree = await repository.create_worktree(service=worktrees)
    (worktree.path / "done.txt").write_text("done\n")
    repository.commit_all("do it", worktree.path)
    (worktree.path / "notes.txt").write_text("changed\n")
    (worktree.path / "new.txt").write_text("new\n")
    await worktrees.finish_worktree(worktree)
    repository.commit_file("meanwhile.txt", "meanwhile\n")
    merged = await worktrees.merge_worktree(worktree.name)
    assert (merged.into, merged.commits) == ("main", 2)
    assert merged.files == ("done.txt", "new.txt", "notes.txt")
    for name, content in (("done", "done\n"), ("notes", "changed\n"), ("new", "new\n"), ("meanwhile",) * 2):
        assert (repository.top / f"{name}.txt").read_text().strip() == content.strip()
    assert run_git(repository.top, "status", "--porcelain") == ""
    assert run_git(repository.top, "log", "--first-parent", "--format=%s", "-2").splitlines() == [
        "Merge the work of agent-a0123456",
        "write meanwhile.txt",
    ]
    assert run_git(repository.top, "log", "-1", "--format=%an", merged.commit) == "A Person"
    assert repository.has_no_leftovers()
    assert repository.retained_refs == {}


@pytest.mark.spec("USR-06")
async def test_a_conflict_leaves_the_checkout_unchanged_and_names_the_files(
    repository: GitRepository,
) -> None:
    worktrees = repository.open_worktrees()
    worktree = await finish_work(repository, worktrees, "a0123456789", notes="theirs\n", new="new\n")
    repository.commit_file("notes.txt", "ours\n")
    (repository.top / "sub/code.py").write_text("local\n")
    (repository.top / "stray.txt").write_text("stray\n")
    before = repository.describe_checkout()
    with pytest.raises(MergeConflict) as conflict:
        await worktrees.merge_worktree(worktree.name)
    assert conflict.value.files == ("notes.txt",)
    assert f"cd {worktree.path}" in str(conflict.value)
    assert repository.describe_checkout() == before
    assert not (repository.top / ".git/MERGE_HEAD").exists()
    assert run_git(worktree.path, "status", "--porcelain") == ""
    assert [run_git(worktree.path, "rev-parse", "HEAD")] == list(repository.retained_refs.values())
    # As the sentence says.
    run_git(worktree.path, "merge", "-q", "-X", "ours", "main")
    assert (await worktrees.merge_worktree(worktree.name)).commits == 2
    assert (repository.top / "notes.txt").read_text() == "theirs\n"
    assert (repository.top / "sub/code.py").read_text() == "local\n"
    assert repository.has_no_leftovers()


async def test_an_older_git_also_reports_conflicts(repository: GitRepository, tmp_path: Path) -> None:
    """One that cannot merge without a checkout."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    script = f'#!/bin/sh\ncase "$*" in *merge-tree*) exit 129;; esac\nexec {shutil.which("git")} "$@"\n'
    (bin_directory / "git").write_text(script)
    (bin_directory / "git").chmod(0o755)
    env = {**os.environ, "PATH": f"{bin_directory}:{os.environ['PATH']}"}
    worktrees = WorktreeService(repository.top, repository.home, env=env, clock=SystemClock())
    worktree = await finish_work(repository, worktrees, "a0123456789", notes="theirs\n")
    repository.commit_file("notes.txt", "ours\n")
    (repository.top / "sub/code.py").write_text("local\n")
    before = repository.describe_checkout()
    with pytest.raises(MergeConflict) as conflict:
        await worktrees.merge_worktree(worktree.name)
    assert conflict.value.files == ("notes.txt",)
    assert repository.describe_checkout() == before


async def test_a_merge_does_not_overwrite_local_changes(repository: GitRepository) -> None:
    worktrees = repository.open_worktrees()
    worktree = await finish_work(repository, worktrees, "a0123456789", notes="theirs\n", new="new\n")
    (repository.top / "notes.txt").write_text("local\n")
    before = repository.describe_checkout()
    with pytest.raises(WorktreeError, match=r"(?s)nothing was changed.*notes\.txt"):
        await worktrees.merge_worktree(worktree.name)
    assert repository.describe_checkout() == before
    run_git(repository.top, "add", "notes.txt")
    with pytest.raises(WorktreeError, match="staged changes"):
        await worktrees.merge_worktree(worktree.name)
    run_git(repository.top, "reset", "-q", "--hard")
    (repository.top / "new.txt").write_text("untracked\n")
    with pytest.raises(WorktreeError, match=r"(?s)nothing was changed.*new\.txt"):
        await worktrees.merge_worktree(worktree.name)
    assert (repository.top / "new.txt").read_text() == "untracked\n"
    run_git(repository.top, "checkout", "-q", "--detach")
    with pytest.raises(WorktreeError, match="is not on a branch"):
        await worktrees.merge_worktree(worktree.name)


@pytest.mark.slow
async def test_concurrent_merges_run_one_after_the_other(repository: GitRepository) -> None:
    worktrees = repository.open_worktrees()
    made = [
        await finish_work(repository, worktrees, f"{at}a", **{f"file{at}": "x\n"}, notes=f"{at}\n")
        for at in range(4)
    ]
    alone = [await finish_work(repository, worktrees, f"{at}b", **{f"other{at}": "x\n"}) for at in range(4)]
    ends = await asyncio.gather(
        *(repository.open_worktrees().merge_worktree(each.name) for each in (*made, *alone)),
        return_exceptions=True,
    )
    conflicts = [end for end in ends if isinstance(end, MergeConflict)]
    assert len(conflicts) == 3
    assert len([end for end in ends if not isinstance(end, BaseException)]) == 5
    assert run_git(repository.top, "status", "--porcelain") == ""
    assert all((repository.top / f"other{at}.txt").exists() for at in range(4))
    assert len(repository.retained_refs) == 3


async def test_a_merge_does_not_run_a_hook_from_the_merged_work(
    repository: GitRepository, tmp_path: Path
) -> None:
    run_git(repository.top, "config", "core.hooksPath", "hooks")
    worktrees = repository.open_worktrees()
    worktree = await repository.create_worktree(service=worktrees)
    (worktree.path / "hooks").mkdir()
    for name in ("post-merge", "pre-merge-commit", "post-checkout", "post-commit"):
        hook = worktree.path / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o755)
    await worktrees.finish_worktree(worktree)
    await worktrees.merge_worktree(worktree.name)
    assert (repository.top / "hooks/post-merge").exists()
    assert not (tmp_path / "ran").exists()


@pytest.mark.spec("USR-06")
async def test_unmerged_work_is_removed_only_by_force_and_stays_under_its_ref(
    repository: GitRepository,
) -> None:
    worktrees = repository.open_worktrees()
    worktree = await finish_work(repository, worktrees, "a0123456789", new="work\n")
    with pytest.raises(WorktreeError, match=r"unmerged work: uncommitted changes \(new\.txt\)"):
        await worktrees.remove_worktree(worktree.name)
    assert (worktree.path / "new.txt").exists()
    removed = await worktrees.remove_worktree(worktree.name, force=True)
    assert removed.ref == "refs/shoal/kept/agent-a0123456"
    assert repository.has_no_leftovers()
    assert run_git(repository.top, "show", f"{removed.ref}:new.txt") == "work"
    (standing,) = await worktrees.list_worktrees()
    assert (standing.name, standing.record, standing.ref) == (worktree.name, None, removed.ref)
    _, stat = await worktrees.show_worktree(worktree.name)
    assert "new.txt" in stat
    await worktrees.merge_worktree(worktree.name)
    assert (repository.top / "new.txt").read_text() == "work\n"
    assert repository.retained_refs == {}


async def test_work_merged_by_hand_is_removed_without_force(
    repository: GitRepository,
) -> None:
    worktrees = repository.open_worktrees()
    worktree = await finish_work(repository, worktrees, "a0123456789", new="work\n")
    run_git(repository.top, "merge", "-q", "refs/shoal/kept/agent-a0123456")
    removed = await worktrees.remove_worktree(worktree.name)
    assert removed.ref is None
    assert repository.has_no_leftovers()
    assert repository.retained_refs == {}


async def test_commits_on_another_branch_of_the_agent_survive_the_merge(repository: GitRepository) -> None:
    worktrees = repository.open_worktrees()
    worktree = await repository.create_worktree(service=worktrees)
    run_git(worktree.path, "switch", "-qc", "shoal/agent-a0123456/aside")
    aside = repository.commit_file("aside.txt", "aside\n", worktree.path)
    run_git(worktree.path, "switch", "-q", "shoal/agent-a0123456/work")
    repository.commit_file("done.txt", "done\n", worktree.path)
    await worktrees.finish_worktree(worktree)
    await worktrees.merge_worktree(worktree.name)
    assert not (repository.top / "aside.txt").exists()
    (ref,) = repository.retained_refs
    assert aside in run_git(repository.top, "rev-list", ref)


async def test_a_worktree_of_a_running_agent_is_not_touched(repository: GitRepository) -> None:
    worktree = await repository.create_worktree()
    other = repository.open_worktrees()
    for act in (other.merge_worktree, other.remove_worktree):
        with pytest.raises(WorktreeError, match="still working"):
            await act(worktree.name)
    with pytest.raises(WorktreeError, match="still working"):
        await other.remove_worktree(worktree.name, force=True)
    with pytest.raises(WorktreeError, match="still working"):
        await other.reopen_worktree(worktree.name, session=SESSION)
    with pytest.raises(WorktreeError, match="no worktree agent-none"):
        await other.merge_worktree("agent-none")
    with pytest.raises(WorktreeError, match="no worktree \\.\\./x"):
        await other.remove_worktree("../x")


async def test_the_list_shows_the_state_of_each_worktree(repository: GitRepository) -> None:
    living, dead = repository.open_worktrees(), repository.open_worktrees()
    await repository.create_worktree("a1", service=living)
    await finish_work(repository, living, "b1", new="work\n")
    gone = await repository.create_worktree("c1", service=dead)
    repository.commit_file("done.txt", "done\n", gone.path)
    dead.close()
    a, b, c = await repository.open_worktrees().list_worktrees()
    assert [each.record.state for each in (a, b, c) if each.record] == ["live", "kept", "live"]
    assert (a.alive, a.merged, a.ref) == (True, True, None)
    assert (b.alive, b.merged, b.ref) == (True, False, "refs/shoal/kept/agent-b1")
    assert (c.alive, c.merged, c.ref) == (False, False, None)
    assert c.work is not None
    assert (c.work.commits, c.work.subjects, c.work.files) == (1, ("write done.txt",), ("done.txt",))
    _, stat = await repository.open_worktrees().show_worktree("agent-b1")
    assert "new.txt | new, not added" in stat
    _, stat = await repository.open_worktrees().show_worktree("agent-c1")
    assert "done.txt | 1 +" in stat
