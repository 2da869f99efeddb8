"""A repository with the worktrees of its agents, and the operations on one worktree."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from msgspec import Struct

from shoal.core.agents.worktrees import RemovedWorktree, RetainedWorktree, WorktreeChanges, WorktreeRecord
from shoal.core.errors import WorktreeError
from shoal.workspaces.checkout import GitCheckout
from shoal.workspaces.git_runner import GitRunner
from shoal.workspaces.owner_lease import is_worktree_lease_held
from shoal.workspaces.repository_lock import GitRepositoryLock
from shoal.workspaces.workspace_texts import format_workspace_notice
from shoal.workspaces.worktree_changes import (
    KEPT_REFS,
    collect_worktree_changes,
    find_git_worktree_entry,
    get_agent_branch_prefix,
    save_worktree_changes,
)
from shoal.workspaces.worktree_files import WorktreeRecordStore, remove_directory_tree


class WorktreeRepository(Struct, frozen=True, kw_only=True):
    git: GitRunner
    checkout: GitCheckout
    files: WorktreeRecordStore
    lock: GitRepositoryLock

    def get_worktree_record(self, name: str) -> WorktreeRecord:
        record = self.files.load_record(name)
        if record is None:
            raise build_unknown_worktree_error(name)
        return record

    def get_unused_worktree_record(self, name: str) -> WorktreeRecord:
        """Return the record of a worktree that no agent uses. Raises `WorktreeError`."""
        record = self.get_worktree_record(name)
        if self.is_worktree_in_use(record):
            raise WorktreeError(format_workspace_notice("worktree_in_use", name=name, pid=record.owner.pid))
        return record

    def is_worktree_in_use(self, record: WorktreeRecord) -> bool:
        return record.state != "kept" and is_worktree_lease_held(
            self.files.lease_directory, record.owner.lease
        )

    async def collect_changes(self, record: WorktreeRecord) -> WorktreeChanges:
        return await collect_worktree_changes(self.git, self.checkout.common, record, self.files.directory)

    async def save_changes(self, record: WorktreeRecord, work: WorktreeChanges) -> str:
        return await save_worktree_changes(self.git, self.checkout.common, record, work, self.files.directory)

    async def remove_or_retain_worktree(self, record: WorktreeRecord) -> RetainedWorktree | RemovedWorktree:
        """Remove or keep a worktree whose agent is gone; the lock must be held."""
        if record.state in ("making", "removing"):
            return await self.remove_worktree(record)
        found = await self.collect_changes_or_retain(record)
        if isinstance(found, RetainedWorktree):
            return found
        return (
            await self.remove_worktree(record)
            if found.is_empty
            else await self.retain_worktree(record, found)
        )

    async def collect_changes_or_retain(self, record: WorktreeRecord) -> WorktreeChanges | RetainedWorktree:
        """Return the work done in it; if git cannot tell, the worktree is kept as it is."""
        try:
            return await self.collect_changes(record)
        except WorktreeError as error:
            return self._mark_retained(record, None, None, f"git cannot read its content: {error}")

    async def retain_worktree(self, record: WorktreeRecord, work: WorktreeChanges) -> RetainedWorktree:
        """Save the work under its ref, then mark the worktree kept; after a crash in between it is reaped."""
        try:
            ref = await self.save_changes(record, work)
        except WorktreeError as error:
            return self._mark_retained(
                record, work, None, f"Its work could not be stored under a ref either: {error}"
            )
        nested = f"Not stored under the ref: {', '.join(work.nested)}." if work.nested else ""
        return self._mark_retained(record, work, ref, nested)

    async def remove_worktree(self, record: WorktreeRecord) -> RemovedWorktree:
        """Remove the worktree with its branches; the lock must be held."""
        # First of all: after a crash in the middle, the remains must not be taken for work.
        self.files.set_worktree_state(record, "removing")
        common, name = self.checkout.common, record.name
        entry = find_git_worktree_entry(common, record.path)
        await asyncio.to_thread(remove_directory_tree, record.path)
        for each in (*([entry] if entry is not None else []), *_list_partial_worktree_entries(common, name)):
            await asyncio.to_thread(remove_directory_tree, each)
        refs = ("for-each-ref", "--format=delete %(refname)", f"refs/heads/{get_agent_branch_prefix(name)}")
        orders = (await self.git(*refs, at=self.checkout.git_directories)).out
        if orders:
            await self.git("update-ref", "--stdin", at=self.checkout.git_directories, stdin=orders)
        for kind in ("refs/heads", "logs/refs/heads"):
            remove_directory_tree(common / kind / get_agent_branch_prefix(name))
        self.files.delete_record(record)
        return RemovedWorktree(name=name)

    async def list_kept_refs(self) -> dict[str, str]:
        """Return the kept commits by worktree name."""
        arguments = ("for-each-ref", "--format=%(refname) %(objectname)", KEPT_REFS)
        lines = (await self.git(*arguments, at=self.checkout.git_directories)).text.splitlines()
        return {
            ref.removeprefix(f"{KEPT_REFS}/"): commit for ref, commit in (line.split(" ") for line in lines)
        }

    def _mark_retained(
        self, record: WorktreeRecord, work: WorktreeChanges | None, ref: str | None, note: str
    ) -> RetainedWorktree:
        self.files.set_worktree_state(record, "kept")
        return RetainedWorktree(
            name=record.name, path=record.path, branch=record.branch, ref=ref, work=work, note=note
        )


def build_unknown_worktree_error(name: str) -> WorktreeError:
    return WorktreeError(format_workspace_notice("unknown_worktree", name=name))


def _list_partial_worktree_entries(common: Path, name: str) -> list[Path]:
    """List entries left by a git that was killed while creating the worktree; they name no directory yet."""
    entries = common / "worktrees"
    return [
        entry
        for entry in (entries.glob(f"{name}*") if entries.is_dir() else ())
        if re.fullmatch(re.escape(name) + "[0-9]*", entry.name) and not (entry / "gitdir").exists()
    ]
