"""Worktrees of the repository around a directory, stored in the configured home."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shoal.core.clock import Clock
from shoal.workspaces.worktrees import Worktrees


def worktrees_of(cwd: Path, *, home: Path, environ: Mapping[str, str], clock: Clock) -> Worktrees:
    """Open the worktrees. `environ` is the user's own: project settings must not influence git."""
    return Worktrees(cwd, home, env=environ, clock=clock)
