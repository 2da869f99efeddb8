"""Worktrees in `.claude/worktrees` of the checkout, in which a session starts or which the lead enters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from shoal.app.isolation.repository_worktrees import read_worktree_options
from shoal.app.model_notices import format_session_notice
from shoal.app.settings.settings import Settings
from shoal.core.clock import Clock
from shoal.core.conversation.tools import Tool
from shoal.core.errors import WorktreeError
from shoal.core.ids import IdGenerator
from shoal.core.text.filenames import escape_filename
from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.core.text.text_format import format_count_with_noun
from shoal.tools.worktree_tools import build_worktree_tools
from shoal.workspaces.checkout import GitCheckout, find_git_checkout, refuse_required_repository_filters
from shoal.workspaces.git_runner import GitDirectories, GitRunner
from shoal.workspaces.local_workspace import LocalWorkspace
from shoal.workspaces.worktree_changes import find_git_worktree_entry
from shoal.workspaces.worktree_extras import (
    WorktreeOptions,
    add_untracked_files,
    find_base_commit,
    limit_to_sparse_paths,
)

_NAME = compile_on_first_use(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PULL_REQUEST = compile_on_first_use(r"(?:#|https?://[^/]+/[^/]+/[^/]+/pull/)(\d{1,10})/?")


class NamedWorktree(Struct, frozen=True, kw_only=True):
    """Worktree in `.claude/worktrees` of a repository, with the branch `worktree-NAME`."""

    path: Path
    branch: str
    top: Path
    """Checkout of the repository."""
    base: str
    """Commit it was created from; empty if it existed before."""
    notes: tuple[str, ...] = ()


def get_named_worktree_path(top: Path, name: str) -> Path:
    """Return the path of a worktree. Raises `WorktreeError` for an invalid name."""
    if _NAME.fullmatch(name) is None:
        raise WorktreeError(format_session_notice("worktree_name", name=repr(name)))
    return top / ".claude" / "worktrees" / name


async def open_start_worktree(
    name: str, cwd: Path, options: WorktreeOptions, git: GitRunner, is_hidden: Callable[[str], bool]
) -> NamedWorktree:
    """Create or reuse the worktree in which a session starts. Raises `WorktreeError`.

    `name` may be a pull request: `#123`, or its address. Its commit is fetched from `origin`.
    """
    checkout = await find_git_checkout(git, cwd)
    if checkout.common.name == ".git" and checkout.common.parent != checkout.top:
        # Started in another worktree: all of them are in the main checkout.
        checkout = await find_git_checkout(git, checkout.common.parent)
    pull_request = _PULL_REQUEST.fullmatch(name)
    if pull_request is None:
        return await open_named_worktree(git, checkout, name, options, is_hidden)
    number = pull_request[1]
    ref = f"refs/shoal/pull/{number}"
    await git("fetch", "--quiet", "origin", f"+pull/{number}/head:{ref}", at=checkout.git_directories)
    base = (await git("rev-parse", "--verify", f"{ref}^{{commit}}", at=checkout.git_directories)).text
    return await open_named_worktree(git, checkout, f"pr-{number}", options, is_hidden, base)


async def open_named_worktree(
    git: GitRunner,
    checkout: GitCheckout,
    name: str,
    options: WorktreeOptions,
    is_hidden: Callable[[str], bool],
    base: str = "",
) -> NamedWorktree:
    """Reuse a worktree, or create it at `base` or as configured. Raises `WorktreeError`."""
    path, branch = get_named_worktree_path(checkout.top, name), f"worktree-{name}"
    entry = find_git_worktree_entry(checkout.common, path)
    if entry is not None and path.is_dir():
        return NamedWorktree(path=path, branch=branch, top=checkout.top, base="")
    await refuse_required_repository_filters(git, checkout)
    notes: tuple[str, ...] = ()
    if not base:
        base, notes = await find_base_commit(git, checkout, options)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not (path.parent / ".gitignore").exists():
        (path.parent / ".gitignore").write_text("*\n")
    at = checkout.git_directories
    await git("worktree", "prune", at=at)
    has_branch = (await git.try_run("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", at=at)).text
    start = (str(path), branch) if has_branch else ("-b", branch, str(path), base)
    await git("worktree", "add", "--quiet", "--no-checkout", *start, at=at)
    entry = find_git_worktree_entry(checkout.common, path)
    if entry is None:
        raise WorktreeError(format_session_notice("worktree_not_listed", path=path))
    location = GitDirectories(entry=entry, common=checkout.common, tree=path)
    if options.sparse_paths:
        await limit_to_sparse_paths(git, location, options.sparse_paths)
    await git("reset", "--hard", "--quiet", at=location)
    _copy_local_settings(checkout.top, path)
    notes += await add_untracked_files(git, checkout.top, path, options.links, is_hidden)
    return NamedWorktree(path=path, branch=branch, top=checkout.top, base=has_branch or base, notes=notes)


def _copy_local_settings(top: Path, worktree: Path) -> None:
    """Copy the settings that git does not store: their permission rules must apply in the worktree too."""
    import shutil

    source, target = (each / ".claude" / "settings.local.json" for each in (top, worktree))
    if source.is_file() and not target.exists():
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(source, target)


async def count_worktree_work(git: GitRunner, path: Path, base: str) -> tuple[int, int]:
    """Return the numbers of changed files and of commits since the base."""
    changes = (await git("status", "--porcelain", at=path)).text
    commits = (await git("rev-list", "--count", f"{base}..HEAD", at=path)).text
    return len(changes.splitlines()), int(commits)


async def remove_named_worktree(git: GitRunner, top: Path, path: Path, branch: str) -> None:
    """Remove a worktree and its branch, with all work in it."""
    await git("worktree", "remove", "--force", str(path), at=top)
    await git("branch", "--quiet", "-D", branch, at=top)


class _EnteredWorktree(Struct, frozen=True, kw_only=True):
    path: Path
    former: Path
    """Directory in which the lead worked before."""
    branch: str = ""
    """Branch made for it; empty if the worktree existed before."""
    base: str = ""
    notes: tuple[str, ...] = ()


class LeadWorktreeMover:
    """Moves the lead's workspace into a worktree and back."""

    def __init__(
        self,
        workspace: LocalWorkspace,
        settings: Settings,
        clock: Clock,
        ids: IdGenerator,
        is_hidden: Callable[[str], bool],
        on_entered: Callable[[Path], None],
    ) -> None:
        """`is_hidden` is True for files that the lead may not read, which a worktree does not get.

        `on_entered` gets the path of a worktree before the lead works in it.
        """
        self._workspace = workspace
        self._is_hidden = is_hidden
        self._on_entered = on_entered
        self._git = GitRunner(settings.environ, clock)
        self._options, _ = read_worktree_options(settings.documents)
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
        self._on_entered(self._entered.path)
        if not self._workspace.change_directory(self._entered.path):
            place, self._entered = self._entered.path, None
            raise WorktreeError(format_session_notice("worktree_outside", path=escape_filename(place)))
        branch = f" on the branch {self._entered.branch}" if self._entered.branch else ""
        notes = "".join(f" {note}" for note in self._entered.notes)
        path = escape_filename(self._entered.path)
        return format_session_notice("worktree_entered", path=path, branch=branch) + notes

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
        checkout = await find_git_checkout(self._git, self._workspace.root)
        if (path := get_named_worktree_path(checkout.top, name)).exists():
            notice = format_session_notice("worktree_exists", name=name, path=escape_filename(path))
            raise WorktreeError(notice)
        created = await open_named_worktree(self._git, checkout, name, self._options, self._is_hidden)
        return _EnteredWorktree(
            path=created.path, former=former, branch=created.branch, base=created.base, notes=created.notes
        )

    async def _find_worktree(self, path: Path, former: Path) -> _EnteredWorktree:
        listed = await self._git("worktree", "list", "--porcelain", "-z", at=self._workspace.root)
        known = [Path(line[9:]) for line in listed.names if line.startswith("worktree ")]
        if not any(_is_same_directory(path, each) for each in known):
            raise WorktreeError(format_session_notice("worktree_unknown", path=escape_filename(path)))
        return _EnteredWorktree(path=path, former=former)

    async def _remove_worktree(self, entered: _EnteredWorktree, *, discard_changes: bool) -> None:
        if not entered.branch:
            raise WorktreeError(format_session_notice("worktree_not_yours"))
        changes, commits = await count_worktree_work(self._git, entered.path, entered.base)
        if (changes or commits) and not discard_changes:
            files, new = (
                format_count_with_noun(changes, "changed file"),
                format_count_with_noun(commits, "commit"),
            )
            raise WorktreeError(format_session_notice("worktree_has_work", files=files, commits=new))
        await remove_named_worktree(self._git, self._workspace.root, entered.path, entered.branch)


def build_lead_worktree_tools(
    workspace: LocalWorkspace,
    settings: Settings,
    clock: Clock,
    ids: IdGenerator,
    is_hidden: Callable[[str], bool],
    on_entered: Callable[[Path], None],
) -> tuple[Tool, ...]:
    """Build the tools with which the lead enters and leaves worktrees; none outside a git repository."""
    root = workspace.root
    if not any((each / ".git").exists() for each in (root, *root.parents)):
        return ()
    mover = LeadWorktreeMover(workspace, settings, clock, ids.derive_generator(), is_hidden, on_entered)
    return tuple(build_worktree_tools(mover))


def _is_same_directory(path: Path, other: Path) -> bool:
    return path.resolve() == other.resolve()
