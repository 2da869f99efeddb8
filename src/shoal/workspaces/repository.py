"""Paths of the git repository around a directory: what commits write, and what controls git."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_LONGEST = 4096


def writable_of_git(directory: Path) -> Iterator[Path]:
    """Yield the paths outside the directory that a commit writes: the repository around or behind it."""
    for place in (directory, *directory.parents):
        dot = place / ".git"
        if dot.is_dir():
            if place != directory:
                yield dot
            return
        entry = _worktree_entry(dot)
        if entry is not None:
            common = _common(entry)
            yield from (entry, common / "objects", common / "refs", common / "logs")
            return


def kept_of_git(directory: Path) -> Iterator[Path]:
    """Yield the paths that decide which programs git runs, so that an agent cannot change the user's git."""
    for place in (directory, *directory.parents):
        dot = place / ".git"
        if dot.is_dir():
            yield from (dot / "hooks", dot / "config", dot / "config.worktree")
            return
        entry = _worktree_entry(dot)
        if entry is not None:
            yield dot
            yield from (entry / name for name in ("gitdir", "commondir", "config.worktree"))
            return


def head_commit(directory: Path) -> str | None:
    """Return the commit of the checkout around a directory from git's own files; None if that fails."""
    for place in (directory, *directory.parents):
        dot = place / ".git"
        if dot.exists():
            entry = dot if dot.is_dir() else _worktree_entry(dot)
            return None if entry is None else _commit_at(entry)
    return None


def _commit_at(entry: Path) -> str | None:
    head = _line(entry / "HEAD")
    ref = head.removeprefix("ref: ")
    if ref == head:
        return head or None
    common = _common(entry) if (entry / "commondir").exists() else entry
    return _line(entry / ref) or _line(common / ref) or _packed(common / "packed-refs", ref)


def _packed(path: Path, ref: str) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    return next((line.split(" ", 1)[0] for line in lines if line.endswith(f" {ref}")), None)


def _worktree_entry(dot: Path) -> Path | None:
    """Return the `worktrees/NAME` directory in a worktree's .git file, if it refers back to the worktree."""
    named = _line(dot).removeprefix("gitdir: ")
    if not named:
        return None
    entry = Path(os.path.realpath(dot.parent / named))
    # Anyone can write a .git file that names another repository; that one would not refer back to it.
    return entry if os.path.realpath(entry / _line(entry / "gitdir")) == os.path.realpath(dot) else None


def _common(entry: Path) -> Path:
    return Path(os.path.realpath(entry / (_line(entry / "commondir") or "../..")))


def _line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(_LONGEST)).split("\n", 1)[0]
    except OSError:
        return ""
