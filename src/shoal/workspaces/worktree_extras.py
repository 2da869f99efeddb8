"""Configured parts of a new worktree: its base, its sparse paths, `.worktreeinclude` and links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import WorktreeError
from shoal.core.text.filenames import escape_filename
from shoal.workspaces.checkout import GitCheckout, get_head_commit
from shoal.workspaces.git_runner import GitDirectories, GitRunner
from shoal.workspaces.workspace_texts import format_workspace_notice

INCLUDE_FILE = ".worktreeinclude"
_MAX_FILES = 1_000
_MAX_NAMED_FILES = 5
_MAX_BYTES = 100 * 1024 * 1024


class WorktreeOptions(Struct, frozen=True, kw_only=True):
    """Options for new worktrees from the key `worktree` of the settings."""

    links: tuple[str, ...] = ()
    """Directories of the checkout to link."""
    is_fresh: bool = False
    """True to start at the default branch of the remote `origin` instead of the commit of the checkout."""
    sparse_paths: tuple[str, ...] = ()
    """The only directories to check out; all if empty."""


DEFAULT_WORKTREE_OPTIONS = WorktreeOptions()


async def find_base_commit(
    git: GitRunner, checkout: GitCheckout, options: WorktreeOptions
) -> tuple[str, tuple[str, ...]]:
    """Return the commit at which a new worktree starts, and notes about it. Raises `WorktreeError`."""
    if not options.is_fresh:
        return await get_head_commit(git, checkout), ()
    found = await git.try_run(
        "rev-parse",
        "--verify",
        "--quiet",
        "refs/remotes/origin/HEAD^{commit}",
        at=checkout.git_directories,
    )
    if found.status == 0:
        return found.text, ()
    note = (
        "The worktree starts at HEAD, because the default branch of origin is not set here. To "
        "change that: git remote set-head origin --auto"
    )
    return await get_head_commit(git, checkout), (note,)


async def limit_to_sparse_paths(git: GitRunner, location: GitDirectories, paths: Sequence[str]) -> None:
    """Limit a worktree that has no files yet to some directories. Raises `WorktreeError`."""
    for path in paths:
        if path.startswith(("/", "-")) or ".." in Path(path).parts:
            raise WorktreeError(format_workspace_notice("bad_sparse_path", path=repr(path)))
    # A session in the worktree must not lose the project's permission rules.
    await git("sparse-checkout", "set", "--cone", ".claude", *paths, at=location)


async def add_untracked_files(
    git: GitRunner,
    checkout: Path,
    worktree: Path,
    links: Sequence[str],
    is_hidden: Callable[[str], bool],
) -> tuple[str, ...]:
    """Copy ignored files that `.worktreeinclude` names, and link directories; return notes on the rest.

    `is_hidden` is True for files that the agent may not read, which are not copied.
    """
    notes = await _copy_included_files(git, checkout, worktree, is_hidden)
    for name in links:
        if (problem := await _link_directory(git, checkout, worktree, name)) is not None:
            notes = (*notes, f"The directory {name} in worktree.symlinkDirectories is not linked: {problem}.")
    return notes


async def _copy_included_files(
    git: GitRunner, checkout: Path, worktree: Path, is_hidden: Callable[[str], bool]
) -> tuple[str, ...]:
    if not (checkout / INCLUDE_FILE).is_file():
        return ()
    listed = await git.try_run(
        "ls-files", "--others", "--ignored", f"--exclude-from={INCLUDE_FILE}", "-z", at=checkout
    )
    ignored = await git.try_run("ls-files", "--others", "--ignored", "--exclude-standard", "-z", at=checkout)
    if listed.status != 0 or ignored.status != 0:
        return (f"Files listed in {INCLUDE_FILE} are missing: git could not list them.",)
    wanted = sorted(set(listed.names) & set(ignored.names))
    hidden = [name for name in wanted if is_hidden(f"{checkout}/{name}")]
    names = [name for name in wanted if name not in set(hidden)]
    notes = await asyncio.to_thread(_copy_files, checkout, worktree, names)
    if not hidden:
        return notes
    shown = ", ".join(map(escape_filename, hidden[:_MAX_NAMED_FILES]))
    more = f" and {len(hidden) - _MAX_NAMED_FILES} more" if len(hidden) > _MAX_NAMED_FILES else ""
    return (
        *notes,
        f"Files listed in {INCLUDE_FILE} are not copied because a rule forbids reading them: {shown}{more}.",
    )


def _copy_files(checkout: Path, worktree: Path, names: Sequence[str]) -> tuple[str, ...]:
    import shutil

    total = 0
    for count, name in enumerate(names):
        source, target = checkout / name, worktree / name
        if source.is_symlink() or not source.is_file() or target.exists():
            continue
        total += source.stat().st_size
        if count >= _MAX_FILES or total > _MAX_BYTES:
            return (
                f"Files listed in {INCLUDE_FILE}, starting with {escape_filename(name)}, are missing: "
                "there are too many.",
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    return ()


async def _link_directory(git: GitRunner, checkout: Path, worktree: Path, name: str) -> str | None:
    """Link a directory of the checkout; return why it is not linked."""
    source, target = checkout / name, worktree / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return "it is not inside the repository"
    if not source.is_dir():
        return "there is no such directory"
    if target.exists() or target.is_symlink():
        return "the worktree already has it"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source.resolve(), target_is_directory=True)
    if await _is_ignored(git, worktree, name):
        return None
    # A pattern that ends with a slash matches the directory, but not the link to it.
    if await _is_ignored(git, checkout, f"{name}/"):
        await _exclude_link(git, checkout, name)
        if await _is_ignored(git, worktree, name):
            return None
    # Otherwise it would count as work that the agent left.
    target.unlink()
    return f"git does not ignore it; add {name} to .gitignore"


async def _is_ignored(git: GitRunner, directory: Path, name: str) -> bool:
    return (await git.try_run("check-ignore", "--quiet", "--", name, at=directory)).status == 0


async def _exclude_link(git: GitRunner, checkout: Path, name: str) -> None:
    """Exclude the link in the repository's `info/exclude`, which is not committed."""
    found = await git.try_run("rev-parse", "--git-path", "info/exclude", at=checkout)
    if found.status != 0:
        return
    exclude = checkout / found.text
    pattern = "/" + "".join(f"\\{c}" if c in "*?[\\" else c for c in Path(name).as_posix())
    exclude.parent.mkdir(exist_ok=True)
    old = exclude.read_text() if exclude.exists() else ""
    separator = "" if not old or old.endswith("\n") else "\n"
    with exclude.open("a") as file:
        file.write(f"{separator}# Links in worktrees (worktree.symlinkDirectories)\n{pattern}\n")
