"""A repository with the worktrees of its agents, and the operations on one worktree."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import WorktreeError
from shoal.core.worktrees import Kept, Removed, Work, WorktreeRecord
from shoal.workspaces.checkout import Checkout
from shoal.workspaces.git import Git
from shoal.workspaces.owners import lives
from shoal.workspaces.repository_lock import RepositoryLock
from shoal.workspaces.work import KEPT, find_entry, keep, prefix_of, work_of
from shoal.workspaces.worktree_files import WorktreeFiles, erase


class Shelf(Struct, frozen=True, kw_only=True):
    git: Git
    checkout: Checkout
    files: WorktreeFiles
    lock: RepositoryLock

    def known(self, name: str) -> WorktreeRecord:
        record = self.files.read(name)
        if record is None:
            raise unknown(name)
        return record

    def free(self, name: str) -> WorktreeRecord:
        """Return the record of a worktree that no agent uses. Raises `WorktreeError`."""
        record = self.known(name)
        if self.in_use(record):
            raise WorktreeError(
                f"The agent of {name} is still at work (process {record.owner.pid}). Wait for it, or stop it."
            )
        return record

    def in_use(self, record: WorktreeRecord) -> bool:
        return record.state != "kept" and lives(self.files.owners, record.owner.lease)

    async def work(self, record: WorktreeRecord) -> Work:
        return await work_of(self.git, self.checkout.common, record, self.files.directory)

    async def keep(self, record: WorktreeRecord, work: Work) -> str:
        return await keep(self.git, self.checkout.common, record, work, self.files.directory)

    async def settle(self, record: WorktreeRecord) -> Kept | Removed:
        """Remove or keep a worktree whose agent is gone; the lock must be held."""
        if record.state in ("making", "removing"):
            return await self.remove(record)
        found = await self.look(record)
        if isinstance(found, Kept):
            return found
        return await self.remove(record) if found.is_nothing else await self.retain(record, found)

    async def look(self, record: WorktreeRecord) -> Work | Kept:
        """Return the work done in it; if git cannot tell, the worktree is kept as it is."""
        try:
            return await self.work(record)
        except WorktreeError as error:
            return self._left(record, None, None, f"git cannot tell what is in it: {error}")

    async def retain(self, record: WorktreeRecord, work: Work) -> Kept:
        """Save the work under its ref, then mark the worktree kept; after a crash in between it is reaped."""
        try:
            ref = await self.keep(record, work)
        except WorktreeError as error:
            return self._left(record, work, None, f"It could not be put under a ref too: {error}")
        nested = f"Not under the ref: {', '.join(work.nested)}." if work.nested else ""
        return self._left(record, work, ref, nested)

    async def remove(self, record: WorktreeRecord) -> Removed:
        """Remove the worktree with its branches; the lock must be held."""
        # First of all: after a crash in the middle, the remains must not be taken for work.
        self.files.mark(record, "removing")
        common, name = self.checkout.common, record.name
        entry = find_entry(common, record.path)
        await asyncio.to_thread(erase, record.path)
        for each in (*([entry] if entry is not None else []), *_half_made(common, name)):
            await asyncio.to_thread(erase, each)
        refs = ("for-each-ref", "--format=delete %(refname)", f"refs/heads/{prefix_of(name)}")
        orders = (await self.git(*refs, at=self.checkout.place)).out
        if orders:
            await self.git("update-ref", "--stdin", at=self.checkout.place, given=orders)
        for kind in ("refs/heads", "logs/refs/heads"):
            erase(common / kind / prefix_of(name))
        self.files.forget(record)
        return Removed(name=name)

    async def refs(self) -> dict[str, str]:
        """Return the kept commits by worktree name."""
        words = ("for-each-ref", "--format=%(refname) %(objectname)", KEPT)
        lines = (await self.git(*words, at=self.checkout.place)).text.splitlines()
        return {ref.removeprefix(f"{KEPT}/"): commit for ref, commit in (line.split(" ") for line in lines)}

    def _left(self, record: WorktreeRecord, work: Work | None, ref: str | None, note: str) -> Kept:
        self.files.mark(record, "kept")
        return Kept(name=record.name, path=record.path, branch=record.branch, ref=ref, work=work, note=note)


def unknown(name: str) -> WorktreeError:
    return WorktreeError(f"There is no worktree {name} of this repository. See: shoal worktree ls.")


def _half_made(common: Path, name: str) -> list[Path]:
    """List entries left by a git that was killed while creating the worktree; they name no directory yet."""
    entries = common / "worktrees"
    return [
        entry
        for entry in (entries.glob(f"{name}*") if entries.is_dir() else ())
        if re.fullmatch(re.escape(name) + "[0-9]*", entry.name) and not (entry / "gitdir").exists()
    ]
