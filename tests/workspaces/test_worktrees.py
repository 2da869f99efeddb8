"""Worktrees of agents: made from the lead's commit, kept with their work, gone without."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from git_repository import SESSION, GitRepository, run_git
from shoal.core.agents.worktrees import RemovedWorktree, RetainedWorktree
from shoal.core.clock import SystemClock
from shoal.core.errors import WorktreeError
from shoal.workspaces.worktree import describe_worktree, describe_worktree_to_fork
from shoal.workspaces.worktree_service import WorktreeService

pytestmark = pytest.mark.needs("git")


@pytest.mark.spec("ISO-01")
async def test_a_worktree_is_named_after_its_agent_and_starts_at_the_commit_of_the_lead(
    repository: GitRepository,
) -> None:
    run_git(repository.top, "branch", "stale")
    head = repository.commit_file("later.txt", "later\n")
    worktree = await repository.create_worktree("a0123456789")
    assert worktree.path.name == "agent-a0123456"
    assert run_git(worktree.path, "rev-parse", "HEAD") == head
    assert run_git(worktree.path, "symbolic-ref", "--short", "HEAD") == "shoal/agent-a0123456/work"
    assert (worktree.path / "later.txt").read_text() == "later\n"
    assert run_git(worktree.path, "status", "--porcelain") == ""
    assert not worktree.path.is_relative_to(repository.top)
    assert run_git(repository.top, "status", "--porcelain") == ""


@pytest.mark.spec("ISO-01", "USR-06")
@pytest.mark.parametrize("count", [8, pytest.param(50, marks=pytest.mark.exhaustive)])
async def test_concurrent_worktrees_all_start_at_the_commit_of_the_lead(
    repository: GitRepository, count: int, record_property: Callable[[str, object], None]
) -> None:
    worktrees = repository.open_worktrees()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(repository.create_worktree(f"{at:08x}", service=worktrees))
            for at in range(count)
        ]
    made = [task.result() for task in tasks]
    assert {run_git(each.path, "rev-parse", "HEAD") for each in made} == {repository.head}
    assert len({each.path for each in made}) == count
    assert all((each.path / "sub/code.py").read_text() == "one\n" for each in made)
    async with asyncio.TaskGroup() as group:
        ends = [group.create_task(worktrees.finish_worktree(each)) for each in made]
    assert all(isinstance(end.result(), RemovedWorktree) for end in ends)
    assert repository.has_no_leftovers()
    record_property("measured", f"{len(made)} worktrees of parallel requests, all from the same commit")


_CREATE_SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from shoal.core.clock import SystemClock
from shoal.workspaces.worktree_service import WorktreeService

async def main(top, home, mark):
    worktrees = WorktreeService(Path(top), Path(home), env=dict(os.environ), clock=SystemClock())
    print("ready", flush=True)
    sys.stdin.readline()
    async with asyncio.TaskGroup() as group:
        for at in range(25):
            group.create_task(worktrees.create_worktree(f"{mark}{at:07x}", session="s"))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.spec("USR-06")
async def test_two_processes_create_fifty_worktrees_without_a_lock_error(repository: GitRepository) -> None:
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", _CREATE_SCRIPT, str(repository.top), str(repository.home), mark,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for mark in "ab"
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    async with asyncio.timeout(60):
        outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [err.decode() for _, err in outputs] == ["", ""]
    listed = await repository.open_worktrees().list_worktrees()
    assert len(listed) == 50
    assert not any(each.alive for each in listed)
    reaped = await repository.open_worktrees().reap_abandoned_worktrees()
    assert [type(each) for each in reaped] == [RemovedWorktree] * 50
    assert repository.has_no_leftovers()


async def test_work_that_cannot_be_committed_on_a_full_disk_stays_in_its_worktree(
    repository: GitRepository,
) -> None:
    for number in range(50):
        (repository.top / f"file-{number}").write_text("x\n")
    repository.commit_all("many")
    worktrees = repository.open_worktrees()
    worktree = await repository.create_worktree(service=worktrees)
    (worktree.path / "new").write_text("work\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # Room for the record of the worktree, and none for another index of all its files.
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
        left = await worktrees.finish_worktree(worktree)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert isinstance(left, RetainedWorktree)
    assert left.ref is None
    assert "could not be stored under a ref" in left.note
    assert (worktree.path / "new").read_text() == "work\n"


@pytest.mark.spec("ISO-02")
async def test_an_unchanged_worktree_is_removed_with_its_branch(repository: GitRepository) -> None:
    worktrees = repository.open_worktrees()
    worktree = await repository.create_worktree(service=worktrees)
    (worktree.path / "build.log").write_text("ignored\n")
    end = await worktrees.finish_worktree(worktree)
    assert end == RemovedWorktree(name=worktree.name)
    assert repository.has_no_leftovers()
    assert repository.retained_refs == {}


@pytest.mark.spec("ISO-02", "USR-06")
@pytest.mark.parametrize("how", ["edited", "untracked", "committed", "staged", "deleted", "unseen", "aside"])
async def test_a_changed_worktree_is_kept_and_has_a_ref(repository: GitRepository, how: str) -> None:
    worktrees = repository.open_worktrees()
    worktree = await repository.create_worktree(service=worktrees)
    changed = worktree.path / ("new.txt" if how in ("untracked", "staged") else "notes.txt")
    if how == "unseen":
        run_git(worktree.path, "update-index", "--assume-unchanged", "notes.txt")
    changed.unlink(missing_ok=True) if how == "deleted" else changed.write_text("work\n")
    if how == "staged":
        run_git(worktree.path, "add", "new.txt")
    if how == "committed":
        repository.commit_all("the work", worktree.path)
    if how == "aside":
        run_git(worktree.path, "switch", "-qc", "shoal/agent-a0123456/other")
        repository.commit_all("the work", worktree.path)
        run_git(worktree.path, "switch", "-q", "shoal/agent-a0123456/work")
    before = run_git(worktree.path, "status", "--porcelain", "--branch")
    kept = await worktrees.finish_worktree(worktree)
    assert isinstance(kept, RetainedWorktree)
    assert (kept.path, kept.branch) == (worktree.path, "shoal/agent-a0123456/work")
    assert run_git(worktree.path, "status", "--porcelain", "--branch") == before
    assert kept.work is not None
    if how in ("committed", "aside"):
        assert (kept.work.commits, kept.work.subjects) == (1, ("the work",))
    else:
        assert kept.work.commits == 0
        assert kept.work.uncommitted == (changed.name,)
    if how != "aside":
        assert kept.work.files == (changed.name,)
    ((ref, commit),) = repository.retained_refs.items()
    assert ref == kept.ref == "refs/shoal/kept/agent-a0123456"
    listed = run_git(repository.top, "log", "-m", "--name-status", "--format=", f"main..{commit}")
    assert changed.name in listed
    if how not in ("deleted", "aside"):
        assert run_git(repository.top, "show", f"{commit}:{changed.name}") == "work"


async def test_keeping_work_twice_creates_no_second_commit(repository: GitRepository) -> None:
    worktrees = repository.open_worktrees()
    worktree = await repository.create_worktree(service=worktrees)
    (worktree.path / "new.txt").write_text("work\n")
    await worktrees.finish_worktree(worktree)
    first = repository.retained_refs
    await worktrees.finish_worktree(await worktrees.reopen_worktree(worktree.name, session=SESSION))
    assert repository.retained_refs == first
    (worktree.path / "new.txt").write_text("more\n")
    await worktrees.finish_worktree(await worktrees.reopen_worktree(worktree.name, session=SESSION))
    (ref,) = repository.retained_refs
    assert run_git(repository.top, "log", "--format=%h", f"main..{ref}").count("\n") == 1
    assert run_git(repository.top, "show", f"{ref}~1:new.txt") == "work"


async def test_agents_of_a_lead_in_a_subdirectory_start_in_the_same_subdirectory(
    repository: GitRepository,
) -> None:
    worktree = await repository.create_worktree(service=repository.open_worktrees(repository.top / "sub"))
    assert worktree.root == worktree.path / "sub"
    assert worktree.create_workspace().cwd == worktree.path / "sub"
    (repository.top / "fresh").mkdir()
    (repository.top / "fresh/file").write_text("not committed\n")
    other = await repository.create_worktree(
        "b1", service=repository.open_worktrees(repository.top / "fresh")
    )
    assert other.root == other.path
    assert "fresh is not in the commit, so you start at the top of the worktree." in other.notes
    assert any("uncommitted" in note and "fresh/" in note for note in other.notes)


@pytest.mark.spec("USR-06")
async def test_an_agent_in_a_worktree_can_start_agents_in_worktrees(repository: GitRepository) -> None:
    worktrees = repository.open_worktrees()
    parent = await repository.create_worktree("a1", service=worktrees)
    head = repository.commit_file("parent.txt", "parent\n", parent.path)
    of_parent = repository.open_worktrees(parent.path)
    child = await repository.create_worktree("b1", service=of_parent)
    assert child.record.base == head
    assert child.record.checkout == parent.path
    (child.path / "child.txt").write_text("child\n")
    await of_parent.finish_worktree(child)
    assert (await of_parent.merge_worktree(child.name)).into == "shoal/agent-a1/work"
    assert (parent.path / "child.txt").read_text() == "child\n"
    await worktrees.finish_worktree(parent)
    await worktrees.merge_worktree(parent.name)
    assert (repository.top / "child.txt").exists()
    assert repository.has_no_leftovers()


async def test_worktrees_start_from_detached_linked_and_sparse_checkouts(
    repository: GitRepository, tmp_path: Path
) -> None:
    first = repository.head
    repository.commit_file("later.txt", "later\n")
    run_git(repository.top, "checkout", "-q", "--detach", first)
    detached = await repository.create_worktree("d1")
    assert run_git(detached.path, "rev-parse", "HEAD") == first
    run_git(repository.top, "checkout", "-q", "main")
    linked = tmp_path / "linked"
    run_git(repository.top, "worktree", "add", "-q", "-b", "side", str(linked), "main")
    side = repository.commit_file("side.txt", "side\n", linked)
    from_linked = await repository.create_worktree("e1", service=repository.open_worktrees(linked))
    assert run_git(from_linked.path, "rev-parse", "HEAD") == side
    assert from_linked.path.parent == detached.path.parent
    run_git(repository.top, "sparse-checkout", "set", "sub")
    worktrees = repository.open_worktrees()
    sparse = await repository.create_worktree("f1", service=worktrees)
    assert (sparse.path / "sub/code.py").exists()
    assert isinstance(await worktrees.finish_worktree(sparse), RemovedWorktree)
    sparse = await repository.create_worktree("f2", service=worktrees)
    (sparse.path / "outside").mkdir()
    (sparse.path / "outside/new.txt").write_text("work\n")
    kept = await worktrees.finish_worktree(sparse)
    assert isinstance(kept, RetainedWorktree)
    assert run_git(repository.top, "show", f"{kept.ref}:outside/new.txt") == "work"


async def test_submodules_are_left_out_with_a_note(repository: GitRepository, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.mkdir()
    run_git(part, "init", "-q")
    (part / "inner.txt").write_text("inner\n")
    run_git(part, "add", "-A")
    run_git(part, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "part")
    run_git(
        repository.top, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part), "lib"
    )
    repository.commit_all("with a part")
    (repository.top / "lib/inner.txt").write_text("dirty\n")
    worktrees = repository.open_worktrees()
    worktree = await repository.create_worktree(service=worktrees)
    assert worktree.notes == (
        "Submodules are empty in this worktree: lib.",
        "The lead's changes in these submodules are not in it either: lib.",
    )
    assert isinstance(await worktrees.finish_worktree(worktree), RemovedWorktree)
    assert repository.branches == ["main"]


async def test_a_directory_that_cannot_have_a_worktree_is_refused_with_the_reason(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get_refusal(root: Path) -> str:
        with pytest.raises(WorktreeError) as why:
            await repository.create_worktree(service=repository.open_worktrees(root))
        return str(why.value)

    plain = tmp_path / "plain"
    plain.mkdir()
    assert "not in a git repository" in await get_refusal(plain)
    run_git(plain, "init", "-q")
    assert "no commit from which" in await get_refusal(plain)
    run_git(tmp_path, "clone", "-q", "--bare", str(repository.top), "bare.git")
    assert "is a bare repository" in await get_refusal(tmp_path / "bare.git")
    assert "inside a repository's git directory" in await get_refusal(repository.top / ".git")
    run_git(repository.top, "branch", "shoal/agent-a0123456")
    assert "already a branch under shoal/agent-a0123456" in await get_refusal(repository.top)
    run_git(repository.top, "branch", "-D", "shoal/agent-a0123456")
    await repository.create_worktree()
    assert "worktree agent-a0123456 already exists" in await get_refusal(repository.top)
    repository.home = repository.top / "notes.txt"
    assert "Cannot store worktrees in" in await get_refusal(repository.top)
    monkeypatch.setenv("PATH", str(plain))
    assert "Worktrees need git" in await get_refusal(repository.top)


@pytest.mark.slow
@pytest.mark.parametrize(("every", "least"), [(16, 2), pytest.param(2, 20, marks=pytest.mark.exhaustive)])
async def test_a_crash_at_any_step_loses_no_work_and_the_next_reap_cleans_up(
    tmp_path: Path, every: int, least: int
) -> None:
    program = Path(__file__).with_name("worktree_crashes.py")
    ran = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        str(tmp_path),
        str(every),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(600):
        out, err = await ran.communicate()
    assert ran.returncode == 0, err.decode()
    deaths = dict(line.split() for line in out.decode().splitlines())
    assert all(int(count) > least for count in deaths.values()), deaths
    assert set(deaths) == {"finish_unused", "remove_with_work", "merge_with_work"}


async def test_a_foreign_directory_at_the_worktree_path_is_not_touched(repository: GitRepository) -> None:
    first = await repository.create_worktree("a1")
    foreign = first.path.with_name("agent-b1")
    foreign.mkdir()
    (foreign / "mine").write_text("mine\n")
    with pytest.raises(WorktreeError, match="is not a Shoal worktree"):
        await repository.create_worktree("b1")
    await repository.open_worktrees().reap_abandoned_worktrees()
    assert (foreign / "mine").read_text() == "mine\n"
    assert not foreign.with_name("agent-b1.json").exists()


async def test_git_hooks_and_environment_variables_are_ignored(
    repository: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = repository.top / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    worktrees = repository.open_worktrees()
    worktree = await worktrees.create_worktree("a0123456789", session=SESSION)
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert (worktree.path / "notes.txt").exists()
    assert not (tmp_path / "ran").exists()


_STALLING = """#!/bin/sh
case "$*" in *"$STALL"*) echo >"$TOLD"; exec sleep 60;; esac
exec "$REAL" "$@"
"""


@pytest.mark.parametrize("step", ["for-each-ref", "worktree add", "reset --hard"])
async def test_a_cancelled_creation_leaves_no_files(
    repository: GitRepository, tmp_path: Path, step: str
) -> None:
    bin_directory, instructions = tmp_path / "bin", tmp_path / "told"
    bin_directory.mkdir()
    (bin_directory / "git").write_text(_STALLING)
    (bin_directory / "git").chmod(0o755)
    os.mkfifo(instructions)
    real = shutil.which("git")
    assert real is not None
    env = {**os.environ, "PATH": f"{bin_directory}:{os.environ['PATH']}"}
    env |= {"STALL": step, "TOLD": str(instructions), "REAL": real}
    worktrees = WorktreeService(repository.top, repository.home, env=env, clock=SystemClock())
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        making = group.create_task(worktrees.create_worktree("a1", session=SESSION))
        await asyncio.to_thread(instructions.read_bytes)
        (bin_directory / "git").write_text('#!/bin/sh\nexec "$REAL" "$@"\n')
        making.cancel()
    assert making.cancelled()
    assert repository.has_no_leftovers()


@pytest.mark.spec("USR-06")
async def test_only_the_worktrees_of_dead_owners_are_reaped(repository: GitRepository) -> None:
    living, dead = repository.open_worktrees(), repository.open_worktrees()
    alive = await repository.create_worktree("a1", service=living)
    idle = await repository.create_worktree("b1", service=dead)
    busy = await repository.create_worktree("c1", service=dead)
    (busy.path / "new.txt").write_text("work\n")
    assert await repository.open_worktrees().reap_abandoned_worktrees() == []
    dead.close()
    removed, kept = await repository.open_worktrees().reap_abandoned_worktrees()
    assert removed == RemovedWorktree(name=idle.name)
    assert isinstance(kept, RetainedWorktree)
    assert kept.path == busy.path
    assert run_git(repository.top, "show", f"{kept.ref}:new.txt") == "work"
    assert (alive.path / "notes.txt").exists()
    assert (busy.path / "new.txt").exists()
    assert not idle.path.exists()
    assert await repository.open_worktrees().reap_abandoned_worktrees() == []


@pytest.mark.spec("USR-06", "USR-12")
async def test_only_the_abandoned_worktree_at_the_given_path_is_settled(
    repository: GitRepository,
) -> None:
    living, dead = repository.open_worktrees(), repository.open_worktrees()
    alive = await repository.create_worktree("a1", service=living)
    idle = await repository.create_worktree("b1", service=dead)
    busy = await repository.create_worktree("c1", service=dead)
    (busy.path / "new.txt").write_text("work\n")
    dead.close()
    assert await repository.open_worktrees().settle_abandoned_worktree_at(alive.path) is None
    assert await repository.open_worktrees().settle_abandoned_worktree_at(
        idle.path / "inside"
    ) == RemovedWorktree(name=idle.name)
    assert await repository.open_worktrees().settle_abandoned_worktree_at(idle.path) is None
    kept = await repository.open_worktrees().settle_abandoned_worktree_at(busy.path)
    assert isinstance(kept, RetainedWorktree)
    assert run_git(repository.top, "show", f"{kept.ref}:new.txt") == "work"
    assert (alive.path / "notes.txt").exists()


async def test_work_in_a_worktree_unknown_to_git_is_still_kept(repository: GitRepository) -> None:
    dead = repository.open_worktrees()
    worktree = await repository.create_worktree(service=dead)
    (worktree.path / "new.txt").write_text("work\n")
    moved = worktree.path.with_name("elsewhere")
    worktree.path.rename(moved)
    run_git(repository.top, "worktree", "prune")
    moved.rename(worktree.path)
    dead.close()
    (kept,) = await repository.open_worktrees().reap_abandoned_worktrees()
    assert isinstance(kept, RetainedWorktree)
    assert run_git(repository.top, "show", f"{kept.ref}:new.txt") == "work"
    assert (worktree.path / "new.txt").exists()


async def test_a_deleted_worktree_is_unregistered_and_its_commits_are_kept(
    repository: GitRepository,
) -> None:
    dead = repository.open_worktrees()
    idle, busy = (
        await repository.create_worktree("a1", service=dead),
        await repository.create_worktree("b1", service=dead),
    )
    (busy.path / "new.txt").write_text("work\n")
    commit = repository.commit_all("the work", busy.path)
    for each in (idle, busy):
        subprocess.run(["rm", "-r", str(each.path)], check=True)
    dead.close()
    removed, kept = await repository.open_worktrees().reap_abandoned_worktrees()
    assert isinstance(removed, RemovedWorktree)
    assert isinstance(kept, RetainedWorktree)
    assert repository.retained_refs == {"refs/shoal/kept/agent-b1": commit}


@pytest.mark.spec("ISO-03")
async def test_a_fork_is_instructed_to_translate_paths_and_read_files_again(
    repository: GitRepository,
) -> None:
    worktree = await repository.create_worktree()
    instructions = describe_worktree_to_fork(worktree)
    assert "Translate its paths" in instructions
    assert f"{repository.top}/… is {worktree.path}/…" in instructions
    assert "Read files again" in instructions
    assert "Translate" not in describe_worktree(worktree)


async def test_paths_that_are_not_utf8_work(tmp_path: Path) -> None:
    repository = GitRepository(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")))
    worktrees = WorktreeService(repository.top, repository.home, env=dict(os.environ), clock=SystemClock())
    worktree = await worktrees.create_worktree("a0123456789", session=SESSION)
    (worktree.path / os.fsdecode(b"\xff.txt")).write_text("work\n")
    kept = await worktrees.finish_worktree(worktree)
    assert isinstance(kept, RetainedWorktree)
    assert [each.record is not None for each in await worktrees.list_worktrees()] == [True]
