"""Work done in a worktree since its creation, and how it is saved: as a commit under its own ref."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.errors import WorktreeError
from shoal.core.worktrees import Work, WorktreeRecord
from shoal.workspaces.git import Git, Place

KEPT = "refs/shoal/kept"
_SUBJECTS = 20
_SUBMODULE = "160000"


class _Listed(Struct, frozen=True, kw_only=True):
    """Contents of the index: files whose changes git was told to ignore, and nested repositories."""

    unseen: tuple[str, ...]
    nested: tuple[str, ...]


def prefix_of(name: str) -> str:
    """Return the prefix of all branches of an agent: a directory that a sandbox can grant."""
    return f"shoal/{name}"


def kept_ref(name: str) -> str:
    return f"{KEPT}/{name}"


def find_entry(common: Path, path: Path) -> Path | None:
    """Return the directory under the repository's `worktrees` that belongs to the worktree at `path`."""
    entries = common / "worktrees"
    for entry in sorted(entries.glob(f"{path.name}*")) if entries.is_dir() else ():
        try:
            named = os.fsdecode((entry / "gitdir").read_bytes()).rstrip("\n")
        except OSError:
            continue
        if os.path.realpath(entry / named) == os.path.realpath(path / ".git"):
            return entry
    return None


async def place_of(git: Git, common: Path, record: WorktreeRecord, scratch: Path) -> Place:
    """Return the location of the worktree; if git has forgotten it, with an index made from its branch."""
    entry = find_entry(common, record.path)
    if entry is not None and (entry / "index").exists():
        return Place(entry=entry, common=common, tree=record.path)
    place = Place(entry=entry or common, common=common, tree=record.path, index=scratch)
    await git("read-tree", await tip_of(git, common, record), at=place)
    return place


async def tip_of(git: Git, common: Path, record: WorktreeRecord) -> str:
    """Return the commit that the worktree is on; otherwise that of its branch, or its base."""
    entry = find_entry(common, record.path)
    if entry is not None:
        place = Place(entry=entry, common=common, tree=common)
        said = await git.tried("rev-parse", "--verify", "--quiet", "HEAD^{commit}", at=place)
        if said.status == 0:
            return said.text
    said = await git.tried(
        "rev-parse", "--verify", "--quiet", f"refs/heads/{record.branch}^{{commit}}", at=_bare(common)
    )
    return said.text if said.status == 0 else record.base


async def work_of(git: Git, common: Path, record: WorktreeRecord, directory: Path) -> Work:
    """Collect the work without changing the worktree; `directory` is for a temporary index."""
    head = await tip_of(git, common, record)
    tips = [head, *await _other_tips(git, common, record)]
    log = ("log", "-z", "--format=%s", f"--max-count={_SUBJECTS}", *tips, "--not", record.base, "--")
    count = int((await git("rev-list", "--count", *tips, "--not", record.base, "--", at=_bare(common))).text)
    with _scratch(directory, record.name) as scratch:
        uncommitted, differing, nested = await _differences(git, common, record, scratch)
    return Work(
        head=head,
        tips=tuple(await _independent(git, common, tips)),
        commits=count,
        subjects=(await git(*log, at=_bare(common))).names if count else (),
        files=tuple(sorted({*uncommitted, *differing})),
        uncommitted=uncommitted,
        nested=nested,
        moved=head != record.base or count > 0,
    )


async def keep(git: Git, common: Path, record: WorktreeRecord, work: Work, directory: Path) -> str:
    """Save all work under the worktree's ref and return the ref; the worktree stays as it is."""
    ref, bare = kept_ref(record.name), _bare(common)
    before = (await git.tried("rev-parse", "--verify", "--quiet", ref, at=bare)).text
    heads = await _independent(git, common, [*work.tips, *([before] if before else [])])
    if not work.uncommitted and len(heads) == 1:
        commit = heads[0]
    else:
        with _scratch(directory, record.name) as scratch:
            tree = await _tree(git, common, record, work, scratch)
        held = before and (await git("rev-parse", f"{before}^{{tree}}", at=bare)).text == tree
        nothing_new = held and heads == [before]
        commit = before if nothing_new else await _commit(git, common, record, tree, heads)
    if commit != before:
        await git("update-ref", "-m", f"kept from {record.path}", ref, commit, before, at=bare)
    return ref


async def committed(git: Git, common: Path, record: WorktreeRecord, work: Work, directory: Path) -> str:
    """Return the work as one commit on top of the worktree's head; the head itself if all is committed."""
    if not work.uncommitted:
        return work.head
    with _scratch(directory, record.name) as scratch:
        tree = await _tree(git, common, record, work, scratch)
    commit = await _kept_alone(git, common, record, tree, work.head)
    commit = commit or await _commit(git, common, record, tree, [work.head])
    if find_entry(common, record.path) is not None and record.path.is_dir():
        place = await place_of(git, common, record, directory / f".{record.name}.index")
        await git("update-ref", "-m", "commit: by Shoal, to be merged", "HEAD", commit, work.head, at=place)
        await git("reset", "--quiet", at=place)
    return commit


async def _kept_alone(git: Git, common: Path, record: WorktreeRecord, tree: str, head: str) -> str | None:
    """Return the commit under the ref, if it is exactly this tree on top of this head."""
    ref = kept_ref(record.name)
    said = await git.tried("rev-parse", ref, f"{ref}^{{tree}}", f"{ref}^@", at=_bare(common))
    commit, *rest = said.text.split() or [""]
    return commit if said.status == 0 and rest == [tree, head] else None


