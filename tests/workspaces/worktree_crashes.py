"""Run as `python worktree_crashes.py DIRECTORY [N]`: kills a process at each Nth step of a worktree's life.

Before each system call that changes something, and before each git: the process dies, another one reaps, and
the agent's work must be found. Prints how often each life ended early.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins"))

from git_repository import SESSION, GitRepository, run_git

WATCHED_EVENTS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "subprocess.Popen")
Begin: TypeAlias = Callable[[], None]
WorktreeLife: TypeAlias = Callable[[GitRepository, Begin], Coroutine[Any, Any, None]]


async def finish_unused(repository: GitRepository, begin: Begin) -> None:
    begin()
    worktrees = repository.open_worktrees()
    await worktrees.finish_worktree(await worktrees.create_worktree("a0123456789", session=SESSION))


async def remove_with_work(repository: GitRepository, begin: Begin) -> None:
    worktrees = repository.open_worktrees()
    worktree = await worktrees.create_worktree("a0123456789", session=SESSION)
    (worktree.path / "new.txt").write_text("work\n")
    begin()
    await worktrees.finish_worktree(worktree)
    await worktrees.remove_worktree(worktree.name, force=True)


async def merge_with_work(repository: GitRepository, begin: Begin) -> None:
    worktrees = repository.open_worktrees()
    worktree = await worktrees.create_worktree("a0123456789", session=SESSION)
    (worktree.path / "new.txt").write_text("work\n")
    await worktrees.finish_worktree(worktree)
    begin()
    await worktrees.merge_worktree(worktree.name)


def run_until_killed(life: WorktreeLife, repository: GitRepository, last: int) -> bool:
    """Return True if it finished before the step at which it was to be killed."""
    child = os.fork()
    if child == 0:
        left: int | None = None

        def start_counting() -> None:
            nonlocal left
            left = last

        def count_step(event: str, _: object) -> None:
            nonlocal left
            if left is not None and event in WATCHED_EVENTS:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count_step)
        asyncio.run(life(repository, start_counting))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0, f"{life.__name__} failed"
    return True


def has_work(repository: GitRepository) -> bool:
    names = "".join(f"{place}:new.txt\n" for place in (*repository.retained_refs, "main")).encode()
    words = ["git", "cat-file", "--batch"]
    said = subprocess.run(words, cwd=repository.top, input=names, capture_output=True, check=True)
    return b"\nwork\n" in said.stdout


async def check_recovery(repository: GitRepository, *, has_work_done: bool) -> None:
    worktrees = repository.open_worktrees()
    # A git that the dead process had started may run for a moment: its worktree counts as owned.
    for lease in repository.home.glob("worktrees/*/.owners/*"):
        with lease.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    await worktrees.reap_abandoned_worktrees()
    if has_work_done:
        assert has_work(repository), "the work is lost"
    for record in repository.home.glob("worktrees/*/agent-*.json"):
        await worktrees.merge_worktree(record.stem)
        assert has_work(repository), "the work is lost in the merge"
    assert repository.has_no_leftovers(), list(repository.home.rglob("*"))
    assert run_git(repository.top, "status", "--porcelain") == ""


def main(directory: Path, stride: int) -> None:
    first = GitRepository(directory / "first")
    for life in (finish_unused, remove_with_work, merge_with_work):
        last, deaths = 1, 0
        while True:
            repository = first.copy_to(directory / f"{life.__name__}-{last}")
            if run_until_killed(life, repository, last):
                break
            try:
                asyncio.run(check_recovery(repository, has_work_done=life is not finish_unused))
            except BaseException:
                sys.stderr.write(f"{life.__name__}, killed at step {last}\n")
                raise
            shutil.rmtree(repository.top.parent)
            last, deaths = last + stride, deaths + 1
        sys.stdout.write(f"{life.__name__} {deaths}\n")


main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
