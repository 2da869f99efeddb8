"""An agent's own working tree of a git repository: whose it is, and what became of the work in it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

State: TypeAlias = Literal["making", "live", "kept", "removing"]
"""What a crash leaves: `making` holds nobody's work yet, `removing` no longer holds any that is not kept."""


class Owner(Struct, frozen=True, kw_only=True):
    """The process that made the worktree. `lease` names the locked file that says it lives."""

    pid: int
    started: int
    """When the process started, as the system counts it; 0 where that is not known."""
    lease: str
    session: str


class WorktreeRecord(Struct, frozen=True, kw_only=True):
    """What is known of a worktree before, while and after it is there."""

    name: str
    agent: str
    owner: Owner
    path: Path
    branch: str
    base: str
    """The commit it was made from."""
    checkout: Path
    """The working tree of the lead."""
    inside: str = ""
    """Where in its checkout the lead works, relative; empty at its top."""
    made_at: int
    state: State = "making"


class Work(Struct, frozen=True, kw_only=True):
    """What was done in a worktree since it was made."""

    head: str
    tips: tuple[str, ...]
    """The commits that hold all others: of the head and of other branches of the agent."""
    commits: int = 0
    subjects: tuple[str, ...] = ()
    """Of the newest commits, newest first."""
    files: tuple[str, ...] = ()
    """Every file that differs from the base, committed or not."""
    uncommitted: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    """Repositories inside it, whose content no ref of this one can keep."""
    moved: bool = False
    """Whether a commit is there that the base does not hold, on HEAD or another of its refs."""

    @property
    def is_nothing(self) -> bool:
        return not (self.moved or self.uncommitted or self.nested)


class Removed(Struct, frozen=True, kw_only=True):
    """Gone with its branch; `ref` still holds what was not merged, if anything was."""

    name: str
    ref: str | None = None


class Kept(Struct, frozen=True, kw_only=True):
    """Still there, and under a ref too."""

    name: str
    path: Path
    branch: str
    ref: str | None
    work: Work | None
    """None where git cannot tell."""
    note: str = ""


class Merged(Struct, frozen=True, kw_only=True):
    name: str
    into: str
    """The branch."""
    commit: str
    commits: int
    files: tuple[str, ...] = ()


class Standing(Struct, frozen=True, kw_only=True):
    """How a worktree stands, for people. Without a record only its ref is left."""

    name: str
    record: WorktreeRecord | None = None
    alive: bool = False
    """Whether the process that made it runs."""
    work: Work | None = None
    """None where git cannot tell, or only a ref is left."""
    merged: bool = False
    """Whether the checkout of whoever asks holds all of it."""
    ref: str | None = None
    ref_commit: str = ""
