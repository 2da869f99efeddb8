"""User operations on worktrees: list, show, merge and remove."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.core.agents.worktrees import (
    MergedWorktree,
    RemovedWorktree,
    WorktreeChanges,
    WorktreeRecord,
    WorktreeStatus,
)
from shoal.core.errors import WorktreeError
from shoal.workspaces.branch_merge import (
    branch_contains_commits,
    get_merge_target_branch,
    merge_commit_into_checkout,
    refuse_unfinished_git_operation,
)
from shoal.workspaces.checkout import refuse_required_repository_filters
from shoal.workspaces.git_runner import GitDirectories
from shoal.workspaces.owner_lease import is_worktree_lease_held
from shoal.workspaces.workspace_texts import format_workspace_notice
from shoal.workspaces.worktree_changes import (
    commit_worktree_changes,
    find_git_worktree_entry,
    get_kept_worktree_ref,
)
from shoal.workspaces.worktree_repository import WorktreeRepository, build_unknown_worktree_error

_MAX_NAMES = 10


async def list_worktree_statuses(repository: WorktreeRepository) -> list[WorktreeStatus]:
    refs = await repository.list_kept_refs()
    found = [
        await _collect_worktree_status(repository, record, refs) for record in repository.files.iter_records()
    ]
    known_names = {each.name for each in found}
    return [
        *found,
        *[
            await _collect_kept_ref_status(repository, name, refs[name])
            for name in refs
            if name not in known_names
        ],
    ]


async def show_worktree(repository: WorktreeRepository, name: str) -> tuple[WorktreeStatus, str]:
    """Return the status of a worktree and a summary of its changes from git."""
    refs, record = await repository.list_kept_refs(), repository.files.load_record(name)
    stat = ("diff", "--stat=100", "--ignore-submodules=dirty")
    if record is None:
        if name not in refs:
            raise build_unknown_worktree_error(name)
        base = (
            await repository.git("merge-base", "HEAD", refs[name], at=repository.checkout.git_directories)
        ).text
        result = await repository.git(*stat, base, refs[name], "--", at=repository.checkout.git_directories)
        return await _collect_kept_ref_status(repository, name, refs[name]), result.text
    status = await _collect_worktree_status(repository, record, refs)
    entry = find_git_worktree_entry(repository.checkout.common, record.path)
    if entry is not None and record.path.is_dir():
        location = GitDirectories(entry=entry, common=repository.checkout.common, tree=record.path)
        lines = (await repository.git(*stat, record.base, "--", at=location)).text.splitlines()
        new = (await repository.git("ls-files", "--others", "--exclude-standard", "-z", at=location)).names
        return status, "\n".join([*(f" {path} | new, not added" for path in new), *lines])
    tip = refs.get(name) or (status.work.head if status.work else record.base)
    return status, (
        await repository.git(*stat, record.base, tip, "--", at=repository.checkout.git_directories)
    ).text


async def merge_worktree(repository: WorktreeRepository, name: str) -> MergedWorktree:
    """Merge one worktree; the lock must be held."""
    await get_merge_target_branch(repository.git, repository.checkout)
    await refuse_required_repository_filters(repository.git, repository.checkout)
    record = repository.files.load_record(name)
    if record is None:
        commit = (await repository.list_kept_refs()).get(name)
        if commit is None:
            raise build_unknown_worktree_error(name)
        merged = await merge_commit_into_checkout(
            repository.git, repository.checkout, name, commit, path=None
        )
        await _delete_merged_ref(repository, name, commit)
        return merged
    record = repository.get_unused_worktree_record(name)
    entry = find_git_worktree_entry(repository.checkout.common, record.path)
    if entry is not None:
        refuse_unfinished_git_operation(entry, record.path)
    work = await repository.collect_changes(record)
    _refuse_nested_repositories(record, work)
    if not work.is_empty:
        await repository.save_changes(record, work)
    common, directory = repository.checkout.common, repository.files.directory
    commit = await commit_worktree_changes(repository.git, common, record, work, directory)
    merged = await merge_commit_into_checkout(
        repository.git, repository.checkout, name, commit, path=record.path
    )
    await repository.remove_worktree(record)
    await _delete_merged_ref(repository, name, commit)
    return merged


async def remove_worktree(repository: WorktreeRepository, name: str, *, force: bool) -> RemovedWorktree:
    """Remove a worktree; the lock must be held."""
    record = repository.get_unused_worktree_record(name)
    if record.state in ("making", "removing"):
        return await repository.remove_worktree(record)
    work = await repository.collect_changes(record)
    _refuse_nested_repositories(record, work)
    if work.is_empty:
        return await repository.remove_worktree(record)
    # Uncommitted work may have been merged from the ref: git gives the same content the same tree.
    ref = await repository.save_changes(record, work)
    merged = await branch_contains_commits(repository.git, repository.checkout, ref)
    if not merged and not force:
        raise WorktreeError(_format_unmerged_work_error(record, work))
    removed = await repository.remove_worktree(record)
    if merged:
        await _delete_merged_ref(repository, name, ref)
        return removed
    return replace(removed, ref=ref)


async def _collect_worktree_status(
    repository: WorktreeRepository, record: WorktreeRecord, refs: dict[str, str]
) -> WorktreeStatus:
    ref = refs.get(record.name)
    try:
        work = await repository.collect_changes(record) if record.state in ("live", "kept") else None
    except WorktreeError:
        work = None
    merged = (
        work is not None
        and not work.uncommitted
        and not work.nested
        and await branch_contains_commits(repository.git, repository.checkout, *work.tips)
    )
    return WorktreeStatus(
        name=record.name,
        record=record,
        alive=is_worktree_lease_held(repository.files.lease_directory, record.owner.lease),
        work=work,
        merged=merged,
        ref=None if ref is None else get_kept_worktree_ref(record.name),
        ref_commit=ref or "",
    )


async def _collect_kept_ref_status(repository: WorktreeRepository, name: str, commit: str) -> WorktreeStatus:
    merged = await branch_contains_commits(repository.git, repository.checkout, commit)
    return WorktreeStatus(name=name, ref=get_kept_worktree_ref(name), ref_commit=commit, merged=merged)


async def _delete_merged_ref(repository: WorktreeRepository, name: str, merged: str) -> None:
    """Delete the ref if the branch now contains its content, even under another commit."""
    kept_commit = (await repository.list_kept_refs()).get(name)
    if kept_commit is None:
        return
    location = repository.checkout.git_directories
    unmerged_commits = (
        await repository.git("rev-list", kept_commit, "--not", "HEAD", "--", at=location)
    ).text.split()
    trees = (
        await repository.git("rev-parse", f"{kept_commit}^{{tree}}", f"{merged}^{{tree}}", at=location)
    ).text.split()
    if not unmerged_commits or (unmerged_commits == [kept_commit] and trees[0] == trees[1]):
        await repository.git("update-ref", "-d", get_kept_worktree_ref(name), kept_commit, at=location)


def _refuse_nested_repositories(record: WorktreeRecord, work: WorktreeChanges) -> None:
    if work.nested:
        raise WorktreeError(
            format_workspace_notice(
                "nested_repositories", name=record.name, repositories=", ".join(work.nested), path=record.path
            )
        )


def _format_unmerged_work_error(record: WorktreeRecord, work: WorktreeChanges) -> str:
    parts = []
    if work.commits:
        parts.append(f"{work.commits} commit{'' if work.commits == 1 else 's'}")
    if work.uncommitted:
        more = len(work.uncommitted) - _MAX_NAMES
        more_text = f" and {more} more" if more > 0 else ""
        parts.append(f"uncommitted changes ({', '.join(work.uncommitted[:_MAX_NAMES])}{more_text})")
    contents = " and ".join(parts) or "a branch that has moved"
    return (
        f"{record.name} contains unmerged work: {contents}. Merge it: shoal worktree merge {record.name}. "
        f"Or remove it with --force, which keeps the work under {get_kept_worktree_ref(record.name)}."
    )
