"""Work of agents on other machines that is too large for one part, or damaged in the store."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from shoal.app.agents import work_record
from shoal.app.agents.work_record import WorkRecord, is_replacement_due
from shoal.core.clock import SystemClock
from shoal.core.errors import WorktreeError
from shoal.core.ids import SessionId
from shoal.core.store import MAX_WORK_PART, WorkPart, WorkSummary
from shoal.stores.files.file_store import FileStore
from shoal.stores.memory.memory_store import MemoryStore
from shoal.workspaces.checkout import find_git_checkout
from shoal.workspaces.git_runner import GitRunner

pytestmark = pytest.mark.needs("git")
MEGABYTE = 1 << 20
LAST = WorkPart(agent="ann", refs={"": "a" * 40}, needed=(), is_first=False, bundle=b"")


def run_git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def create_work(directory: Path, content: bytes) -> None:
    """Create a repository with the work of two agents on top of its first commit."""
    run_git(directory, "init", "-q")
    run_git(directory, "commit", "-q", "--allow-empty", "-m", "first")
    (directory / "work").write_bytes(content)
    run_git(directory, "add", "-A")
    run_git(directory, "commit", "-qm", "work")
    for agent in ("ann", "ben"):
        run_git(directory, "update-ref", f"refs/shoal/cluster/s1/{agent}", "HEAD")
    run_git(directory, "reset", "-q", "--hard", "HEAD~1")


def test_parts_that_do_not_fit_into_one_are_not_replaced() -> None:
    """Otherwise nothing could be stored any more, however small the next part is."""
    summary = WorkSummary(
        last=LAST, parts=3, first_size=100 * MEGABYTE, later_size=MAX_WORK_PART // 2 - 100 * MEGABYTE
    )
    assert is_replacement_due(summary)
    assert not is_replacement_due(replace(summary, parts=99, later_size=summary.later_size + 1))


async def test_work_that_the_store_cannot_hold_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_record, "MAX_WORK_PART", MEGABYTE)

    create_work(tmp_path, os.urandom(2 * MEGABYTE))
    store = MemoryStore().create_session(SessionId("s1"), cwd="/project").open_work()
    git = GitRunner(os.environ, SystemClock())
    record = WorkRecord(git, store, "s1", pytest.fail)
    with pytest.raises(WorktreeError, match=r"The new work of ann has 2 MB.* at most 1 MB"):
        await record.store_work(await find_git_checkout(git, tmp_path), "ann")
    assert store.list_summaries() == {}


@pytest.mark.parametrize("damage", ["bundle", "state"])
async def test_damaged_work_of_one_agent_is_named_and_the_others_are_restored(
    tmp_path: Path, damage: str
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    create_work(here, b"x")
    run_git(tmp_path, "clone", "-q", "here", "there")
    store = FileStore(tmp_path / "home").create_session(SessionId("s1"), cwd="/project")
    git, notes = GitRunner(os.environ, SystemClock()), list[str]()
    refs, record = "refs/shoal/cluster/s1", WorkRecord(git, store.open_work(), "s1", pytest.fail)
    for agent in ("ann", "ben"):
        await record.store_work(await find_git_checkout(git, here), agent)
    checkout = await find_git_checkout(git, there)
    later = WorkRecord(git, store.open_work(), "s1", notes.append)
    if damage == "state":
        await later.restore_work(checkout, "nobody")  # the damage happens while the lead runs
    (part,) = tmp_path.glob("home/**/ann/*.work")
    content = part.read_bytes()
    part.write_bytes(content[:-30] if damage == "bundle" else b"{}" + content)
    await later.restore_all(checkout)
    listing = run_git(there, "for-each-ref", "--format=%(refname)", "refs/shoal/")
    assert listing == f"{refs}/ben"
    assert notes[1:] == [f"The work of ben was restored from the store as {refs}/ben."]
    named = f"The stored work of ann cannot be restored as {refs}/ann: git fetch failed"
    assert notes[0].startswith(named if damage == "bundle" else f"{part} is not valid")
