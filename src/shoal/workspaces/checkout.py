"""The lead's checkout: its repository, its commit, and what is missing from a worktree made from it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import WorktreeError
from shoal.workspaces.git_runner import GitDirectories, GitRunner
from shoal.workspaces.workspace_texts import format_workspace_notice

_MAX_NAMES = 5
"""Maximum number of files named in a note."""


class GitCheckout(Struct, frozen=True, kw_only=True):
    top: Path
    common: Path
    """Directory of the repository, shared by all its working trees."""
    entry: Path
    """Directory of this working tree's HEAD and index; equals `common` for the main one."""
    inside: str
    """Relative directory in which the lead works; empty at the top."""

    @property
    def git_directories(self) -> GitDirectories:
        return GitDirectories(entry=self.entry, common=self.common, tree=self.top)


async def find_git_checkout(git: GitRunner, directory: Path) -> GitCheckout:
    """Find the checkout around a directory. Raises `WorktreeError` outside a git working tree."""
    arguments = ("--is-bare-repository", "--is-inside-work-tree", "--git-common-dir", "--git-dir")
    result = await git.try_run("rev-parse", *arguments, at=directory)
    if result.status != 0:
        if "not a git repository" in result.error:
            raise WorktreeError(format_workspace_notice("no_repository", directory=directory))
        raise WorktreeError(
            format_workspace_notice("repository_unusable", directory=directory, error=result.error)
        )
    is_bare, is_inside, common, entry = result.text.split("\n")
    if is_inside != "true":
        description = "a bare repository" if is_bare == "true" else "inside a repository's git directory"
        raise WorktreeError(
            format_workspace_notice("no_checkout", directory=directory, description=description)
        )
    lines = (await git("rev-parse", "--show-toplevel", "--show-prefix", at=directory)).text.split("\n")
    checkout = GitCheckout(
        top=_resolve_real_path(Path(lines[0])),
        common=_resolve_real_path(directory / common),
        entry=_resolve_real_path(directory / entry),
        inside=lines[1].rstrip("/") if len(lines) > 1 else "",
    )
    await _refuse_redirected_checkout(git, checkout)
    return checkout


async def _refuse_redirected_checkout(git: GitRunner, checkout: GitCheckout) -> None:
    """Raise `WorktreeError` if the files are in a directory that does not itself belong to the repository.

    Its configuration can name any directory, and a merge would write there.
    """
    found = await git.try_run("rev-parse", "--absolute-git-dir", at=checkout.top)
    if found.status != 0 or _resolve_real_path(Path(found.text)) != checkout.entry:
        raise WorktreeError(
            format_workspace_notice("foreign_checkout", repository=checkout.entry, top=checkout.top)
        )


async def get_head_commit(git: GitRunner, checkout: GitCheckout) -> str:
    result = await git.try_run(
        "rev-parse", "--verify", "--quiet", "HEAD^{commit}", at=checkout.git_directories
    )
    if result.status != 0:
        raise WorktreeError(format_workspace_notice("no_commit", repository=checkout.top))
    return result.text


async def refuse_required_repository_filters(git: GitRunner, checkout: GitCheckout) -> None:
    """Raise `WorktreeError` if the repository itself configures a filter that its files need.

    Shoal does not run it, and without it agents would see, and commit, content that must not be stored.
    """
    filters = await git.list_disabled_filters(at=checkout.git_directories)
    if filters:
        name = filters[0]
        raise WorktreeError(
            format_workspace_notice(
                "repository_filter",
                repository=checkout.top,
                name=repr(name),
                section=shlex.quote(f"filter.{name}"),
            )
        )


async def describe_uncommitted_changes(git: GitRunner, checkout: GitCheckout) -> tuple[str, ...]:
    """Describe to the agent the changes in the checkout that are missing from a worktree made from its
    HEAD."""
    status = await git.try_run(
        "status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=normal",
        "--ignore-submodules=dirty", at=checkout.git_directories,
    )  # fmt: skip
    if status.status != 0:
        return ()
    changed: list[str] = []
    changed_submodules: list[str] = []
    for line in status.names:
        kind, _, rest = line.partition(" ")
        if kind == "?":
            changed.append(rest)
        elif kind in ("1", "u"):
            fields = rest.split(" ", 7 if kind == "1" else 9)
            (changed_submodules if fields[1].startswith("S") else changed).append(fields[-1])
    submodules = await _list_submodules(git, checkout)
    for name in submodules:
        if name not in changed_submodules and await has_uncommitted_changes(git, checkout.top / name):
            changed_submodules.append(name)
    return tuple(_format_uncommitted_notes(changed, changed_submodules, submodules))


def _format_uncommitted_notes(
    changed: list[str], dirty: list[str], submodules: tuple[str, ...]
) -> Iterator[str]:
    if changed:
        yield format_workspace_notice("uncommitted_changes", names=_join_names_with_limit(changed))
    if submodules:
        yield format_workspace_notice("empty_submodules", names=_join_names_with_limit(submodules))
    if dirty:
        yield format_workspace_notice("changed_submodules", names=_join_names_with_limit(dirty))


async def _list_submodules(git: GitRunner, checkout: GitCheckout) -> tuple[str, ...]:
    if not (checkout.top / ".gitmodules").exists():
        return ()
    result = await git.try_run("ls-files", "--stage", "-z", at=checkout.git_directories)
    return tuple(line.partition("\t")[2] for line in result.names if line.startswith("160000 "))


async def has_uncommitted_changes(git: GitRunner, submodule: Path) -> bool:
    """Return True if a submodule has changes.

    Runs git in the submodule: the git of the checkout would run the programs of the submodule's
    configuration.
    """
    if not is_git_repository(submodule):
        return False
    status = await git.try_run("status", "--porcelain", "--ignore-submodules=dirty", at=submodule)
    return bool(status.out)


def is_git_repository(directory: Path) -> bool:
    return os.path.lexists(directory / ".git")


def _resolve_real_path(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _join_names_with_limit(names: list[str] | tuple[str, ...]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
