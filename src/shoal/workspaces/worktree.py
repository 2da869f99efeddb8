"""The worktree of one agent: its files, the writable parts of the repository, and its description."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from shoal.core.agents.worktrees import WorktreeRecord
from shoal.core.errors import WorkspaceError
from shoal.core.text.filenames import escape_filename
from shoal.core.user_environment import UserEnvironment
from shoal.workspaces.checkpoints import CheckpointStore
from shoal.workspaces.local_workspace import LocalWorkspace, WriteGuard
from shoal.workspaces.workspace_texts import format_workspace_notice
from shoal.workspaces.worktree_changes import get_agent_branch_prefix


class Worktree(Struct, frozen=True, kw_only=True):
    record: WorktreeRecord
    common: Path
    """Directory of the repository."""
    entry: Path
    """Directory of the repository for this worktree only."""
    notes: tuple[str, ...] = ()
    """Changes in the lead's checkout that are not in the worktree, as sentences for the agent."""
    shared_objects: tuple[Path, ...] = ()
    """Objects of other repositories that its commits contain."""

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def path(self) -> Path:
        return self.record.path

    @property
    def root(self) -> Path:
        """Directory in which the agent works, corresponding to the lead's directory in its checkout."""
        directory = self.path / self.record.inside
        return directory if directory.is_dir() else self.path

    @property
    def writable_paths(self) -> tuple[Path, ...]:
        """Paths that the agent's commands may write, as a commit needs; creates the branch directories."""
        ref_directories = (self.common / "refs/heads", self.common / "logs/refs/heads")
        branches = [directory / get_agent_branch_prefix(self.name) for directory in ref_directories]
        for directory in branches:
            # Packing the refs removes it while it is empty.
            directory.mkdir(parents=True, exist_ok=True)
        return (self.path, self.entry, self.common / "objects", *branches)

    @property
    def sealed_paths(self) -> tuple[Path, ...]:
        """Paths that the agent's commands must not write, even inside a writable directory."""
        return (self.record.checkout, self.common)

    @property
    def read_only_paths(self) -> tuple[Path, ...]:
        """Read-only paths inside writable ones: files that redirect git, and packed history."""
        return (
            self.path / ".git",
            *(self.entry / name for name in ("gitdir", "commondir", "config.worktree")),
            *(self.common / "objects" / name for name in ("pack", "info")),
        )

    def describe_refused_write(self, path: Path) -> str:
        """Tell the agent why it cannot write to a real path outside the worktree."""
        record = self.record
        checkout = Path(os.path.realpath(record.checkout))
        if path.is_relative_to(checkout):
            own_path = escape_filename(record.path / path.relative_to(checkout))
            return format_workspace_notice("lead_checkout", path=escape_filename(path), own_path=own_path)
        worktree = escape_filename(record.path)
        return format_workspace_notice("outside_worktree", path=escape_filename(path), worktree=worktree)

    def create_workspace(
        self,
        *,
        granted: Iterable[Path] = (),
        extra_writable: Iterable[Path] = (),
        checkpoints: CheckpointStore | None = None,
        on_change: Callable[[int, Path], None] | None = None,
        write_guard: WriteGuard | None = None,
        user: UserEnvironment | None = None,
    ) -> WorktreeWorkspace:
        """Create a workspace; file tools may also write in `extra_writable`, as for plans."""
        return WorktreeWorkspace(
            self,
            granted=granted,
            extra_writable=extra_writable,
            checkpoints=checkpoints,
            on_change=on_change,
            write_guard=write_guard,
            user=user,
        )


class WorktreeWorkspace(LocalWorkspace):
    """Workspace that writes nothing outside the worktree and granted directories, whatever rules allow."""

    def __init__(
        self,
        worktree: Worktree,
        *,
        granted: Iterable[Path] = (),
        extra_writable: Iterable[Path] = (),
        checkpoints: CheckpointStore | None = None,
        on_change: Callable[[int, Path], None] | None = None,
        write_guard: WriteGuard | None = None,
        user: UserEnvironment | None = None,
    ) -> None:
        self._worktree = worktree
        self._sealed_paths = tuple(Path(os.path.realpath(path)) for path in worktree.sealed_paths)
        self._worktree_path = Path(os.path.realpath(worktree.path))
        self._extra_writable = tuple(Path(os.path.realpath(directory)) for directory in extra_writable)
        super().__init__(
            worktree.root, checkpoints=checkpoints, on_change=on_change, write_guard=write_guard, user=user
        )
        for directory in granted:
            self.grant_directory(directory)

    def grant_directory(self, directory: Path) -> None:
        """Grant a directory, unless it is in the lead's checkout, which the worktree replaces."""
        if not _is_inside_any(Path(os.path.realpath(directory)), self._sealed_paths):
            super().grant_directory(directory)

    def allow_writes(self, directory: Path) -> None:
        """Let file tools write there too; the path is real, so a link put in its place has no effect."""
        self._extra_writable = (*self._extra_writable, directory)

    def contains_path(self, path: Path) -> bool:
        return super().contains_path(path) and self._can_write(path)

    def read_file_for_change(self, path: Path, *, intended: bytes | None = None) -> bytes:
        self._refuse_write_outside_worktree(path)
        return super().read_file_for_change(path, intended=intended)

    def write_file(self, path: Path, content: bytes) -> None:
        self._refuse_write_outside_worktree(path)
        super().write_file(path, content)

    def _can_write(self, path: Path) -> bool:
        real = Path(os.path.realpath(self.cwd / path))
        if _is_inside_any(real, (self._worktree_path, *self._extra_writable)):
            return True
        return _is_inside_any(real, self.granted_directories) and not _is_inside_any(real, self._sealed_paths)

    def _refuse_write_outside_worktree(self, path: Path) -> None:
        if self._can_write(path):
            return
        real = Path(os.path.realpath(self.cwd / path))
        raise WorkspaceError(self._worktree.describe_refused_write(real))


def _is_inside_any(path: Path, directories: Iterable[Path]) -> bool:
    return any(path.is_relative_to(place) for place in directories)


def describe_worktree(worktree: Worktree) -> str:
    """Describe the worktree to the agent that starts in it."""
    record = worktree.record
    notice = format_workspace_notice(
        "worktree",
        root=escape_filename(worktree.root),
        branch=record.branch,
        base=record.base[:12],
        checkout=escape_filename(record.checkout),
    )
    return "\n".join((notice, *worktree.notes))


def describe_worktree_to_fork(worktree: Worktree) -> str:
    """Describe the worktree to a fork, whose conversation has the lead's paths and contents."""
    checkout, path = escape_filename(worktree.record.checkout), escape_filename(worktree.record.path)
    return "\n".join(
        (describe_worktree(worktree), format_workspace_notice("fork_paths", checkout=checkout, path=path))
    )
