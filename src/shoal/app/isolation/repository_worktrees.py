"""Worktrees of the repository around a directory, stored in the configured home, and their settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.core.clock import Clock
from shoal.wire.settings_codec import SettingsDocument

if TYPE_CHECKING:
    from shoal.workspaces.worktree_extras import WorktreeOptions
    from shoal.workspaces.worktree_service import WorktreeService


def open_worktrees(cwd: Path, *, home: Path, environ: Mapping[str, str], clock: Clock) -> WorktreeService:
    """Open the worktrees. `environ` is the user's own: project settings must not influence git."""
    from shoal.workspaces.worktree_service import WorktreeService

    return WorktreeService(cwd, home, env=environ, clock=clock)


def read_worktree_options(
    documents: Iterable[SettingsDocument],
) -> tuple[WorktreeOptions, tuple[str, ...]]:
    """Return the options of the key `worktree`, and notes on values that have no effect.

    Lists of all files are joined. For the base, the file with the highest precedence decides.
    """
    from shoal.workspaces.worktree_extras import WorktreeOptions

    lists: dict[str, dict[str, None]] = {"symlinkDirectories": {}, "sparsePaths": {}}
    bases: list[object] = []
    for document in documents:
        raw = document.raw.get("worktree")
        given = raw if isinstance(raw, Mapping) else {}
        for key, joined in lists.items():
            names = given.get(key)
            given_names = names if isinstance(names, list) else ()
            joined.update((name, None) for name in given_names if isinstance(name, str) and name)
        bases += [given["baseRef"]] if "baseRef" in given else []
    base = bases[0] if bases else "head"
    notes = (
        ()
        if base in ("head", "fresh")
        else ('"worktree.baseRef" is neither "head" nor "fresh", so worktrees start at HEAD.',)
    )
    options = WorktreeOptions(
        links=tuple(lists["symlinkDirectories"]),
        sparse_paths=tuple(lists["sparsePaths"]),
        is_fresh=base == "fresh",
    )
    return options, notes
