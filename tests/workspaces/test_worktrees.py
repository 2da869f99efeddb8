"""Worktrees of agents: made from the lead's commit, kept with their work, gone without."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from git_rig import SESSION, Repository, git
from shoal.core.clock import SystemClock
from shoal.core.errors import WorktreeError
from shoal.core.worktrees import Kept, Removed
from shoal.workspaces.worktree import told_to_agent, told_to_fork
from shoal.workspaces.worktrees import Worktrees

pytestmark = pytest.mark.needs("git")


@pytest.mark.spec("ISO-01")
async def test_a_worktree_is_named_by_its_agent_and_made_from_the_leads_commit(
    repository: Repository,
) -> None:
    git(repository.top, "branch", "stale")
    head = repository.commit_file("later.txt", "later\n")
    worktree = await repository.made("a0123456789")
    assert worktree.path.name == "agent-a0123456"
    assert git(worktree.path, "rev-parse", "HEAD") == head
    assert git(worktree.path, "symbolic-ref", "--short", "HEAD") == "shoal/agent-a0123456/work"
    assert (worktree.path / "later.txt").read_text() == "later\n"
    assert git(worktree.path, "status", "--porcelain") == ""
    assert not worktree.path.is_relative_to(repository.top)
    assert git(repository.top, "status", "--porcelain") == ""


@pytest.mark.spec("ISO-01", "USR-06")
async def test_fifty_at_once_are_all_made_from_the_leads_commit(repository: Repository) -> None:
    worktrees = repository.worktrees()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(repository.made(f"{at:08x}", by=worktrees)) for at in range(50)]
    made = [task.result() for task in tasks]
    assert {git(each.path, "rev-parse", "HEAD") for each in made} == {repository.head}
    assert len({each.path for each in made}) == 50
    assert all((each.path / "sub/code.py").read_text() == "one\n" for each in made)
    async with asyncio.TaskGroup() as group:
        ends = [group.create_task(worktrees.finish(each)) for each in made]
    assert all(isinstance(end.result(), Removed) for end in ends)
    assert repository.nothing_left()


_MAKER = """
import asyncio, os, sys
from pathlib import Path
from shoal.core.clock import SystemClock
from shoal.workspaces.worktrees import Worktrees

async def main(top, home, mark):
    worktrees = Worktrees(Path(top), Path(home), env=dict(os.environ), clock=SystemClock())
    print("ready", flush=True)
    sys.stdin.readline()
    async with asyncio.TaskGroup() as group:
        for at in range(25):
            group.create_task(worktrees.make(f"{mark}{at:07x}", session="s"))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.spec("USR-06")
async def test_two_processes_make_fifty_at_once_without_a_lock_error(repository: Repository) -> None:
    makers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", _MAKER, str(repository.top), str(repository.home), mark,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for mark in "ab"
    ]  # fmt: skip
    for maker in makers:
        assert maker.stdout is not None
        assert await maker.stdout.readline() == b"ready\n"
    async with asyncio.timeout(60):
        said = await asyncio.gather(*(maker.communicate(b"go\n") for maker in makers))
    assert [err.decode() for _, err in said] == ["", ""]
    standing = await repository.worktrees().list()
    assert len(standing) == 50
    assert not any(each.alive for each in standing)
    reaped = await repository.worktrees().reap()
    assert [type(each) for each in reaped] == [Removed] * 50
    assert repository.nothing_left()


