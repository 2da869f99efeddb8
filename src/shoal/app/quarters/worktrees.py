"""The worktrees of the repository around a directory, in the home that settings name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shoal.core.clock import Clock
from shoal.workspaces.worktrees import Worktrees


def worktrees_of(cwd: Path, *, home: Path, environ: Mapping[str, str], clock: Clock) -> Worktrees:
    """`environ` is the person's own: what a project sets must not steer git."""
    return Worktrees(cwd, home, env=environ, clock=clock)
