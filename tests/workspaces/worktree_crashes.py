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

from git_rig import SESSION, Repository, git

WATCHED = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "subprocess.Popen")
Begin: TypeAlias = Callable[[], None]
Life: TypeAlias = Callable[[Repository, Begin], Coroutine[Any, Any, None]]


async def idle(repository: Repository, begin: Begin) -> None:
    begin()
    worktrees = repository.worktrees()
    await worktrees.finish(await worktrees.make("a0123456789", session=SESSION))


async def removed(repository: Repository, begin: Begin) -> None:
    worktrees = repository.worktrees()
    worktree = await worktrees.make("a0123456789", session=SESSION)
    (worktree.path / "new.txt").write_text("work\n")
    begin()
    await worktrees.finish(worktree)
    await worktrees.remove(worktree.name, force=True)


async def merged(repository: Repository, begin: Begin) -> None:
    worktrees = repository.worktrees()
    worktree = await worktrees.make("a0123456789", session=SESSION)
    (worktree.path / "new.txt").write_text("work\n")
    await worktrees.finish(worktree)
    begin()
    await worktrees.merge(worktree.name)


def lived(life: Life, repository: Repository, last: int) -> bool:
    """Return True if it finished before the step at which it was to be killed."""
    child = os.fork()
    if child == 0:
        left: int | None = None

        def begin() -> None:
            nonlocal left
            left = last

        def step(event: str, _: object) -> None:
            nonlocal left
            if left is not None and event in WATCHED:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(step)
        asyncio.run(life(repository, begin))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0, f"{life.__name__} failed"
    return True


def found(repository: Repository) -> bool:
    names = "".join(f"{place}:new.txt\n" for place in (*repository.kept, "main")).encode()
    words = ["git", "cat-file", "--batch"]
    said = subprocess.run(words, cwd=repository.top, input=names, capture_output=True, check=True)
    return b"\nwork\n" in said.stdout


async def check(repository: Repository, *, worked: bool) -> None:
    worktrees = repository.worktrees()
    # A git that the dead process had started may run for a moment: its worktree counts as owned.
    for lease in repository.home.glob("worktrees/*/.owners/*"):
        with lease.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    await worktrees.reap()
    if worked:
        assert found(repository), "the work is lost"
    for record in repository.home.glob("worktrees/*/agent-*.json"):
        await worktrees.merge(record.stem)
        assert found(repository), "the work is lost in the merge"
    assert repository.nothing_left(), list(repository.home.rglob("*"))
    assert git(repository.top, "status", "--porcelain") == ""


def main(directory: Path, stride: int) -> None:
    first = Repository(directory / "first")
    for life in (idle, removed, merged):
        last, deaths = 1, 0
        while True:
            repository = first.copied(directory / f"{life.__name__}-{last}")
            if lived(life, repository, last):
                break
            try:
                asyncio.run(check(repository, worked=life is not idle))
            except BaseException:
                sys.stderr.write(f"{life.__name__}, killed at step {last}\n")
                raise
            shutil.rmtree(repository.top.parent)
            last, deaths = last + stride, deaths + 1
        sys.stdout.write(f"{life.__name__} {deaths}\n")


main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
