"""A working directory for one agent that another program created, used in place of a git worktree."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.core.errors import WorktreeError
from shoal.core.filenames import shown
from shoal.core.worktrees import Owner, WorktreeRecord
from shoal.workspaces.owners import started
from shoal.workspaces.worktree import Worktree


class GivenWorktree(Worktree, frozen=True, kw_only=True):
    """Worktree without a known repository, so only its own files can be written."""

    @property
    def writable(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def sealed(self) -> tuple[Path, ...]:
        return (self.record.checkout,)

    @property
    def kept(self) -> tuple[Path, ...]:
        return ()


def given_worktree(path: Path, *, root: Path, agent: str, session: str, now: int) -> GivenWorktree:
    """Open the directory; `root` is the lead's. Raises `WorktreeError` if the agent would not be separate."""
    if not path.is_absolute() or not _is_directory(path):
        raise WorktreeError(f"{shown(path)} is no directory. Its whole path is expected.")
    real, lead = Path(os.path.realpath(path)), Path(os.path.realpath(root))
    if lead.is_relative_to(real):
        raise WorktreeError(f"{shown(path)} is where the lead works, or holds it.")
    pid = os.getpid()
    record = WorktreeRecord(
        name=str(real),
        agent=agent,
        owner=Owner(pid=pid, started=started(pid), lease="", session=session),
        path=real,
        branch="",
        base="",
        checkout=lead,
        made_at=now,
        state="live",
    )
    return GivenWorktree(record=record, common=lead, entry=real)


def _is_directory(path: Path) -> bool:
    """Return False also for paths that the system rejects, because a program may output anything."""
    try:
        return path.is_dir()
    except OSError:
        return False


def told_of_given(worktree: GivenWorktree) -> str:
    """Describe the directory to the agent that starts in it."""
    return (
        f"You work in {shown(worktree.root)}, a copy of {shown(worktree.record.checkout)} of your own.\n"
        "Nothing outside of it can be changed. What you leave in it is kept for the lead."
    )
