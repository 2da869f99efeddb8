"""Hooks that create the worktree of an agent, or are notified when it is removed."""

from __future__ import annotations

from pathlib import Path

from shoal.app.model_notices import format_session_notice
from shoal.core.errors import WorktreeError
from shoal.runs.prepared_agent import AgentPreparationRequest
from shoal.workspaces.external_worktree import ExternalWorktree, open_external_worktree

_ID_CHARS = 8


async def create_worktree_by_hook(
    new_agent: AgentPreparationRequest, previous: str, now: int
) -> ExternalWorktree | None:
    """Return the worktree that a `WorktreeCreate` hook created, now or before; None if there is no such hook.

    Raises `WorktreeError` if the hook fails or returns no usable directory.
    """
    parent, agent = new_agent.parent, str(new_agent.agent)
    root, session = parent.environment.workspace.root, parent.identity.session
    if previous.startswith("/"):
        return open_external_worktree(Path(previous), root=root, agent=agent, session=session, now=now)
    if previous or not parent.hooks.has_hooks_for("WorktreeCreate"):
        return None
    name = f"agent-{agent[:_ID_CHARS]}"
    decision = await parent.hooks.run_hooks("WorktreeCreate", {"name": name})
    refusal = decision.stop if decision.blocked is None else decision.blocked
    if refusal is not None:
        raise WorktreeError(format_session_notice("worktree_blocked", reason=refusal))
    if not decision.output:
        raise WorktreeError(format_session_notice("worktree_hook_silent"))
    path = Path(decision.output.splitlines()[-1].strip())
    return open_external_worktree(path, root=root, agent=agent, session=session, now=now)


async def run_worktree_remove_hooks(new_agent: AgentPreparationRequest, name: str, path: Path) -> None:
    hooks = new_agent.parent.hooks
    if hooks.has_hooks_for("WorktreeRemove"):
        await hooks.run_hooks("WorktreeRemove", {"name": name, "worktree_path": str(path)})
