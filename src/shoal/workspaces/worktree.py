"""The worktree of one agent: its files, the writable parts of the repository, and its description."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import WorkspaceError
from shoal.core.filenames import shown
from shoal.core.worktrees import WorktreeRecord
from shoal.workspaces.checkpoints import Checkpoints
from shoal.workspaces.local import LocalWorkspace
from shoal.workspaces.work import prefix_of


class Worktree(Struct, frozen=True, kw_only=True):
    record: WorktreeRecord
    common: Path
    """Directory of the repository."""
    entry: Path
    """Directory of the repository for this worktree only."""
    notes: tuple[str, ...] = ()
    """Changes of the lead's checkout that it lacks, as sentences for the agent."""

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def path(self) -> Path:
        return self.record.path

    @property
    def root(self) -> Path:
        """Directory in which the agent works, corresponding to the lead's directory in its checkout."""
        place = self.path / self.record.inside
        return place if place.is_dir() else self.path

    @property
    def writable(self) -> tuple[Path, ...]:
        """Paths that the agent's commands may write, as a commit needs; creates the branch directories."""
        own = (self.common / "refs/heads", self.common / "logs/refs/heads")
        branches = [directory / prefix_of(self.name) for directory in own]
        for directory in branches:
            # Packing the refs removes it while it is empty.
            directory.mkdir(parents=True, exist_ok=True)
        return (self.path, self.entry, self.common / "objects", *branches)

    @property
    def sealed(self) -> tuple[Path, ...]:
        """Paths that the agent's commands must not write, even inside a writable directory."""
        return (self.record.checkout, self.common)

    @property
    def kept(self) -> tuple[Path, ...]:
        """Read-only paths inside writable ones: files that redirect git, and packed history."""
        return (
            self.path / ".git",
            *(self.entry / name for name in ("gitdir", "commondir", "config.worktree")),
            *(self.common / "objects" / name for name in ("pack", "info")),
        )

    def workspace(
        self,
        *,
        granted: Iterable[Path] = (),
        lent: Iterable[Path] = (),
        checkpoints: Checkpoints | None = None,
        changed: Callable[[int, Path], None] | None = None,
    ) -> WorktreeWorkspace:
        """Create a workspace; file tools may also write in `extra_writable`, as for plans."""
        return WorktreeWorkspace(self, granted=granted, lent=lent, checkpoints=checkpoints, changed=changed)


class WorktreeWorkspace(LocalWorkspace):
    """Workspace that writes nothing outside the worktree and granted directories, whatever rules allow."""

    def __init__(
        self,
        worktree: Worktree,
        *,
        granted: Iterable[Path] = (),
        lent: Iterable[Path] = (),
        checkpoints: Checkpoints | None = None,
        changed: Callable[[int, Path], None] | None = None,
    ) -> None:
        self._worktree = worktree
        self._barred = tuple(Path(os.path.realpath(path)) for path in worktree.sealed)
        self._own = Path(os.path.realpath(worktree.path))
        self._lent = tuple(Path(os.path.realpath(directory)) for directory in lent)
        super().__init__(worktree.root, checkpoints=checkpoints, changed=changed)
        for directory in granted:
            self.grant(directory)

    def grant(self, directory: Path) -> None:
        """Grant a directory, unless it is in the lead's checkout, which the worktree replaces."""
        if not _inside(Path(os.path.realpath(directory)), self._barred):
            super().grant(directory)

    def lend(self, directory: Path) -> None:
        """Let file tools write there too; the path is real, so a link put in its place has no effect."""
        self._lent = (*self._lent, directory)

    def contains(self, path: Path) -> bool:
        return super().contains(path) and self._may_write(path)

    def current(self, path: Path, *, intended: bytes | None = None) -> bytes:
        self._refuse_outside(path)
        return super().current(path, intended=intended)

    def write(self, path: Path, content: bytes) -> None:
        self._refuse_outside(path)
        super().write(path, content)

    def _may_write(self, path: Path) -> bool:
        real = Path(os.path.realpath(self.cwd / path))
        if _inside(real, (self._own, *self._lent)):
            return True
        return _inside(real, self.granted) and not _inside(real, self._barred)

    def _refuse_outside(self, path: Path) -> None:
        if self._may_write(path):
            return
        real, record = Path(os.path.realpath(self.cwd / path)), self._worktree.record
        checkout = Path(os.path.realpath(record.checkout))
        if real.is_relative_to(checkout):
            raise WorkspaceError(
                f"{shown(real)} belongs to the lead's checkout. You work in a copy of it: "
                f"change {shown(record.path / real.relative_to(checkout))} instead."
            )
        raise WorkspaceError(
            f"{shown(real)} is outside your worktree {shown(record.path)}. Nothing outside of it is changed."
        )


def _inside(path: Path, places: Iterable[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def told_to_agent(worktree: Worktree) -> str:
    """Describe the worktree to the agent that starts in it."""
    record = worktree.record
    where = f"You work in {shown(worktree.root)}, a git worktree of your own on the branch {record.branch}"
    lines = [
        f"{where}, made from commit {record.base[:12]} of {shown(record.checkout)}.",
        "Nothing outside of it can be changed. What you leave in it, committed or not, is kept for the lead.",
        *worktree.notes,
    ]
    return "\n".join(lines)


def told_to_fork(worktree: Worktree) -> str:
    """Describe the worktree to a fork, whose conversation has the lead's paths and contents."""
    record = worktree.record
    return "\n".join(
        (
            told_to_agent(worktree),
            f"The conversation so far was held in {shown(record.checkout)}. Its paths must be translated: "
            f"{shown(record.checkout)}/… is {shown(record.path)}/… for you. "
            "Read files anew before you change them: what you saw of them may differ here.",
        )
    )
