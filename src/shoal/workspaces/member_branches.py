"""Branches and stashes of a member on another machine, which its current work does not contain.

They travel with the bundles of its work, and are stored next to the ref of it: `REF.branches/NAME` and
`REF.stashes/ID`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from shoal.workspaces.git_runner import GitDirectories, GitRunner

_WORK_REFS = "refs/shoal/cluster"
OWN_BRANCH = "shoal"
"""Branch of a checkout on another machine."""
_SENT_REFS = "refs/shoal/others"
_KINDS = ("branches", "stashes")
_SHORT_ID = 12
_BYTES_OUTSIDE_UTF8 = re.compile("[\udc80-\udcff]")
_FIRST_BYTE = 0xDC00
_MAX_LISTED = 5_000
"""Maximum number of branches or stashes that are sent."""


def build_work_ref(session: str, name: str) -> str:
    """Return the ref with the work of a member or an agent of a session."""
    return f"{_WORK_REFS}/{session}/{name}"


def build_refspecs(ref: str) -> tuple[str, ...]:
    """Return what stores all branches and stashes of a bundle next to a ref."""
    return tuple(f"+{_SENT_REFS}/{kind}/*:{ref}.{kind}/*" for kind in _KINDS)


async def list_stored_branches(git: GitRunner, at: GitDirectories, ref: str) -> dict[str, str]:
    """Return the commits that are stored next to a ref, by `branches/NAME` or `stashes/ID`."""
    found = {}
    for kind in _KINDS:
        prefix = f"{ref}.{kind}/"
        listing = await git("for-each-ref", "--format=%(objectname) %(refname)", prefix, at=at)
        for line in filter(None, listing.text.split("\n")):
            commit, _, name = line.partition(" ")
            found[f"{kind}/{name.removeprefix(prefix)}"] = commit
    return found


async def list_own_branches(git: GitRunner, top: Path, base: str) -> dict[str, str]:
    """Return the branches with commits that are not in `base`, and all stashes."""
    listing = await git(
        *("for-each-ref", f"--count={_MAX_LISTED}", f"--no-merged={base}"),
        *("--format=%(HEAD)%(objectname) %(refname)", "refs/heads/"),
        at=top,
    )
    found = {}
    for line in filter(None, listing.text.split("\n")):
        is_current, commit, name = line[0] == "*", *line[1:].split(" ", 1)
        if not (is_current and name == f"refs/heads/{OWN_BRANCH}"):
            sent = _escape_bytes(name.removeprefix("refs/heads/"))
            while f"branches/{sent}" in found:
                sent += "_"
            found[f"branches/{sent}"] = commit
    # Without this check, a process would be started for each checkpoint.
    if (top / ".git" / "logs" / "refs" / "stash").exists():
        stashes = await git.try_run(
            "log", "-g", f"--max-count={_MAX_LISTED}", "--format=%H", "refs/stash", "--", at=top
        )
        if stashes.status == 0:
            found |= {
                f"stashes/{commit[:_SHORT_ID]}": commit for commit in stashes.text.split("\n") if commit
            }
    return found


def _escape_bytes(name: str) -> str:
    """Return a name that documents can hold: git accepts any bytes, also those that are not UTF-8."""
    return _BYTES_OUTSIDE_UTF8.sub(lambda found: f"%{ord(found[0]) - _FIRST_BYTE:02X}", name)


async def name_sent_branches(git: GitRunner, top: Path, branches: Mapping[str, str]) -> list[str]:
    """Create the refs for a bundle, and return them. Refs of earlier bundles are deleted."""
    earlier = await git("for-each-ref", "--format=%(refname)", f"{_SENT_REFS}/", at=top)
    named = {f"{_SENT_REFS}/{name}": commit for name, commit in branches.items()}
    # All of them, because one may be in the way of another: a branch `a`, and later `a/b`.
    deleted = [f"delete {name}" for name in earlier.text.split("\n") if name]
    created = [f"create {name} {commit}" for name, commit in named.items()]
    for commands in filter(None, (deleted, created)):
        await git("update-ref", "--stdin", at=top, stdin="\n".join([*commands, ""]).encode())
    return list(named)


async def restore_branches(git: GitRunner, top: Path, branches: Mapping[str, str]) -> None:
    """Create the branches and stashes in a new checkout. What git refuses stays where it is stored."""
    for name, commit in branches.items():
        kind, _, short = name.partition("/")
        if kind == "stashes":
            await git.try_run("stash", "store", "-m", f"Stash {short}", commit, at=top)
            continue
        branch = f"{short}-earlier" if short == OWN_BRANCH else short
        await git.try_run("update-ref", f"refs/heads/{branch}", commit, at=top)
