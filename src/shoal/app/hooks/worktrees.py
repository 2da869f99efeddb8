"""Hooks that create the worktree of an agent, or are notified when it is removed."""

from __future__ import annotations

from pathlib import Path

from shoal.core.errors import WorktreeError
from shoal.runs.outfit import Newcomer
from shoal.workspaces.given_worktree import GivenWorktree, given_worktree

_NAMED_BY = 8


async def made_by_hook(newcomer: Newcomer, again: str, now: int) -> GivenWorktree | None:
    """Return the worktree that a `WorktreeCreate` hook created, now or before; None if there is no such hook.

    Raises `WorktreeError` if the hook fails or returns no usable directory.
    """
    parent, agent = newcomer.parent, str(newcomer.agent)
    root, session = parent.surroundings.workspace.root, parent.identity.session
    if again.startswith("/"):
        return given_worktree(Path(again), root=root, agent=agent, session=session, now=now)
    if again or not parent.hooks.wants("WorktreeCreate"):
        return None
    name = f"agent-{agent[:_NAMED_BY]}"
    verdict = await parent.hooks.run("WorktreeCreate", {"name": name})
    if verdict.blocked is not None:
        raise WorktreeError(f"A WorktreeCreate hook says no: {verdict.blocked}")
    if not verdict.output:
        raise WorktreeError("The WorktreeCreate hook named no directory; it is to write its path.")
    path = Path(verdict.output.splitlines()[-1].strip())
    return given_worktree(path, root=root, agent=agent, session=session, now=now)


async def tell_removed(newcomer: Newcomer, name: str, path: Path) -> None:
    hooks = newcomer.parent.hooks
    if hooks.wants("WorktreeRemove"):
        await hooks.run("WorktreeRemove", {"name": name, "worktree_path": str(path)})
