"""Work done in a worktree since its creation, and how it is saved: as a commit under its own ref."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.agents.worktrees import WorktreeChanges, WorktreeRecord
from shoal.core.errors import WorktreeError
from shoal.workspaces.checkout import is_git_repository
from shoal.workspaces.git_runner import GitDirectories, GitRunner
from shoal.workspaces.workspace_texts import format_workspace_notice

KEPT_REFS = "refs/shoal/kept"
_MAX_SUBJECTS = 20
_SUBMODULE_MODE = "160000"


class _HiddenAndNestedIndexPaths(Struct, frozen=True, kw_only=True):
    """Contents of the index: files whose changes git was told to ignore, and nested repositories."""

    hidden: tuple[str, ...]
    nested: tuple[str, ...]


def get_agent_branch_prefix(name: str) -> str:
    """Return the prefix of all branches of an agent: a directory that a sandbox can grant."""
    return f"shoal/{name}"


def get_kept_worktree_ref(name: str) -> str:
    return f"{KEPT_REFS}/{name}"


def find_git_worktree_entry(common: Path, path: Path) -> Path | None:
    """Return the directory under the repository's `worktrees` that belongs to the worktree at `path`."""
    entries = common / "worktrees"
    for entry in sorted(entries.glob(f"{path.name}*")) if entries.is_dir() else ():
        try:
            gitdir = os.fsdecode((entry / "gitdir").read_bytes()).rstrip("\n")
        except OSError:
            continue
        if os.path.realpath(entry / gitdir) == os.path.realpath(path / ".git"):
            return entry
    return None


async def locate_worktree_git_directories(
    git: GitRunner, common: Path, record: WorktreeRecord, scratch: Path
) -> GitDirectories:
    """Return the location of the worktree; if git has forgotten it, with an index made from its branch."""
    entry = find_git_worktree_entry(common, record.path)
    if entry is not None and (entry / "index").exists():
        return GitDirectories(entry=entry, common=common, tree=record.path)
    location = GitDirectories(entry=entry or common, common=common, tree=record.path, index=scratch)
    await git("read-tree", await find_worktree_head_commit(git, common, record), at=location)
    return location


async def find_worktree_head_commit(git: GitRunner, common: Path, record: WorktreeRecord) -> str:
    """Return the commit that the worktree is on; otherwise that of its branch, or its base."""
    entry = find_git_worktree_entry(common, record.path)
    if entry is not None:
        location = GitDirectories(entry=entry, common=common, tree=common)
        result = await git.try_run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", at=location)
        if result.status == 0:
            return result.text
    result = await git.try_run(
        "rev-parse",
        "--verify",
        "--quiet",
        f"refs/heads/{record.branch}^{{commit}}",
        at=_locate_repository(common),
    )
    return result.text if result.status == 0 else record.base


async def collect_worktree_changes(
    git: GitRunner, common: Path, record: WorktreeRecord, directory: Path
) -> WorktreeChanges:
    """Collect the work without changing the worktree; `directory` is for a temporary index."""
    head = await find_worktree_head_commit(git, common, record)
    tips = [head, *await _list_other_branch_tips(git, common, record)]
    log = ("log", "-z", "--format=%s", f"--max-count={_MAX_SUBJECTS}", *tips, "--not", record.base, "--")
    count = int(
        (
            await git("rev-list", "--count", *tips, "--not", record.base, "--", at=_locate_repository(common))
        ).text
    )
    with _open_scratch_index(directory, record.name) as scratch:
        uncommitted, changed_files, nested = await _list_worktree_differences(git, common, record, scratch)
    return WorktreeChanges(
        head=head,
        tips=tuple(await _select_independent_commits(git, common, tips)),
        commits=count,
        subjects=(await git(*log, at=_locate_repository(common))).names if count else (),
        files=tuple(sorted({*uncommitted, *changed_files})),
        uncommitted=uncommitted,
        nested=nested,
        moved=head != record.base or count > 0,
    )


