"""Merges a commit into the branch of a checkout, or leaves the checkout unchanged and reports why."""

from __future__ import annotations

from pathlib import Path

from shoal.core.errors import MergeConflict, WorktreeError
from shoal.core.worktrees import Merged
from shoal.workspaces.checkout import Checkout
from shoal.workspaces.git import Git, Place
from shoal.workspaces.work import identity_settings

_UNDER_WAY = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}


async def branch_of(git: Git, checkout: Checkout) -> str:
    """Return the branch to merge into. Raises `WorktreeError` if the checkout cannot be merged into now."""
    said = await git.tried("symbolic-ref", "--quiet", "--short", "HEAD", at=checkout.place)
    if said.status != 0:
        raise WorktreeError(
            f"{checkout.top} is on no branch that could take it. Check one out: git switch NAME."
        )
    refuse_under_way(checkout.entry, checkout.top)
    if (await git.tried("diff", "--cached", "--quiet", at=checkout.place)).status != 0:
        raise WorktreeError(
            f"{checkout.top} has staged changes, which a merge would mix in. "
            "Commit them, or git restore --staged."
        )
    return said.text


def refuse_under_way(entry: Path, tree: Path) -> None:
    for name, what in _UNDER_WAY.items():
        if (entry / name).exists():
            raise WorktreeError(f"A {what} is under way in {tree}. Finish it, or end it: git {what} --abort.")


async def holds(git: Git, checkout: Checkout, *commits: str) -> bool:
    """Return True if the checkout's branch contains all of the commits."""
    said = await git.tried("rev-list", "--count", *commits, "--not", "HEAD", "--", at=checkout.place)
    return said.status == 0 and said.text == "0"


async def bring_in(git: Git, checkout: Checkout, name: str, commit: str, *, path: Path | None) -> Merged:
    """Merge a commit; conflicts can be resolved in `path`. Raises `MergeConflict` and `WorktreeError`."""
    into = await branch_of(git, checkout)
    place = checkout.place
    count = int((await git("rev-list", "--count", f"HEAD..{commit}", "--", at=place)).text)
    files = (await git("diff", "--name-only", "-z", "--no-renames", f"HEAD...{commit}", at=place)).names
    if count:
        await _refuse_conflicts(git, place, name, commit, into, path)
        # No hooks: one in the tree would come from the agent.
        words = ("merge", "--no-ff", "--no-edit", "--commit", "--no-squash", "--no-autostash", "--quiet")
        settings = await identity_settings(git, checkout.common)
        said = await git.tried(*words, "-m", f"Merge the work of {name}", commit, at=place, settings=settings)
        if said.status != 0:
            await _back(git, place, name, into, path, said.complaint or said.text)
    head = (await git("rev-parse", "HEAD", at=place)).text
    return Merged(name=name, into=into, commit=head, commits=count, files=files)


async def _refuse_conflicts(
    git: Git, place: Place, name: str, commit: str, into: str, path: Path | None
) -> None:
    """Detect conflicts without touching the checkout, if git is recent enough."""
    words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", "HEAD", commit)
    said = await git.tried(*words, at=place)
    if said.status == 1:
        raise _conflict(name, into, said.names[1:], path)


async def _back(git: Git, place: Place, name: str, into: str, path: Path | None, complaint: str) -> None:
    """Undo a merge that stopped; if git refused to begin one, there is nothing to undo."""
    unmerged = (await git("diff", "--name-only", "--diff-filter=U", "-z", at=place)).names
    if (place.entry / "MERGE_HEAD").exists():
        await git("merge", "--abort", at=place)
    if unmerged:
        raise _conflict(name, into, unmerged, path)
    raise WorktreeError(f"{name} was not merged, and nothing was changed. git says: {complaint}")


def _conflict(name: str, into: str, files: tuple[str, ...], path: Path | None) -> MergeConflict:
    files = tuple(dict.fromkeys(files))
    way = (
        f"Resolve them in its worktree, then merge again:\n  cd {path}\n  git merge {into}\n"
        f"  git commit\n  shoal worktree merge {name}"
        if path is not None
        else f"Resolve them with git: git merge refs/shoal/kept/{name}"
    )
    return MergeConflict(
        f"{name} was not merged, and nothing was changed: it conflicts with {into} in "
        f"{', '.join(files)}.\n{way}",
        files=files,
    )