async def test_work_that_a_full_disk_keeps_from_its_ref_stays_in_its_worktree(repository: Repository) -> None:
    for number in range(50):
        (repository.top / f"file-{number}").write_text("x\n")
    repository.commit("many")
    worktrees = repository.worktrees()
    worktree = await repository.made(by=worktrees)
    (worktree.path / "new").write_text("work\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # Room for the record of the worktree, and none for another index of all its files.
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
        left = await worktrees.finish(worktree)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert isinstance(left, Kept)
    assert left.ref is None
    assert "could not be put under a ref" in left.note
    assert (worktree.path / "new").read_text() == "work\n"


@pytest.mark.spec("ISO-02")
async def test_an_unchanged_worktree_goes_with_its_branch(repository: Repository) -> None:
    worktrees = repository.worktrees()
    worktree = await repository.made(by=worktrees)
    (worktree.path / "build.log").write_text("ignored\n")
    end = await worktrees.finish(worktree)
    assert end == Removed(name=worktree.name)
    assert repository.nothing_left()
    assert repository.kept == {}


@pytest.mark.spec("ISO-02", "USR-06")
@pytest.mark.parametrize("how", ["edited", "untracked", "committed", "staged", "deleted", "unseen", "aside"])
async def test_a_changed_worktree_stays_and_is_under_a_ref(repository: Repository, how: str) -> None:
    worktrees = repository.worktrees()
    worktree = await repository.made(by=worktrees)
    changed = worktree.path / ("new.txt" if how in ("untracked", "staged") else "notes.txt")
    if how == "unseen":
        git(worktree.path, "update-index", "--assume-unchanged", "notes.txt")
    changed.unlink(missing_ok=True) if how == "deleted" else changed.write_text("work\n")
    if how == "staged":
        git(worktree.path, "add", "new.txt")
    if how == "committed":
        repository.commit("the work", worktree.path)
    if how == "aside":
        git(worktree.path, "switch", "-qc", "shoal/agent-a0123456/other")
        repository.commit("the work", worktree.path)
        git(worktree.path, "switch", "-q", "shoal/agent-a0123456/work")
    before = git(worktree.path, "status", "--porcelain", "--branch")
    kept = await worktrees.finish(worktree)
    assert isinstance(kept, Kept)
    assert (kept.path, kept.branch) == (worktree.path, "shoal/agent-a0123456/work")
    assert git(worktree.path, "status", "--porcelain", "--branch") == before
    assert kept.work is not None
    if how in ("committed", "aside"):
        assert (kept.work.commits, kept.work.subjects) == (1, ("the work",))
    else:
        assert kept.work.commits == 0
        assert kept.work.uncommitted == (changed.name,)
    if how != "aside":
        assert kept.work.files == (changed.name,)
    ((ref, commit),) = repository.kept.items()
    assert ref == kept.ref == "refs/shoal/kept/agent-a0123456"
    listed = git(repository.top, "log", "-m", "--name-status", "--format=", f"main..{commit}")
    assert changed.name in listed
    if how not in ("deleted", "aside"):
        assert git(repository.top, "show", f"{commit}:{changed.name}") == "work"


async def test_keeping_twice_makes_no_second_commit(repository: Repository) -> None:
    worktrees = repository.worktrees()
    worktree = await repository.made(by=worktrees)
    (worktree.path / "new.txt").write_text("work\n")
    await worktrees.finish(worktree)
    first = repository.kept
    await worktrees.finish(await worktrees.reopen(worktree.name, session=SESSION))
    assert repository.kept == first
    (worktree.path / "new.txt").write_text("more\n")
    await worktrees.finish(await worktrees.reopen(worktree.name, session=SESSION))
    (ref,) = repository.kept
    assert git(repository.top, "log", "--format=%h", f"main..{ref}").count("\n") == 1
    assert git(repository.top, "show", f"{ref}~1:new.txt") == "work"


async def test_a_lead_in_a_sub_directory_has_agents_in_the_same_one(repository: Repository) -> None:
    worktree = await repository.made(by=repository.worktrees(repository.top / "sub"))
    assert worktree.root == worktree.path / "sub"
    assert worktree.workspace().cwd == worktree.path / "sub"
    (repository.top / "fresh").mkdir()
    (repository.top / "fresh/file").write_text("not committed\n")
    other = await repository.made("b1", by=repository.worktrees(repository.top / "fresh"))
    assert other.root == other.path
    assert "fresh is not in the commit: you start at the top of the worktree." in other.notes
    assert any("not committed" in note and "fresh/" in note for note in other.notes)


@pytest.mark.spec("USR-06")
async def test_an_agent_in_a_worktree_can_have_agents_in_worktrees(repository: Repository) -> None:
    worktrees = repository.worktrees()
    parent = await repository.made("a1", by=worktrees)
    head = repository.commit_file("parent.txt", "parent\n", parent.path)
    of_parent = repository.worktrees(parent.path)
    child = await repository.made("b1", by=of_parent)
    assert child.record.base == head
    assert child.record.checkout == parent.path
    (child.path / "child.txt").write_text("child\n")
    await of_parent.finish(child)
    assert (await of_parent.merge(child.name)).into == "shoal/agent-a1/work"
    assert (parent.path / "child.txt").read_text() == "child\n"
    await worktrees.finish(parent)
    await worktrees.merge(parent.name)
    assert (repository.top / "child.txt").exists()
    assert repository.nothing_left()


async def test_a_detached_head_a_linked_checkout_and_a_sparse_one_can_be_worked_from(
    repository: Repository, tmp_path: Path
) -> None:
    first = repository.head
    repository.commit_file("later.txt", "later\n")
    git(repository.top, "checkout", "-q", "--detach", first)
    detached = await repository.made("d1")
    assert git(detached.path, "rev-parse", "HEAD") == first
    git(repository.top, "checkout", "-q", "main")
    linked = tmp_path / "linked"
    git(repository.top, "worktree", "add", "-q", "-b", "side", str(linked), "main")
    side = repository.commit_file("side.txt", "side\n", linked)
    from_linked = await repository.made("e1", by=repository.worktrees(linked))
    assert git(from_linked.path, "rev-parse", "HEAD") == side
    assert from_linked.path.parent == detached.path.parent
    git(repository.top, "sparse-checkout", "set", "sub")
    worktrees = repository.worktrees()
    sparse = await repository.made("f1", by=worktrees)
    assert (sparse.path / "sub/code.py").exists()
    assert isinstance(await worktrees.finish(sparse), Removed)
    sparse = await repository.made("f2", by=worktrees)
    (sparse.path / "outside").mkdir()
    (sparse.path / "outside/new.txt").write_text("work\n")
    kept = await worktrees.finish(sparse)
    assert isinstance(kept, Kept)
    assert git(repository.top, "show", f"{kept.ref}:outside/new.txt") == "work"


async def test_submodules_are_left_out_and_that_is_said(repository: Repository, tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.mkdir()
    git(part, "init", "-q")
    (part / "inner.txt").write_text("inner\n")
    git(part, "add", "-A")
    git(part, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "part")
    git(repository.top, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part), "lib")
    repository.commit("with a part")
    (repository.top / "lib/inner.txt").write_text("dirty\n")
    worktrees = repository.worktrees()
    worktree = await repository.made(by=worktrees)
    assert worktree.notes == (
        "Submodules are empty in this worktree: lib.",
        "Changes the lead has in these submodules are not in it either: lib.",
    )
    assert isinstance(await worktrees.finish(worktree), Removed)
    assert repository.branches == ["main"]


async def test_what_cannot_have_a_worktree_is_refused_with_the_reason(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(root: Path) -> str:
        with pytest.raises(WorktreeError) as why:
            await repository.made(by=repository.worktrees(root))
        return str(why.value)

    plain = tmp_path / "plain"
    plain.mkdir()
    assert "not in a git repository" in await refused(plain)
    git(plain, "init", "-q")
    assert "no commit yet" in await refused(plain)
    git(tmp_path, "clone", "-q", "--bare", str(repository.top), "bare.git")
    assert "is a bare repository" in await refused(tmp_path / "bare.git")
    assert "inside of a git repository" in await refused(repository.top / ".git")
    git(repository.top, "branch", "shoal/agent-a0123456")
    assert "already a branch below shoal/agent-a0123456" in await refused(repository.top)
    git(repository.top, "branch", "-D", "shoal/agent-a0123456")
    await repository.made()
    assert "already a worktree agent-a0123456" in await refused(repository.top)
    repository.home = repository.top / "notes.txt"
    assert "Worktrees cannot be kept in" in await refused(repository.top)
    monkeypatch.setenv("PATH", str(plain))
    assert "the program git" in await refused(repository.top)


async def test_a_crash_at_any_step_loses_nothing_and_the_next_reap_clears_up(tmp_path: Path) -> None:
    program = Path(__file__).with_name("worktree_crashes.py")
    ran = await asyncio.create_subprocess_exec(
        sys.executable, str(program), str(tmp_path), "4", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(120):
        out, err = await ran.communicate()
    assert ran.returncode == 0, err.decode()
    deaths = dict(line.split() for line in out.decode().splitlines())
    assert all(int(count) > 10 for count in deaths.values()), deaths
    assert set(deaths) == {"idle", "removed", "merged"}


async def test_a_foreign_directory_in_the_way_is_left_alone(repository: Repository) -> None:
    first = await repository.made("a1")
    foreign = first.path.with_name("agent-b1")
    foreign.mkdir()
    (foreign / "mine").write_text("mine\n")
    with pytest.raises(WorktreeError, match="is in the way"):
        await repository.made("b1")
    await repository.worktrees().reap()
    assert (foreign / "mine").read_text() == "mine\n"
    assert not foreign.with_name("agent-b1.json").exists()


async def test_hooks_and_variables_of_git_have_no_say(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = repository.top / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    worktrees = repository.worktrees()
    worktree = await worktrees.make("a0123456789", session=SESSION)
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert (worktree.path / "notes.txt").exists()
    assert not (tmp_path / "ran").exists()


_STALLING = """#!/bin/sh
case "$*" in *"$STALL"*) echo >"$TOLD"; exec sleep 60;; esac
exec "$REAL" "$@"
"""


@pytest.mark.parametrize("step", ["for-each-ref", "worktree add", "reset --hard"])
async def test_a_making_that_is_cancelled_leaves_nothing(
    repository: Repository, tmp_path: Path, step: str
) -> None:
    bin_directory, told = tmp_path / "bin", tmp_path / "told"
    bin_directory.mkdir()
    (bin_directory / "git").write_text(_STALLING)
    (bin_directory / "git").chmod(0o755)
    os.mkfifo(told)
    real = shutil.which("git")
    assert real is not None
    env = {**os.environ, "PATH": f"{bin_directory}:{os.environ['PATH']}"}
    env |= {"STALL": step, "TOLD": str(told), "REAL": real}
    worktrees = Worktrees(repository.top, repository.home, env=env, clock=SystemClock())
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        making = group.create_task(worktrees.make("a1", session=SESSION))
        await asyncio.to_thread(told.read_bytes)
        (bin_directory / "git").write_text('#!/bin/sh\nexec "$REAL" "$@"\n')
        making.cancel()
    assert making.cancelled()
    assert repository.nothing_left()


@pytest.mark.spec("USR-06")
async def test_only_the_worktrees_of_dead_owners_are_reaped(repository: Repository) -> None:
    living, dead = repository.worktrees(), repository.worktrees()
    alive = await repository.made("a1", by=living)
    idle = await repository.made("b1", by=dead)
    busy = await repository.made("c1", by=dead)
    (busy.path / "new.txt").write_text("work\n")
    assert await repository.worktrees().reap() == []
    dead.close()
    removed, kept = await repository.worktrees().reap()
    assert removed == Removed(name=idle.name)
    assert isinstance(kept, Kept)
    assert kept.path == busy.path
    assert git(repository.top, "show", f"{kept.ref}:new.txt") == "work"
    assert (alive.path / "notes.txt").exists()
    assert (busy.path / "new.txt").exists()
    assert not idle.path.exists()
    assert await repository.worktrees().reap() == []


@pytest.mark.spec("USR-06", "USR-12")
async def test_only_what_a_dead_owner_left_in_the_place_is_seen_to(
    repository: Repository,
) -> None:
    living, dead = repository.worktrees(), repository.worktrees()
    alive = await repository.made("a1", by=living)
    idle = await repository.made("b1", by=dead)
    busy = await repository.made("c1", by=dead)
    (busy.path / "new.txt").write_text("work\n")
    dead.close()
    assert await repository.worktrees().settle(alive.path) is None
    assert await repository.worktrees().settle(idle.path / "inside") == Removed(name=idle.name)
    assert await repository.worktrees().settle(idle.path) is None
    kept = await repository.worktrees().settle(busy.path)
    assert isinstance(kept, Kept)
    assert git(repository.top, "show", f"{kept.ref}:new.txt") == "work"
    assert (alive.path / "notes.txt").exists()


async def test_what_git_has_forgotten_is_still_kept(repository: Repository) -> None:
    dead = repository.worktrees()
    worktree = await repository.made(by=dead)
    (worktree.path / "new.txt").write_text("work\n")
    moved = worktree.path.with_name("elsewhere")
    worktree.path.rename(moved)
    git(repository.top, "worktree", "prune")
    moved.rename(worktree.path)
    dead.close()
    (kept,) = await repository.worktrees().reap()
    assert isinstance(kept, Kept)
    assert git(repository.top, "show", f"{kept.ref}:new.txt") == "work"
    assert (worktree.path / "new.txt").exists()


async def test_a_worktree_that_somebody_deleted_is_cleared_away_and_its_commits_kept(
    repository: Repository,
) -> None:
    dead = repository.worktrees()
    idle, busy = await repository.made("a1", by=dead), await repository.made("b1", by=dead)
    (busy.path / "new.txt").write_text("work\n")
    commit = repository.commit("the work", busy.path)
    for each in (idle, busy):
        subprocess.run(["rm", "-r", str(each.path)], check=True)
    dead.close()
    removed, kept = await repository.worktrees().reap()
    assert isinstance(removed, Removed)
    assert isinstance(kept, Kept)
    assert repository.kept == {"refs/shoal/kept/agent-b1": commit}


@pytest.mark.spec("ISO-03")
async def test_a_fork_is_told_to_translate_paths_and_read_anew(repository: Repository) -> None:
    worktree = await repository.made()
    told = told_to_fork(worktree)
    assert "paths must be translated" in told
    assert f"{repository.top}/… is {worktree.path}/…" in told
    assert "Read files anew" in told
    assert "translated" not in told_to_agent(worktree)


async def test_paths_that_are_not_utf8_work(tmp_path: Path) -> None:
    repository = Repository(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")))
    worktrees = Worktrees(repository.top, repository.home, env=dict(os.environ), clock=SystemClock())
    worktree = await worktrees.make("a0123456789", session=SESSION)
    (worktree.path / os.fsdecode(b"\xff.txt")).write_text("work\n")
    kept = await worktrees.finish(worktree)
    assert isinstance(kept, Kept)
    assert [each.record is not None for each in await worktrees.list()] == [True]