async def save_worktree_changes(
    git: GitRunner, common: Path, record: WorktreeRecord, work: WorktreeChanges, directory: Path
) -> str:
    """Save all work under the worktree's ref and return the ref; the worktree stays as it is."""
    ref, location = get_kept_worktree_ref(record.name), _locate_repository(common)
    kept_commit = (await git.try_run("rev-parse", "--verify", "--quiet", ref, at=location)).text
    heads = await _select_independent_commits(
        git, common, [*work.tips, *([kept_commit] if kept_commit else [])]
    )
    if not work.uncommitted and len(heads) == 1:
        commit = heads[0]
    else:
        with _open_scratch_index(directory, record.name) as scratch:
            tree = await _write_worktree_tree(git, common, record, work, scratch)
        is_tree_kept = (
            kept_commit and (await git("rev-parse", f"{kept_commit}^{{tree}}", at=location)).text == tree
        )
        is_already_kept = is_tree_kept and heads == [kept_commit]
        commit = (
            kept_commit
            if is_already_kept
            else await _create_uncommitted_work_commit(git, common, record, tree, heads)
        )
    if commit != kept_commit:
        await git("update-ref", "-m", f"kept from {record.path}", ref, commit, kept_commit, at=location)
    return ref


async def commit_worktree_changes(
    git: GitRunner, common: Path, record: WorktreeRecord, work: WorktreeChanges, directory: Path
) -> str:
    """Return the work as one commit on top of the worktree's head; the head itself if all is committed."""
    if not work.uncommitted:
        return work.head
    with _open_scratch_index(directory, record.name) as scratch:
        tree = await _write_worktree_tree(git, common, record, work, scratch)
    commit = await _find_kept_commit(git, common, record, tree, work.head)
    commit = commit or await _create_uncommitted_work_commit(git, common, record, tree, [work.head])
    if find_git_worktree_entry(common, record.path) is not None and record.path.is_dir():
        location = await locate_worktree_git_directories(
            git, common, record, directory / f".{record.name}.index"
        )
        await git(
            "update-ref", "-m", "commit: by Shoal, to be merged", "HEAD", commit, work.head, at=location
        )
        await git("reset", "--quiet", at=location)
    return commit


async def _find_kept_commit(
    git: GitRunner, common: Path, record: WorktreeRecord, tree: str, head: str
) -> str | None:
    """Return the commit under the ref, if it is exactly this tree on top of this head."""
    ref = get_kept_worktree_ref(record.name)
    result = await git.try_run("rev-parse", ref, f"{ref}^{{tree}}", f"{ref}^@", at=_locate_repository(common))
    commit, *details = result.text.split() or [""]
    return commit if result.status == 0 and details == [tree, head] else None


async def get_default_committer_settings(git: GitRunner, common: Path) -> tuple[str, ...]:
    """Return the committer settings: the user's, if they are configured."""
    settings = []
    for key, value in (("user.name", "Shoal"), ("user.email", "shoal@localhost")):
        if not (await git.try_run("config", key, at=_locate_repository(common))).text:
            settings.append(f"{key}={value}")
    return tuple(settings)


