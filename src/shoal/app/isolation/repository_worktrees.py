"""Worktrees of the repository around a directory, stored in the configured home."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shoal.core.clock import Clock
from shoal.workspaces.worktree_service import WorktreeService


def open_worktrees(cwd: Path, *, home: Path, environ: Mapping[str, str], clock: Clock) -> WorktreeService:
    """Open the worktrees. `environ` is the user's own: project settings must not influence git."""
    return WorktreeService(cwd, home, env=environ, clock=clock)
