"""The worktree that the lead enters by a tool, in `.claude/worktrees` of the checkout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from shoal.app.model_notices import format_session_notice
from shoal.core.clock import Clock
from shoal.core.errors import WorktreeError
from shoal.core.ids import IdGenerator
from shoal.core.text.filenames import escape_filename
from shoal.workspaces.git_runner import GitRunner
from shoal.workspaces.local_workspace import LocalWorkspace

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class _EnteredWorktree(Struct, frozen=True, kw_only=True):
    path: Path
    former: Path
    """Directory in which the lead worked before."""
    branch: str = ""
    """Branch made for it; empty if the worktree existed before."""
    base: str = ""


class LeadWorktreeMover:
    """Moves the lead's workspace into a worktree and back."""

    def __init__(
        self, workspace: LocalWorkspace, environ: Mapping[str, str], clock: Clock, ids: IdGenerator
    ) -> None:
        self._workspace = workspace
        self._git = GitRunner(environ, clock)
        self._ids = ids
        self._entered: _EnteredWorktree | None = None

    async def enter_worktree(self, name: str | None, path: str | None) -> str:
        if self._entered is not None:
            raise WorktreeError(format_session_notice("worktree_already_entered"))
        if name is not None and path is not None:
            raise WorktreeError(format_session_notice("worktree_name_and_path"))
        former = self._workspace.cwd
        self._entered = (
            await self._create_worktree(name or self._ids.new_short_id(), former)
            if path is None
            else await self._find_worktree(self._workspace.resolve_path(path), former)
        )
        if not self._workspace.change_directory(self._entered.path):
            place, self._entered = self._entered.path, None
            raise WorktreeError(format_session_notice("worktree_outside", path=escape_filename(place)))
        branch = f" on the branch {self._entered.branch}" if self._entered.branch else ""
        return format_session_notice(
            "worktree_entered", path=escape_filename(self._entered.path), branch=branch
        )

    async def exit_worktree(self, *, remove: bool, discard_changes: bool) -> str:
        entered = self._entered
        if entered is None:
            raise WorktreeError(format_session_notice("worktree_not_entered"))
        if remove:
            await self._remove_worktree(entered, discard_changes=discard_changes)
        self._entered = None
        self._workspace.change_directory(entered.former)
        state = "was removed" if remove else "is kept"
        return format_session_notice(
            "worktree_left",
            path=escape_filename(entered.path),
            state=state,
            former=escape_filename(entered.former),
        )

    async def _create_worktree(self, name: str, former: Path) -> _EnteredWorktree:
        if _NAME.fullmatch(name) is None:
            raise WorktreeError(format_session_notice("worktree_name", name=repr(name)))
        top = self._workspace.root
        parent = top / ".claude" / "worktrees"
        path, branch = parent / name, f"worktree-{name}"
        base = (await self._git("rev-parse", "HEAD", at=top)).text
        parent.mkdir(parents=True, exist_ok=True)
        if not (parent / ".gitignore").exists():
            (parent / ".gitignore").write_text("*\n")
        await self._git("worktree", "add", "--quiet", "-b", branch, str(path), base, at=top)
        return _EnteredWorktree(path=path, former=former, branch=branch, base=base)

    async def _find_worktree(self, path: Path, former: Path) -> _EnteredWorktree:
        listed = await self._git("worktree", "list", "--porcelain", "-z", at=self._workspace.root)
        known = [Path(line[9:]) for line in listed.names if line.startswith("worktree ")]
        if not any(_is_same_directory(path, each) for each in known):
            raise WorktreeError(format_session_notice("worktree_unknown", path=escape_filename(path)))
        return _EnteredWorktree(path=path, former=former)

    async def _remove_worktree(self, entered: _EnteredWorktree, *, discard_changes: bool) -> None:
        if not entered.branch:
            raise WorktreeError(format_session_notice("worktree_not_yours"))
        changes = (await self._git("status", "--porcelain", at=entered.path)).text
        commits = (await self._git("rev-list", "--count", f"{entered.base}..HEAD", at=entered.path)).text
        if (changes or commits != "0") and not discard_changes:
            raise WorktreeError(
                format_session_notice("worktree_has_work", files=len(changes.splitlines()), commits=commits)
            )
        top = self._workspace.root
        await self._git("worktree", "remove", "--force", str(entered.path), at=top)
        await self._git("branch", "--quiet", "-D", entered.branch, at=top)


def _is_same_directory(path: Path, other: Path) -> bool:
    return path.resolve() == other.resolve()