async def _list_worktree_differences(
    git: GitRunner, common: Path, record: WorktreeRecord, scratch: Path
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return uncommitted files, tracked files that differ from the base, and nested repositories."""
    if not record.path.is_dir():
        changed = ("diff-tree", "-r", "--name-only", "--no-renames", "-z", record.base)
        return (
            (),
            (
                await git(
                    *changed,
                    await find_worktree_head_commit(git, common, record),
                    at=_locate_repository(common),
                )
            ).names,
            (),
        )
    location = await locate_worktree_git_directories(git, common, record, scratch)
    index_listing = await _read_git_index(git, location)
    location = await _reveal_hidden_changes(git, location, index_listing, scratch)
    status = await git(
        "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all",
        "--ignore-submodules=dirty", at=location,
    )  # fmt: skip
    lines = status.names
    # Git does not look into a nested repository: it names the directory.
    untracked_directories = [
        line[3:].rstrip("/") for line in lines if line.startswith("??") and line.endswith("/")
    ]
    diff = ("diff", "--name-only", "-z", "--no-renames", "--ignore-submodules=dirty", record.base, "--")
    changed_files = (await git(*diff, at=location)).names
    uncommitted = tuple(sorted(line[3:].rstrip("/") for line in lines))
    return uncommitted, changed_files, tuple(sorted({*index_listing.nested, *untracked_directories}))


async def _read_git_index(git: GitRunner, location: GitDirectories) -> _HiddenAndNestedIndexPaths:
    hidden, nested = [], []
    is_sparse = (await git.try_run("config", "--bool", "core.sparseCheckout", at=location)).text == "true"
    for line in (await git("ls-files", "-v", "--stage", "-z", at=location)).names:
        details, _, name = line.partition("\t")
        tag, mode = details.split(" ")[:2]
        if tag.islower() or (tag == "S" and not is_sparse):
            hidden.append(name)
        if mode == _SUBMODULE_MODE and is_git_repository(location.tree / name):
            nested.append(name)
    return _HiddenAndNestedIndexPaths(hidden=tuple(hidden), nested=tuple(nested))


async def _reveal_hidden_changes(
    git: GitRunner, location: GitDirectories, index_listing: _HiddenAndNestedIndexPaths, scratch: Path
) -> GitDirectories:
    """Return a location whose index hides no changes: `--assume-unchanged` must not lose work."""
    if not index_listing.hidden:
        return location
    location = _copy_git_index(location, scratch)
    names = b"".join(os.fsencode(name) + b"\0" for name in index_listing.hidden)
    for flag in ("--no-assume-unchanged", "--no-skip-worktree"):
        await git("update-index", flag, "-z", "--stdin", at=location, stdin=names)
    return location


def _copy_git_index(location: GitDirectories, scratch: Path) -> GitDirectories:
    """Return the location with a writable index: a copy, unless it already has its own."""
    import shutil

    if location.index is not None:
        return location
    try:
        shutil.copyfile(location.entry / "index", scratch)
    except OSError as error:
        raise WorktreeError(
            format_workspace_notice("not_written", path=scratch, error=error.strerror or error)
        ) from error
    return replace(location, index=scratch)


async def _write_worktree_tree(
    git: GitRunner, common: Path, record: WorktreeRecord, work: WorktreeChanges, scratch: Path
) -> str:
    """Write the worktree as a tree: tracked files, and untracked files that are not ignored."""
    if not record.path.is_dir():
        return (await git("rev-parse", f"{work.head}^{{tree}}", at=_locate_repository(common))).text
    location = await locate_worktree_git_directories(git, common, record, scratch)
    index_listing = await _read_git_index(git, location)
    location = await _reveal_hidden_changes(git, _copy_git_index(location, scratch), index_listing, scratch)
    exclusions = [f":(exclude,literal,top){name}" for name in work.nested]
    await git(
        "add", "--all", "--sparse", "--", ".", *exclusions, at=location, settings=("core.safecrlf=false",)
    )
    return (await git("write-tree", at=location)).text


async def _create_uncommitted_work_commit(
    git: GitRunner, common: Path, record: WorktreeRecord, tree: str, parents: Sequence[str]
) -> str:
    parent_arguments = [word for parent in parents for word in ("-p", parent)]
    message = f"Uncommitted work of {record.name}\n\nCommitted by Shoal as the agent left it.\n"
    settings = await get_default_committer_settings(git, common)
    result = await git(
        "commit-tree",
        tree,
        *parent_arguments,
        at=_locate_repository(common),
        stdin=os.fsencode(message),
        settings=settings,
    )
    return result.text


async def _list_other_branch_tips(git: GitRunner, common: Path, record: WorktreeRecord) -> tuple[str, ...]:
    """Return the commits of the agent's other branches, and of refs that only this worktree has."""
    entry = find_git_worktree_entry(common, record.path)
    location = GitDirectories(entry=entry or common, common=common, tree=common)
    own_refs = () if entry is None else ("refs/worktree", "refs/bisect", "refs/rewritten")
    refs = (
        "for-each-ref",
        "--format=%(objectname)",
        f"refs/heads/{get_agent_branch_prefix(record.name)}",
        *own_refs,
    )
    return tuple(dict.fromkeys((await git(*refs, at=location)).text.split()))


async def _select_independent_commits(git: GitRunner, common: Path, commits: Sequence[str]) -> list[str]:
    """Return the commits that no other one contains, in order."""
    distinct = list(dict.fromkeys(commits))
    if len(distinct) == 1:
        return distinct
    found = (await git("merge-base", "--independent", *distinct, at=_locate_repository(common))).text.split()
    return [commit for commit in distinct if commit in found]


def _locate_repository(common: Path) -> GitDirectories:
    """Return the location for commands about the repository itself."""
    return GitDirectories(entry=common, common=common, tree=common)


@contextmanager
def _open_scratch_index(directory: Path, name: str) -> Iterator[Path]:
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
