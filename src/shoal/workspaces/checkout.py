"""The lead's checkout: its repository, its commit, and what a worktree made from it lacks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import WorktreeError
from shoal.workspaces.git import Git, Place

_NAMED = 5
"""Maximum number of files named in a note."""


class Checkout(Struct, frozen=True, kw_only=True):
    top: Path
    common: Path
    """Directory of the repository, shared by all its working trees."""
    entry: Path
    """Directory of this working tree's HEAD and index; equals `common` for the main one."""
    inside: str
    """Relative directory in which the lead works; empty at the top."""

    @property
    def place(self) -> Place:
        return Place(entry=self.entry, common=self.common, tree=self.top)


async def find_checkout(git: Git, directory: Path) -> Checkout:
    """Find the checkout around a directory. Raises `WorktreeError` outside a git working tree."""
    words = ("--is-bare-repository", "--is-inside-work-tree", "--git-common-dir", "--git-dir")
    said = await git.tried("rev-parse", *words, at=directory)
    if said.status != 0:
        if "not a git repository" in said.complaint:
            raise WorktreeError(
                f"{directory} is not in a git repository, so an agent cannot have a worktree of it. "
                "Make it one (git init, and a first commit), or work without a worktree."
            )
        raise WorktreeError(f"The git repository of {directory} cannot be used: {said.complaint}")
    bare, within, common, entry = said.text.split("\n")
    if within != "true":
        what = "a bare repository" if bare == "true" else "the inside of a git repository"
        raise WorktreeError(
            f"{directory} is {what}: there is no checkout to work from. Start in a working tree of it."
        )
    shown = (await git("rev-parse", "--show-toplevel", "--show-prefix", at=directory)).text.split("\n")
    return Checkout(
        top=_real(Path(shown[0])),
        common=_real(directory / common),
        entry=_real(directory / entry),
        inside=shown[1].rstrip("/") if len(shown) > 1 else "",
    )


async def head_of(git: Git, checkout: Checkout) -> str:
    said = await git.tried("rev-parse", "--verify", "--quiet", "HEAD^{commit}", at=checkout.place)
    if said.status != 0:
        raise WorktreeError(
            f"The git repository {checkout.top} has no commit yet to make a worktree from. "
            "Make a first one: git add -A && git commit."
        )
    return said.text


async def left_behind(git: Git, checkout: Checkout) -> tuple[str, ...]:
    """Describe to the agent the changes of the checkout that a worktree made from its HEAD lacks."""
    status = await git.tried(
        "status", "--porcelain=v2", "-z", "--no-renames", "--untracked-files=normal",
        "--ignore-submodules=none", at=checkout.place,
    )  # fmt: skip
    if status.status != 0:
        return ()
    changed: list[str] = []
    dirty: list[str] = []
    for line in status.names:
        kind, _, rest = line.partition(" ")
        if kind == "?":
            changed.append(rest)
        elif kind in ("1", "u"):
            fields = rest.split(" ", 7 if kind == "1" else 9)
            (dirty if fields[1].startswith("S") else changed).append(fields[-1])
    return tuple(_sentences(changed, dirty, await _submodules(git, checkout)))


def _sentences(changed: list[str], dirty: list[str], submodules: tuple[str, ...]) -> Iterator[str]:
    if changed:
        yield (
            f"The lead's checkout has changes that are not committed, and that are not in this worktree: "
            f"{_listed(changed)}."
        )
    if submodules:
        yield f"Submodules are empty in this worktree: {_listed(submodules)}."
    if dirty:
        yield f"Changes the lead has in these submodules are not in it either: {_listed(dirty)}."


async def _submodules(git: Git, checkout: Checkout) -> tuple[str, ...]:
    if not (checkout.top / ".gitmodules").exists():
        return ()
    listed = await git.tried("ls-files", "--stage", "-z", at=checkout.place)
    return tuple(line.partition("\t")[2] for line in listed.names if line.startswith("160000 "))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _listed(names: list[str] | tuple[str, ...]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
