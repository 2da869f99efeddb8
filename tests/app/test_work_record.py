"""Work of agents on other machines that is too large for one part."""

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
from shoal.stores.memory.memory_store import MemoryStore
from shoal.workspaces.checkout import find_git_checkout
from shoal.workspaces.git_runner import GitRunner

pytestmark = pytest.mark.needs("git")
MEGABYTE = 1 << 20
LAST = WorkPart(agent="ann", refs={"": "a" * 40}, needed=(), is_first=False, bundle=b"")


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

    def run_git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    run_git("init", "-q")
    run_git("commit", "-q", "--allow-empty", "-m", "first")
    (tmp_path / "large").write_bytes(os.urandom(2 * MEGABYTE))
    run_git("add", "-A")
    run_git("commit", "-qm", "work")
    run_git("update-ref", "refs/shoal/cluster/s1/ann", "HEAD")
    run_git("reset", "-q", "--hard", "HEAD~1")
    store = MemoryStore().create_session(SessionId("s1"), cwd="/project").open_work()
    git = GitRunner(os.environ, SystemClock())
    record = WorkRecord(git, store, "s1", pytest.fail)
    with pytest.raises(WorktreeError, match=r"The new work of ann has 2 MB.* at most 1 MB"):
        await record.store_work(await find_git_checkout(git, tmp_path), "ann")
    assert store.list_summaries() == {}
