"""User operations on worktrees: list, show, merge and remove."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.core.errors import WorktreeError
from shoal.core.worktrees import Merged, Removed, Standing, Work, WorktreeRecord
from shoal.workspaces.git import Place
from shoal.workspaces.merging import branch_of, bring_in, holds, refuse_under_way
from shoal.workspaces.owners import lives
from shoal.workspaces.shelf import Shelf, unknown
from shoal.workspaces.work import committed, find_entry, kept_ref

_NAMED = 10


async def standings(shelf: Shelf) -> list[Standing]:
    refs = await shelf.refs()
    found = [await _standing(shelf, record, refs) for record in shelf.files.all()]
    known = {each.name for each in found}
    return [*found, *[await _alone(shelf, name, refs[name]) for name in refs if name not in known]]


async def shown(shelf: Shelf, name: str) -> tuple[Standing, str]:
    """Return the status of a worktree and a summary of its changes from git."""
    refs, record = await shelf.refs(), shelf.files.read(name)
    stat = ("diff", "--stat=100", "--no-ext-diff", "--no-textconv")
    if record is None:
        if name not in refs:
            raise unknown(name)
        since = (await shelf.git("merge-base", "HEAD", refs[name], at=shelf.checkout.place)).text
        said = await shelf.git(*stat, since, refs[name], "--", at=shelf.checkout.place)
        return await _alone(shelf, name, refs[name]), said.text
    standing = await _standing(shelf, record, refs)
    entry = find_entry(shelf.checkout.common, record.path)
    if entry is not None and record.path.is_dir():
        place = Place(entry=entry, common=shelf.checkout.common, tree=record.path)
        lines = (await shelf.git(*stat, record.base, "--", at=place)).text.splitlines()
        new = (await shelf.git("ls-files", "--others", "--exclude-standard", "-z", at=place)).names
        return standing, "\n".join([*(f" {path} | new, not added" for path in new), *lines])
    last = refs.get(name) or (standing.work.head if standing.work else record.base)
    return standing, (await shelf.git(*stat, record.base, last, "--", at=shelf.checkout.place)).text


async def merge(shelf: Shelf, name: str) -> Merged:
    """Merge one worktree; the lock must be held."""
    await branch_of(shelf.git, shelf.checkout)
    record = shelf.files.read(name)
    if record is None:
        commit = (await shelf.refs()).get(name)
        if commit is None:
            raise unknown(name)
        merged = await bring_in(shelf.git, shelf.checkout, name, commit, path=None)
        await _let_go(shelf, name, commit)
        return merged
    record = shelf.free(name)
    entry = find_entry(shelf.checkout.common, record.path)
    if entry is not None:
        refuse_under_way(entry, record.path)
    work = await shelf.work(record)
    _refuse_nested(record, work)
    if not work.is_nothing:
        await shelf.keep(record, work)
    common, directory = shelf.checkout.common, shelf.files.directory
    commit = await committed(shelf.git, common, record, work, directory)
    merged = await bring_in(shelf.git, shelf.checkout, name, commit, path=record.path)
    await shelf.remove(record)
    await _let_go(shelf, name, commit)
    return merged


async def remove(shelf: Shelf, name: str, *, force: bool) -> Removed:
    """Remove a worktree; the lock must be held."""
    record = shelf.free(name)
    if record.state in ("making", "removing"):
        return await shelf.remove(record)
    work = await shelf.work(record)
    _refuse_nested(record, work)
    if work.is_nothing:
        return await shelf.remove(record)
    # Uncommitted work may have been merged from the ref: git gives the same content the same tree.
    ref = await shelf.keep(record, work)
    merged = await holds(shelf.git, shelf.checkout, ref)
    if not merged and not force:
        raise WorktreeError(_not_merged(record, work))
    gone = await shelf.remove(record)
    if merged:
        await _let_go(shelf, name, ref)
        return gone
    return replace(gone, ref=ref)


async def _standing(shelf: Shelf, record: WorktreeRecord, refs: dict[str, str]) -> Standing:
    ref = refs.get(record.name)
    try:
        work = await shelf.work(record) if record.state in ("live", "kept") else None
    except WorktreeError:
        work = None
    merged = (
        work is not None
        and not work.uncommitted
        and not work.nested
        and await holds(shelf.git, shelf.checkout, *work.tips)
    )
    return Standing(
        name=record.name,
        record=record,
        alive=lives(shelf.files.owners, record.owner.lease),
        work=work,
        merged=merged,
        ref=None if ref is None else kept_ref(record.name),
        ref_commit=ref or "",
    )


async def _alone(shelf: Shelf, name: str, commit: str) -> Standing:
    merged = await holds(shelf.git, shelf.checkout, commit)
    return Standing(name=name, ref=kept_ref(name), ref_commit=commit, merged=merged)


async def _let_go(shelf: Shelf, name: str, merged: str) -> None:
    """Delete the ref if the branch now contains its content, even under another commit."""
    kept = (await shelf.refs()).get(name)
    if kept is None:
        return
    place = shelf.checkout.place
    beyond = (await shelf.git("rev-list", kept, "--not", "HEAD", "--", at=place)).text.split()
    trees = (await shelf.git("rev-parse", f"{kept}^{{tree}}", f"{merged}^{{tree}}", at=place)).text.split()
    if not beyond or (beyond == [kept] and trees[0] == trees[1]):
        await shelf.git("update-ref", "-d", kept_ref(name), kept, at=place)


def _refuse_nested(record: WorktreeRecord, work: Work) -> None:
    if work.nested:
        raise WorktreeError(
            f"{record.name} has git repositories inside that no ref of this one can keep: "
            f"{', '.join(work.nested)}. Move them out of {record.path}, or delete them."
        )


def _not_merged(record: WorktreeRecord, work: Work) -> str:
    what = []
    if work.commits:
        what.append(f"{work.commits} commit{'' if work.commits == 1 else 's'}")
    if work.uncommitted:
        more = len(work.uncommitted) - _NAMED
        rest = f" and {more} more" if more > 0 else ""
        what.append(f"changes that are not committed ({', '.join(work.uncommitted[:_NAMED])}{rest})")
    held = " and ".join(what) or "a branch that was moved"
    return (
        f"{record.name} holds work that is not merged: {held}. "
        f"Merge it (shoal worktree merge {record.name}), or remove it with --force: "
        f"it then stays under {kept_ref(record.name)}."
    )
