"""The repository lock has one holder at a time, even when waiters are cancelled."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.workspaces.repository_lock import GitRepositoryLock


async def test_a_cancelled_waiter_releases_the_lock_and_its_file(tmp_path: Path) -> None:
    first, others = (
        GitRepositoryLock(tmp_path, SystemClock()),
        [GitRepositoryLock(tmp_path, SystemClock()) for _ in range(40)],
    )
    entered: list[int] = []

    async def enter(at: int) -> None:
        async with others[at].acquire():
            entered.append(at)
            # The holder needs a thread of the loop while all the others wait.
            await asyncio.to_thread(os.getpid)

    open_before = _count_open_files()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group, first.acquire():
        tasks = [group.create_task(enter(at)) for at in range(40)]
        await asyncio.to_thread(os.getpid)
        for task in tasks[::2]:
            task.cancel()
    assert sorted(entered) == list(range(1, 40, 2))
    async with asyncio.timeout(20):
        while _count_open_files() > open_before:
            # A thread that still waited has the lock now, and its turn in the loop comes next.
            await asyncio.to_thread(os.getpid)
    with (tmp_path / "shoal-worktrees.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
