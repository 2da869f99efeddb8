"""Git worktrees of agents: their owners, changes and final states."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

WorktreeState: TypeAlias = Literal["making", "live", "kept", "removing"]
"""State after a crash: `making` holds no work yet, `removing` holds none that is not stored elsewhere."""


class WorktreeOwnerProcess(Struct, frozen=True, kw_only=True):
    """Process that created the worktree. `lease` names the file it keeps locked while it runs."""

    pid: int
    started: int
    """Start time of the process as the system counts it; 0 if unknown."""
    lease: str
    session: str


class WorktreeRecord(Struct, frozen=True, kw_only=True):
    """Stored facts about a worktree, before, while and after it exists."""

    name: str
    agent: str
    owner: WorktreeOwnerProcess
    path: Path
    branch: str
    base: str
    """Commit it was created from."""
    checkout: Path
    """Working tree of the lead."""
    inside: str = ""
    """Directory of the lead relative to its checkout; empty at the top."""
    made_at: int
    state: WorktreeState = "making"


class MachineCheckoutPaths(Struct, frozen=True, kw_only=True):
    """Places of a checkout that a machine of a cluster made for one agent."""

    top: str
    repository: str
    """Bare repository whose objects all checkouts of the project share."""


class WorktreeChanges(Struct, frozen=True, kw_only=True):
    """Changes in a worktree since it was created."""

    head: str
    tips: tuple[str, ...]
    """Commits that contain all others: of HEAD and of other branches of the agent."""
    commits: int = 0
    subjects: tuple[str, ...] = ()
    """Subjects of the newest commits, newest first."""
    files: tuple[str, ...] = ()
    """Every file that differs from the base, committed or not."""
    uncommitted: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    """Nested repositories, whose content no ref of this one can hold."""
    moved: bool = False
    """True if HEAD or another ref has a commit that the base does not contain."""

    @property
    def is_empty(self) -> bool:
        return not (self.moved or self.uncommitted or self.nested)


class RemovedWorktree(Struct, frozen=True, kw_only=True):
    """Worktree that was removed with its branch; `ref` holds unmerged changes, if any."""

    name: str
    ref: str | None = None


class RetainedWorktree(Struct, frozen=True, kw_only=True):
    """Worktree that still exists; a ref holds its changes too."""

    name: str
    path: Path
    branch: str
    ref: str | None
    work: WorktreeChanges | None
    """None if git cannot tell."""
    note: str = ""


class MergedWorktree(Struct, frozen=True, kw_only=True):
    name: str
    into: str
    """Branch it was merged into."""
    commit: str
    commits: int
    files: tuple[str, ...] = ()


class WorktreeStatus(Struct, frozen=True, kw_only=True):
    """Status of a worktree, for display. Without a record only its ref is left."""

    name: str
    record: WorktreeRecord | None = None
    alive: bool = False
    """True if the process that created it is running."""
    work: WorktreeChanges | None = None
    """None if git cannot tell, or only a ref is left."""
    merged: bool = False
    """True if the caller's checkout contains all of it."""
    ref: str | None = None
    ref_commit: str = ""
