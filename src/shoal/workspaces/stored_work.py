"""Refs with the work of agents on other machines as bundles for the store, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256

from shoal.core.errors import WorktreeError
from shoal.core.store import WorkPart
from shoal.workspaces.checkout import GitCheckout
from shoal.workspaces.git_runner import GitDirectories, GitRunner
from shoal.workspaces.project_transfer import create_carrier, fetch_bundle
from shoal.workspaces.workspace_texts import format_workspace_notice

_CARRIER_REFS = "refs/shoal/carriers"
_MAX_UNPUSHED = 64 * 1024 * 1024
"""Bytes of a first bundle with all commits that are in no remote; a larger one starts at HEAD."""
_SHORT_ID = 12


async def list_work_refs(git: GitRunner, at: GitDirectories, ref: str) -> dict[str, str]:
    """Return the commits of the work, by what follows the ref: nothing, `.branches/NAME` or `.stashes/ID`."""
    kinds = (f"{ref}.branches/", f"{ref}.stashes/")
    listing = await git("for-each-ref", "--format=%(objectname) %(refname)", ref, *kinds, at=at)
    entries = (line.partition(" ") for line in listing.text.split("\n") if line)
    return {
        name.removeprefix(ref): commit for commit, _, name in entries if name == ref or name.startswith(kinds)
    }


async def bundle_work(
    git: GitRunner, checkout: GitCheckout, ref: str, agent: str, earlier: WorkPart | None
) -> WorkPart | None:
    """Return what the stored parts lack, the last of which is `earlier`; None if they have everything.

    Without an earlier part, the new one is the first.
    """
    at = checkout.git_directories
    refs = await list_work_refs(git, at, ref)
    if "" not in refs:
        raise WorktreeError(format_workspace_notice("work_ref_removed", ref=ref))
    if earlier is not None:
        if refs == earlier.refs:
            return None
        # As a parent, the last commit keeps git from sending its files again, although it is no ancestor.
        commits = (refs[""], *refs.values(), earlier.refs[""])
        excluded = [f"^{commit}" for commit in (*earlier.refs.values(), *earlier.needed)]
        with suppress(WorktreeError):  # git has removed the earlier commits
            bundle = await _create_bundle(git, at, ref, commits, excluded)
            return WorkPart(agent=agent, refs=refs, needed=earlier.needed, is_first=False, bundle=bundle)
    bundle = await _create_first_bundle(git, at, ref, refs)
    return WorkPart(agent=agent, refs=refs, needed=_read_needed_commits(bundle), is_first=True, bundle=bundle)


async def _create_first_bundle(
    git: GitRunner, at: GitDirectories, ref: str, refs: Mapping[str, str]
) -> bytes:
    """Bundle what is in no remote, because another clone may lack it; without remotes, what HEAD lacks."""
    commits = (refs[""], *refs.values())
    if (await git("for-each-ref", "--count=1", "refs/remotes/", at=at)).text:
        bundle = await _create_bundle(git, at, ref, commits, ("--not", "--remotes"))
        if len(bundle) <= _MAX_UNPUSHED:
            return bundle
    base = await git.try_run("merge-base", "HEAD", refs[""], at=at)
    return await _create_bundle(git, at, ref, commits, (f"^{base.text}",) if base.status == 0 else ())


async def _create_bundle(
    git: GitRunner, at: GitDirectories, ref: str, commits: Sequence[str], excluded: Sequence[str]
) -> bytes:
    name = _build_carrier_ref(ref)
    await git("update-ref", name, await create_carrier(git, at, *commits), at=at)
    try:
        return (await git("bundle", "create", "-", name, *excluded, at=at)).out
    finally:
        await git("update-ref", "-d", name, at=at)


def _build_carrier_ref(ref: str) -> str:
    return f"{_CARRIER_REFS}/{sha256(ref.encode()).hexdigest()[:16]}"


def _read_needed_commits(bundle: bytes) -> tuple[str, ...]:
    """Return the commits that a repository must have before it can fetch from the bundle."""
    header = bundle.partition(b"\n\n")[0].split(b"\n")
    return tuple(line[1:].split(b" ")[0].decode() for line in header if line.startswith(b"-"))


async def restore_work(
    git: GitRunner, checkout: GitCheckout, ref: str, parts: Sequence[WorkPart]
) -> tuple[str, ...]:
    """Set the refs to the stored commits; return the refs under which other commits were kept.

    Raises `WorktreeError`, for example if the repository lacks commits that the parts need.
    """
    at = checkout.git_directories
    await _require_commits(git, at, ref, parts[0])
    name = _build_carrier_ref(ref)
    try:
        for part in parts:
            await fetch_bundle(git, checkout.top, part.bundle, f"+{name}:{name}")
        return await _set_refs(git, at, ref, parts[-1].refs)
    except WorktreeError as error:
        raise WorktreeError(
            format_workspace_notice("work_not_restored", agent=parts[0].agent, ref=ref, error=error)
        ) from error
    finally:
        await git.try_run("update-ref", "-d", name, at=at)


async def _require_commits(git: GitRunner, at: GitDirectories, ref: str, first: WorkPart) -> None:
    missing = [
        commit
        for commit in first.needed
        if (await git.try_run("cat-file", "-e", f"{commit}^{{commit}}", at=at)).status != 0
    ]
    if missing:
        raise WorktreeError(
            format_workspace_notice(
                "work_needs_commits", agent=first.agent, ref=ref, commits=", ".join(missing)
            )
        )


async def _set_refs(
    git: GitRunner, at: GitDirectories, ref: str, stored: Mapping[str, str]
) -> tuple[str, ...]:
    current = await list_work_refs(git, at, ref)
    others = dict.fromkeys(commit for commit in current.values() if commit not in stored.values())
    kept = {f"{ref}.replaced/{commit[:_SHORT_ID]}": commit for commit in others}
    steps = (
        [f"update {name} {commit}" for name, commit in kept.items()],
        # All of them, because one may be in the way of another: a branch `a`, and later `a/b`.
        [f"delete {ref}{name}" for name in current],
        [f"create {ref}{name} {commit}" for name, commit in stored.items()],
    )
    for commands in filter(None, steps):
        await git("update-ref", "--stdin", at=at, stdin="\n".join([*commands, ""]).encode())
    return tuple(kept)