async def identity_settings(git: Git, common: Path) -> tuple[str, ...]:
    """Return the committer settings: the user, if git knows them."""
    settings = []
    for key, value in (("user.name", "Shoal"), ("user.email", "shoal@localhost")):
        if not (await git.tried("config", key, at=_bare(common))).text:
            settings.append(f"{key}={value}")
    return tuple(settings)


async def _differences(
    git: Git, common: Path, record: WorktreeRecord, scratch: Path
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return uncommitted files, tracked files that differ from the base, and nested repositories."""
    if not record.path.is_dir():
        changed = ("diff-tree", "-r", "--name-only", "--no-renames", "-z", record.base)
        return (), (await git(*changed, await tip_of(git, common, record), at=_bare(common))).names, ()
    place = await place_of(git, common, record, scratch)
    listed = await _listed(git, place)
    place = await _seeing(git, place, listed, scratch)
    status = await git(
        "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all",
        "--ignore-submodules=none", at=place,
    )  # fmt: skip
    lines = status.names
    # Git does not look into a nested repository: it names the directory.
    inside = [line[3:].rstrip("/") for line in lines if line.startswith("??") and line.endswith("/")]
    diff = ("diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", record.base, "--")
    differing = (await git(*diff, at=place)).names
    uncommitted = tuple(sorted(line[3:].rstrip("/") for line in lines))
    return uncommitted, differing, tuple(sorted({*listed.nested, *inside}))


async def _listed(git: Git, place: Place) -> _Listed:
    unseen, nested = [], []
    sparse = (await git.tried("config", "--bool", "core.sparseCheckout", at=place)).text == "true"
    for line in (await git("ls-files", "-v", "--stage", "-z", at=place)).names:
        facts, _, name = line.partition("\t")
        tag, mode = facts.split(" ")[:2]
        if tag.islower() or (tag == "S" and not sparse):
            unseen.append(name)
        if mode == _SUBMODULE and _is_repository(place.tree / name):
            nested.append(name)
    return _Listed(unseen=tuple(unseen), nested=tuple(nested))


def _is_repository(directory: Path) -> bool:
    return os.path.lexists(directory / ".git")


async def _seeing(git: Git, place: Place, listed: _Listed, scratch: Path) -> Place:
    """Return a location whose index hides no changes: `--assume-unchanged` must not lose work."""
    if not listed.unseen:
        return place
    place = _with_own_index(place, scratch)
    names = b"".join(os.fsencode(name) + b"\0" for name in listed.unseen)
    for flag in ("--no-assume-unchanged", "--no-skip-worktree"):
        await git("update-index", flag, "-z", "--stdin", at=place, given=names)
    return place


def _with_own_index(place: Place, scratch: Path) -> Place:
    """Return the location with a writable index: a copy, unless it already has its own."""
    if place.index is not None:
        return place
    try:
        shutil.copyfile(place.entry / "index", scratch)
    except OSError as error:
        raise WorktreeError(f"{scratch} cannot be written: {error.strerror or error}.") from error
    return replace(place, index=scratch)


async def _tree(git: Git, common: Path, record: WorktreeRecord, work: Work, scratch: Path) -> str:
    """Write the worktree as a tree: tracked files, and untracked files that are not ignored."""
    if not record.path.is_dir():
        return (await git("rev-parse", f"{work.head}^{{tree}}", at=_bare(common))).text
    place = await place_of(git, common, record, scratch)
    listed = await _listed(git, place)
    place = await _seeing(git, _with_own_index(place, scratch), listed, scratch)
    without = [f":(exclude,literal,top){name}" for name in work.nested]
    await git("add", "--all", "--sparse", "--", ".", *without, at=place, settings=("core.safecrlf=false",))
    return (await git("write-tree", at=place)).text


async def _commit(git: Git, common: Path, record: WorktreeRecord, tree: str, parents: Sequence[str]) -> str:
    named = [word for parent in parents for word in ("-p", parent)]
    message = f"Uncommitted work of {record.name}\n\nCommitted by Shoal as the agent had left it.\n"
    settings = await identity_settings(git, common)
    said = await git(
        "commit-tree", tree, *named, at=_bare(common), given=os.fsencode(message), settings=settings
    )
    return said.text


async def _other_tips(git: Git, common: Path, record: WorktreeRecord) -> tuple[str, ...]:
    """Return the commits of the agent's other branches, and of refs that only this worktree has."""
    entry = find_entry(common, record.path)
    place = Place(entry=entry or common, common=common, tree=common)
    own = () if entry is None else ("refs/worktree", "refs/bisect", "refs/rewritten")
    refs = ("for-each-ref", "--format=%(objectname)", f"refs/heads/{prefix_of(record.name)}", *own)
    return tuple(dict.fromkeys((await git(*refs, at=place)).text.split()))


async def _independent(git: Git, common: Path, commits: Sequence[str]) -> list[str]:
    """Return the commits that no other one contains, in order."""
    distinct = list(dict.fromkeys(commits))
    if len(distinct) == 1:
        return distinct
    found = (await git("merge-base", "--independent", *distinct, at=_bare(common))).text.split()
    return [commit for commit in distinct if commit in found]


def _bare(common: Path) -> Place:
    """Return the location for commands about the repository itself."""
    return Place(entry=common, common=common, tree=common)


@contextmanager
def _scratch(directory: Path, name: str) -> Iterator[Path]:
    """Provide a path for a temporary index, after removing one left by a crash."""
    path = directory / f".{name}.index"
    lock = path.with_name(f"{path.name}.lock")
    for each in (path, lock):
        each.unlink(missing_ok=True)
    try:
        yield path
    finally:
        for each in (path, lock):
            each.unlink(missing_ok=True)
