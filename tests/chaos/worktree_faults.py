"""Finds faults of the worktrees of a round, when nobody works in them any more."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

OWN_LOCK_NAME = "shoal-worktrees.lock"
"""This file remains and blocks nobody: the lock on it ends with its owner."""


class _ListedWorktree(Struct, frozen=True):
    path: Path
    branch: str


def find_worktree_faults(directory: Path) -> Iterator[str]:
    """Check after `shoal worktree reap` that worktrees hold work, and that git, disk and records agree."""
    project = directory / "project"
    trees = {each.path.name: each for each in _list_worktrees(project) if each.path != project}
    there = {path.name for path in (directory / "home").glob("worktrees/*/agent-*") if path.is_dir()}
    known = {path.stem for path in (directory / "home").glob("worktrees/*/agent-*.json")}
    yield from (f"git knows of the worktree {name}, which is gone" for name in sorted({*trees} - there))
    yield from (f"git does not know of the worktree {name}" for name in sorted(there - {*trees}))
    yield from (f"the worktree {name} is in no record" for name in sorted(there - known))
    yield from (f"the worktree {name} is recorded and gone" for name in sorted(known - there))
    yield from (
        f"the worktree {name} is left over, with no work in it"
        for name in sorted({*trees} & there)
        if not _run_git(trees[name].path, "status", "--porcelain", "--ignored")
        and not _run_git(trees[name].path, "log", "--format=%h", "main..HEAD")
    )
    branches = {*_run_git(project, "for-each-ref", "--format=%(refname)", "refs/heads").splitlines()}
    used = {"refs/heads/main", *(tree.branch for tree in trees.values())}
    yield from (f"the branch {branch} is left over" for branch in sorted(branches - used))
    locks = (path for path in (project / ".git").rglob("*.lock") if path.name != OWN_LOCK_NAME)
    yield from (f"left behind: {path.relative_to(directory)}" for path in locks)


def _list_worktrees(project: Path) -> Iterator[_ListedWorktree]:
    for block in _run_git(project, "worktree", "list", "--porcelain").split("\n\n"):
        facts = dict(row.partition(" ")[::2] for row in block.splitlines())
        if "worktree" in facts:
            yield _ListedWorktree(Path(facts["worktree"]), facts.get("branch", ""))


def _run_git(where: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=where, capture_output=True, text=True, check=False)
    return done.stdout.strip() if not done.returncode else f"failed: {done.stderr.strip()}"
