"""Merges a commit into the branch of a checkout, or leaves the checkout unchanged and reports why."""

from __future__ import annotations

from pathlib import Path

from shoal.core.agents.worktrees import MergedWorktree
from shoal.core.errors import MergeConflict, WorktreeError
from shoal.workspaces.checkout import GitCheckout
from shoal.workspaces.git_runner import GitDirectories, GitRunner
from shoal.workspaces.workspace_texts import format_workspace_notice
from shoal.workspaces.worktree_changes import get_default_committer_settings

_UNFINISHED_OPERATIONS = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}


async def get_merge_target_branch(git: GitRunner, checkout: GitCheckout) -> str:
    """Return the branch to merge into. Raises `WorktreeError` if the checkout cannot be merged into now."""
    result = await git.try_run("symbolic-ref", "--quiet", "--short", "HEAD", at=checkout.git_directories)
    if result.status != 0:
        raise WorktreeError(format_workspace_notice("no_branch", checkout=checkout.top))
    refuse_unfinished_git_operation(checkout.entry, checkout.top)
    staged = ("diff", "--cached", "--quiet", "--ignore-submodules=dirty")
    if (await git.try_run(*staged, at=checkout.git_directories)).status != 0:
        raise WorktreeError(format_workspace_notice("staged_changes", checkout=checkout.top))
    return result.text


def refuse_unfinished_git_operation(entry: Path, tree: Path) -> None:
    for name, operation in _UNFINISHED_OPERATIONS.items():
        if (entry / name).exists():
            raise WorktreeError(
                format_workspace_notice("operation_in_progress", operation=operation, checkout=tree)
            )


async def branch_contains_commits(git: GitRunner, checkout: GitCheckout, *commits: str) -> bool:
    """Return True if the checkout's branch contains all of the commits."""
    result = await git.try_run(
        "rev-list", "--count", *commits, "--not", "HEAD", "--", at=checkout.git_directories
    )
    return result.status == 0 and result.text == "0"


async def merge_commit_into_checkout(
    git: GitRunner, checkout: GitCheckout, name: str, commit: str, *, path: Path | None
) -> MergedWorktree:
    """Merge a commit; conflicts can be resolved in `path`. Raises `MergeConflict` and `WorktreeError`."""
    branch = await get_merge_target_branch(git, checkout)
    location = checkout.git_directories
    count = int((await git("rev-list", "--count", f"HEAD..{commit}", "--", at=location)).text)
    files = (await git("diff", "--name-only", "-z", "--no-renames", f"HEAD...{commit}", at=location)).names
    if count:
        await _refuse_merge_conflicts(git, location, name, commit, branch, path)
        # No hooks: one in the tree would come from the agent.
        arguments = ("merge", "--no-ff", "--no-edit", "--commit", "--no-squash", "--no-autostash", "--quiet")
        settings = await get_default_committer_settings(git, checkout.common)
        result = await git.try_run(
            *arguments, "-m", f"Merge the work of {name}", commit, at=location, settings=settings
        )
        if result.status != 0:
            await _abort_merge_and_raise(git, location, name, branch, path, result.error or result.text)
    head = (await git("rev-parse", "HEAD", at=location)).text
    return MergedWorktree(name=name, into=branch, commit=head, commits=count, files=files)


async def _refuse_merge_conflicts(
    git: GitRunner, location: GitDirectories, name: str, commit: str, branch: str, path: Path | None
) -> None:
    """Detect conflicts without touching the checkout, if git is recent enough."""
    arguments = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", "HEAD", commit)
    result = await git.try_run(*arguments, at=location)
    if result.status == 1:
        raise _build_merge_conflict(name, branch, result.names[1:], path)


async def _abort_merge_and_raise(
    git: GitRunner, location: GitDirectories, name: str, branch: str, path: Path | None, error: str
) -> None:
    """Undo a merge that stopped; if git refused to begin one, there is nothing to undo."""
    unmerged = ("diff", "--name-only", "--diff-filter=U", "-z", "--ignore-submodules=dirty")
    conflicting_files = (await git(*unmerged, at=location)).names
    if (location.entry / "MERGE_HEAD").exists():
        await git("merge", "--abort", at=location)
    if conflicting_files:
        raise _build_merge_conflict(name, branch, conflicting_files, path)
    raise WorktreeError(format_workspace_notice("merge_failed", name=name, error=error))


def _build_merge_conflict(name: str, branch: str, files: tuple[str, ...], path: Path | None) -> MergeConflict:
    files = tuple(dict.fromkeys(files))
    instructions = (
        f"Resolve them in its worktree, then merge again:\n  cd {path}\n  git merge {branch}\n"
        f"  git commit\n  shoal worktree merge {name}"
        if path is not None
        else f"Resolve them with git: git merge refs/shoal/kept/{name}"
    )
    return MergeConflict(
        format_workspace_notice(
            "merge_conflict", name=name, branch=branch, files=", ".join(files), instructions=instructions
        ),
        files=files,
    )
