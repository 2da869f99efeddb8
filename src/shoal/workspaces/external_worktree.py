"""A working directory for one agent that another program created, used in place of a git worktree."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.core.agents.worktrees import WorktreeOwnerProcess, WorktreeRecord
from shoal.core.errors import WorktreeError
from shoal.core.text.filenames import escape_filename
from shoal.workspaces.owner_lease import get_process_start_ticks
from shoal.workspaces.workspace_texts import format_workspace_notice
from shoal.workspaces.worktree import Worktree


class ExternalWorktree(Worktree, frozen=True, kw_only=True):
    """Worktree without a known repository, so only its own files can be written."""

    @property
    def writable_paths(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def sealed_paths(self) -> tuple[Path, ...]:
        return (self.record.checkout,)

    @property
    def read_only_paths(self) -> tuple[Path, ...]:
        return ()


def open_external_worktree(path: Path, *, root: Path, agent: str, session: str, now: int) -> ExternalWorktree:
    """Open the directory; `root` is the lead's. Raises `WorktreeError` if the agent would not be separate."""
    if not path.is_absolute() or not _is_directory(path):
        raise WorktreeError(format_workspace_notice("not_a_directory", path=escape_filename(path)))
    real, lead = Path(os.path.realpath(path)), Path(os.path.realpath(root))
    if lead.is_relative_to(real):
        raise WorktreeError(format_workspace_notice("directory_of_lead", path=escape_filename(path)))
    pid = os.getpid()
    record = WorktreeRecord(
        name=str(real),
        agent=agent,
        owner=WorktreeOwnerProcess(pid=pid, started=get_process_start_ticks(pid), lease="", session=session),
        path=real,
        branch="",
        base="",
        checkout=lead,
        made_at=now,
        state="live",
    )
    return ExternalWorktree(record=record, common=lead, entry=real)


def _is_directory(path: Path) -> bool:
    """Also return False for paths that the system rejects, because a program may output anything."""
    try:
        return path.is_dir()
    except OSError:
        return False


def describe_external_worktree(worktree: ExternalWorktree) -> str:
    """Describe the directory to the agent that starts in it."""
    return format_workspace_notice(
        "external_worktree",
        root=escape_filename(worktree.root),
        checkout=escape_filename(worktree.record.checkout),
    )
