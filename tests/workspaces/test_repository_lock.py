"""One at a time, whoever waits and whoever gives up."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.workspaces.repository_lock import RepositoryLock


async def test_whoever_gives_up_waiting_leaves_the_lock_and_its_file_free(tmp_path: Path) -> None:
    first, others = (
        RepositoryLock(tmp_path, SystemClock()),
        [RepositoryLock(tmp_path, SystemClock()) for _ in range(40)],
    )
    entered: list[int] = []

    async def enter(at: int) -> None:
        async with others[at].held():
            entered.append(at)
            # The holder needs a thread of the loop while all the others wait.
            await asyncio.to_thread(os.getpid)

    open_before = _open_files()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group, first.held():
        tasks = [group.create_task(enter(at)) for at in range(40)]
        await asyncio.to_thread(os.getpid)
        for task in tasks[::2]:
            task.cancel()
    assert sorted(entered) == list(range(1, 40, 2))
    async with asyncio.timeout(20):
        while _open_files() > open_before:
            # A thread that still waited has the lock now, and its turn in the loop comes next.
            await asyncio.to_thread(os.getpid)
    with (tmp_path / "shoal-worktrees.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
