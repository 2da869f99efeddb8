"""The checkout of an agent on a machine of a cluster, confined like a worktree."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.core.agents.worktrees import MachineCheckoutPaths, WorktreeOwnerProcess, WorktreeRecord
from shoal.core.text.filenames import escape_filename
from shoal.workspaces.git_paths import iter_git_control_paths
from shoal.workspaces.workspace_texts import format_workspace_notice
from shoal.workspaces.worktree import Worktree


class ConfinedCheckout(Worktree, frozen=True, kw_only=True):
    """Checkout with its own repository, which borrows the objects of the machine's shared one."""

    @property
    def writable_paths(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def sealed_paths(self) -> tuple[Path, ...]:
        """Directories with the checkouts of other agents and the repositories of this machine."""
        return (self.path.parent, self.common.parent)

    @property
    def read_only_paths(self) -> tuple[Path, ...]:
        return (*iter_git_control_paths(self.path), self.entry / "objects" / "info" / "alternates")

    def describe_refused_write(self, path: Path) -> str:
        top = escape_filename(self.path)
        return format_workspace_notice("outside_checkout", path=escape_filename(path), checkout=top)


def open_confined_checkout(paths: MachineCheckoutPaths, cwd: Path, *, session: str) -> ConfinedCheckout:
    """Open the checkout of an agent that works in `cwd`, which is in the checkout."""
    top, repository = Path(os.path.realpath(paths.top)), Path(os.path.realpath(paths.repository))
    record = WorktreeRecord(
        name=top.name,
        agent="",
        # The checkout has its own record of the process that may remove it.
        owner=WorktreeOwnerProcess(pid=os.getpid(), started=0, lease="", session=session),
        path=top,
        branch="",
        base="",
        checkout=top,
        inside=os.path.relpath(os.path.realpath(cwd), top),
        made_at=0,
        state="live",
    )
    return ConfinedCheckout(
        record=record, common=repository, entry=top / ".git", shared_objects=(repository / "objects",)
    )
