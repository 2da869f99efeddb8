"""Work of agents on other machines that is in the store, and refs that are recreated from it in a clone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shoal.app.agents.work_record import WorkRecord
from shoal.core.clock import SystemClock
from shoal.core.errors import WorktreeError
from shoal.core.ids import SessionId
from shoal.core.store import WorkStore
from shoal.stores.memory.memory_store import MemoryStore
from shoal.workspaces.checkout import find_git_checkout
from shoal.workspaces.git_runner import GitRunner

REF = "refs/shoal/cluster/s1/ann"
GIT = GitRunner(os.environ, SystemClock())


def run_git(directory: Path, *arguments: str, stdin: str = "") -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    done = subprocess.run(
        ["git", *identity, *arguments],
        cwd=directory,
        check=True,
        capture_output=True,
        text=True,
        input=stdin,
    )
    return done.stdout.strip()


def commit_file(repository: Path, name: str) -> str:
    (repository / name).write_text(name)
    run_git(repository, "add", "-A")
    run_git(repository, "commit", "-qm", name)
    return run_git(repository, "rev-parse", "HEAD")


class Clone:
    """A clone of the project, and the record of the lead that works in it."""

    def __init__(self, top: Path, store: WorkStore) -> None:
        self.top = top
        self.notes: list[str] = []
        self._record = WorkRecord(GIT, store, "s1", self.notes.append)

    async def store(self) -> None:
        await self._record.store_work(await find_git_checkout(GIT, self.top), "ann")

    async def restore(self) -> None:
        await self._record.restore_work(await find_git_checkout(GIT, self.top), "ann")

    async def restore_all(self) -> None:
        await self._record.restore_all(await find_git_checkout(GIT, self.top))

    def checkpoint(self, text: str, *, ref: str = REF, base: str = "HEAD") -> str:
        """Set a ref to a commit with a file on top of another commit, as a checkpoint of an agent does."""
        blob = run_git(self.top, "hash-object", "-w", "--stdin", stdin=text)
        run_git(self.top, "read-tree", base)
        run_git(self.top, "update-index", "--add", "--cacheinfo", f"100644,{blob},work.txt")
        tree = run_git(self.top, "write-tree")
        run_git(self.top, "read-tree", "HEAD")
        commit = run_git(self.top, "commit-tree", tree, "-p", base, "-m", "Checkpoint")
        run_git(self.top, "update-ref", ref, commit)
        return commit

    def list_refs(self) -> str:
        return run_git(self.top, "for-each-ref", "--format=%(refname) %(objectname)", "refs/shoal/")


@pytest.fixture
def store() -> WorkStore:
    return MemoryStore().create_session(SessionId("s1"), cwd="/project").open_work()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    run_git(directory, "init", "-q")
    commit_file(directory, "first")
    return directory


def clone(project: Path, name: str, store: WorkStore) -> Clone:
    run_git(project.parent, "clone", "-q", str(project), name)
    return Clone(project.parent / name, store)


async def test_refs_are_recreated_in_another_clone(project: Path, store: WorkStore) -> None:
    here = clone(project, "here", store)
    here.checkpoint("one")
    await here.store()
    here.checkpoint("two")
    here.checkpoint("fix", ref=f"{REF}.branches/fix/a")
    here.checkpoint("stash", ref=f"{REF}.stashes/1")
    await here.store()
    here.checkpoint("three", base=REF)
    run_git(here.top, "update-ref", "-d", f"{REF}.branches/fix/a")
    here.checkpoint("other", ref=f"{REF}.branches/fix")
    await here.store()
    assert [part.is_first for part in store.read_parts("ann")] == [True, False, False]
    there = clone(project, "there", store)
    await there.restore_all()
    assert there.list_refs() == here.list_refs()
    assert run_git(there.top, "show", f"{REF}:work.txt") == "three"
    run_git(there.top, "fsck", "--strict", "--connectivity-only")
    assert there.notes == [f"The work of ann was restored from the store as {REF}."]
    # What is stored there continues what was stored here.
    there.checkpoint("four")
    await there.store()
    await clone(project, "third", store).restore()
    assert [part.is_first for part in store.read_parts("ann")] == [True, False, False, False]
    assert run_git(project.parent / "third", "show", f"{REF}:work.txt") == "four"


async def test_a_part_contains_only_what_the_earlier_ones_lack(project: Path, store: WorkStore) -> None:
    here = clone(project, "here", store)
    large = here.checkpoint(os.urandom(50_000).hex())
    await here.store()
    # Both are on top of HEAD: the second one is no descendant of the first, but has its files.
    tree = run_git(here.top, "rev-parse", f"{large}^{{tree}}")
    run_git(here.top, "update-ref", REF, run_git(here.top, "commit-tree", tree, "-p", "HEAD", "-m", "again"))
    await here.store()
    first, second = store.read_parts("ann")
    assert len(first.bundle) > 50_000
    assert len(second.bundle) < 2_000
    await here.store()
    assert len(store.read_parts("ann")) == 2  # nothing is new


@pytest.mark.slow
async def test_many_parts_are_replaced_by_one(project: Path, store: WorkStore) -> None:
    here = clone(project, "here", store)
    for number in range(40):
        here.checkpoint(f"text {number}")
        await here.store()
        assert len(store.read_parts("ann")) <= 32
    assert [part.is_first for part in store.read_parts("ann")] == [True] + [False] * 7
    there = clone(project, "there", store)
    await there.restore()
    assert run_git(there.top, "show", f"{REF}:work.txt") == "text 39"


async def test_large_parts_are_replaced_by_one(project: Path, store: WorkStore) -> None:
    here = clone(project, "here", store)
    sizes = []
    for _ in range(5):
        here.checkpoint(os.urandom(1_500_000).hex())
        await here.store()
        sizes.append(sum(len(part.bundle) for part in store.read_parts("ann")))
    # The file replaces itself each time, so a new first part has only its last content.
    assert sizes[-1] < sizes[-2]
    assert [part.is_first for part in store.read_parts("ann")] == [True]


async def test_commits_that_are_in_no_remote_are_stored_too(project: Path, store: WorkStore) -> None:
    here = clone(project, "here", store)
    unpushed = commit_file(here.top, "unpushed")
    here.checkpoint("one")
    await here.store()
    there = clone(project, "there", store)
    await there.restore()
    assert run_git(there.top, "rev-parse", f"{REF}~1") == unpushed


async def test_work_on_commits_that_a_clone_lacks_stays_in_the_store(project: Path, store: WorkStore) -> None:
    there = clone(project, "there", store)
    here = clone(project, "here", store)
    run_git(here.top, "remote", "remove", "origin")
    base = commit_file(here.top, "here only")
    here.checkpoint("one")
    await here.store()
    await there.restore_all()
    (note,) = there.notes
    assert base in note
    assert REF in note
    assert "The work stays in the store." in note
    with pytest.raises(WorktreeError, match=base):
        await there.restore()
    assert there.list_refs() == ""
    run_git(there.top, "fetch", "-q", str(here.top), "HEAD:refs/heads/fetched")
    await there.restore()
    assert there.list_refs() == here.list_refs()


async def test_an_older_ref_is_replaced_and_its_commit_is_kept(project: Path, store: WorkStore) -> None:
    """The session was resumed in another clone, and then in the first one again."""
    here, there = clone(project, "here", store), clone(project, "there", store)
    old = here.checkpoint("one")
    await here.store()
    await there.restore()
    new = there.checkpoint("two")
    await there.store()
    again = Clone(here.top, store)
    await again.restore_all()
    kept = f"{REF}.replaced/{old[:12]}"
    assert again.list_refs().split("\n") == [f"{REF} {new}", f"{kept} {old}"]
    assert kept in again.notes[0]


async def test_refs_that_are_newer_than_the_store_stay_while_their_lead_runs(
    project: Path, store: WorkStore
) -> None:
    """The store may have refused the last part."""
    here = clone(project, "here", store)
    here.checkpoint("one")
    await here.store()
    newer = here.checkpoint("two")
    await here.restore()
    assert here.list_refs() == f"{REF} {newer}"


async def test_work_whose_ref_a_person_removes_meanwhile_is_not_stored(
    project: Path, store: WorkStore
) -> None:
    here = clone(project, "here", store)
    for _ in range(2):
        with pytest.raises(WorktreeError, match=f"{REF} was removed"):
            await here.store()
        here.checkpoint("one")
        await here.store()
        run_git(here.top, "update-ref", "-d", REF)
    assert len(store.read_parts("ann")) == 1
