"""Worktrees of a repository's agents: created from the lead's commit, never removed with work in them."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from shoal.core.agents.worktrees import (
    MergedWorktree,
    RemovedWorktree,
    RetainedWorktree,
    WorktreeOwnerProcess,
    WorktreeRecord,
    WorktreeStatus,
)
from shoal.core.clock import Clock
from shoal.core.errors import WorktreeError
from shoal.core.ids import slugify_project_path
from shoal.workspaces import worktree_maintenance
from shoal.workspaces.checkout import (
    GitCheckout,
    describe_uncommitted_changes,
    find_git_checkout,
    refuse_required_repository_filters,
)
from shoal.workspaces.git_runner import GitDirectories, GitRunner
from shoal.workspaces.owner_lease import (
    WorktreeOwnerLease,
    get_process_start_ticks,
    is_worktree_lease_held,
    remove_dead_worktree_leases,
)
from shoal.workspaces.repository_lock import GitRepositoryLock
from shoal.workspaces.workspace_texts import format_workspace_notice
from shoal.workspaces.worktree import Worktree
from shoal.workspaces.worktree_changes import find_git_worktree_entry, get_agent_branch_prefix
from shoal.workspaces.worktree_extras import (
    DEFAULT_WORKTREE_OPTIONS,
    WorktreeOptions,
    add_untracked_files,
    find_base_commit,
    limit_to_sparse_paths,
)
from shoal.workspaces.worktree_files import WorktreeRecordStore, build_worktree_storage_error
from shoal.workspaces.worktree_repository import WorktreeRepository

_ID_LENGTH = 8
"""Number of characters of an agent's id used in the name of its worktree."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_MAX_CHECKOUTS = 8
"""Maximum number of concurrent checkouts; more would only compete for the disk."""
_MAX_NAME_LENGTH = 100


class WorktreeService:
    """Creates, reopens, merges and removes worktrees; `root` is the lead's directory, `home` is Shoal's.

    The worktrees of all repositories are in `home`. They are not in the checkout, where tools would find
    every file twice, and not below `shoal` in the home, which is hidden from commands.
    """

    def __init__(self, root: Path, home: Path, *, env: Mapping[str, str], clock: Clock) -> None:
        self._root = root
        self._home = home
        self._clock = clock
        self._git = GitRunner(env, clock)
        self._repository: WorktreeRepository | None = None
        self._lease: WorktreeOwnerLease | None = None
        self._checkouts = asyncio.Semaphore(_MAX_CHECKOUTS)

    async def create_worktree(
        self, agent: str, *, session: str, options: WorktreeOptions = DEFAULT_WORKTREE_OPTIONS
    ) -> Worktree:
        """Create a worktree, by default at the commit of the lead's checkout. Raises `WorktreeError`."""
        repository = await self._open_repository()
        if _ID.fullmatch(agent) is None:
            raise WorktreeError(format_workspace_notice("bad_worktree_name", name=repr(agent)))
        await refuse_required_repository_filters(self._git, repository.checkout)
        base, base_notes = await find_base_commit(self._git, repository.checkout, options)
        record = self._plan_worktree_record(repository, agent, session, base)
        async with repository.lock.acquire():
            await _refuse_taken_branch(repository, record)
            repository.files.create_record(record)
        try:
            entry = await self._check_out_worktree(repository, record, options.sparse_paths)
            uncommitted_notes = await describe_uncommitted_changes(self._git, repository.checkout)
            notes = (*base_notes, *uncommitted_notes)
        except BaseException:
            # After a second cancellation it is left to be reaped.
            await asyncio.shield(self._discard_worktree(repository, record))
            raise
        record = repository.files.set_worktree_state(record, "live")
        if record.inside and not (record.path / record.inside).is_dir():
            notes = (
                *notes,
                format_workspace_notice("other_directory", directory=record.inside),
            )
        return Worktree(record=record, common=repository.checkout.common, entry=entry, notes=notes)

    async def add_untracked_files(
        self, worktree: Worktree, links: Sequence[str], is_hidden: Callable[[str], bool]
    ) -> tuple[str, ...]:
        """Add ignored files and links to directories of the checkout. Raises `WorktreeError`."""
        return await add_untracked_files(self._git, worktree.record.checkout, worktree.path, links, is_hidden)

    async def reopen_worktree(self, name: str, *, session: str) -> Worktree:
        """Reopen a kept worktree for its agent. Raises `WorktreeError` if it is gone or in use."""
        repository = await self._open_repository()
        async with repository.lock.acquire():
            record = repository.get_unused_worktree_record(name)
            entry = find_git_worktree_entry(repository.checkout.common, record.path)
            if entry is None or not record.path.is_dir() or record.state not in ("live", "kept"):
                raise WorktreeError(format_workspace_notice("worktree_gone", name=name))
            record = replace(record, owner=self._get_worktree_owner(repository.files, session), state="live")
            repository.files.save_record(record)
        return Worktree(record=record, common=repository.checkout.common, entry=entry)

    async def finish_worktree(self, worktree: Worktree) -> RetainedWorktree | RemovedWorktree:
        """Finish after the agent ended: remove an unchanged worktree with its branch, keep any other."""
        repository = await self._open_repository()
        record = repository.get_worktree_record(worktree.name)
        # Inspected without the lock: nobody else touches a living owner's worktree.
        found = await repository.collect_changes_or_retain(record)
        if isinstance(found, RetainedWorktree):
            return found
        if not found.is_empty:
            return await repository.retain_worktree(record, found)
        async with repository.lock.acquire():
            return await repository.remove_worktree(record)

    async def settle_abandoned_worktree_at(self, place: Path) -> RetainedWorktree | RemovedWorktree | None:
        """Settle the worktree of a dead owner that contains this path; None if there is none."""
        repository = await self._open_repository()
        async with repository.lock.acquire():
            for record in repository.files.iter_records():
                if place.is_relative_to(record.path) and not repository.is_worktree_in_use(record):
                    return await repository.remove_or_retain_worktree(record)
        return None

    async def settle_session_worktrees(
        self, session: str, in_use: Collection[Path]
    ) -> list[RetainedWorktree | RemovedWorktree]:
        """Settle the worktrees of dead processes of a session, except where their agents may resume."""
        repository = await self._open_repository()
        async with repository.lock.acquire():
            return [
                await repository.remove_or_retain_worktree(record)
                for record in _list_abandoned_worktrees(repository)
                if record.owner.session == session
                and not any(place.is_relative_to(record.path) for place in in_use)
            ]

    async def reap_abandoned_worktrees(self) -> list[RetainedWorktree | RemovedWorktree]:
        """Settle the worktrees of dead owners: remove unchanged ones, keep all others under a ref."""
        repository = await self._open_repository()
        async with repository.lock.acquire():
            settled = [
                await repository.remove_or_retain_worktree(record)
                for record in _list_abandoned_worktrees(repository)
            ]
            remove_dead_worktree_leases(repository.files.lease_directory)
            repository.files.remove_temporary_files()
        return settled

    async def list_worktrees(self) -> list[WorktreeStatus]:
        return await worktree_maintenance.list_worktree_statuses(await self._open_repository())

    async def show_worktree(self, name: str) -> tuple[WorktreeStatus, str]:
        """Return the status of a worktree and a summary of its changes from git."""
        return await worktree_maintenance.show_worktree(await self._open_repository(), name)

    async def merge_worktree(self, name: str) -> MergedWorktree:
        """Merge the work into the branch of the checkout, and remove the worktree.

        Raises `MergeConflict`, which leaves the checkout unchanged, and `WorktreeError`.
        """
        repository = await self._open_repository()
        async with repository.lock.acquire():
            return await worktree_maintenance.merge_worktree(repository, name)

    async def remove_worktree(self, name: str, *, force: bool = False) -> RemovedWorktree:
        """Remove a worktree. Raises `WorktreeError` for unmerged work, unless forced: its ref remains."""
        repository = await self._open_repository()
        async with repository.lock.acquire():
            return await worktree_maintenance.remove_worktree(repository, name, force=force)

    def close(self) -> None:
        """Give up ownership of all worktrees; unfinished ones are left to be reaped."""
        if self._lease is not None:
            self._git.set_inherited_descriptors()
            self._lease.release()
            self._lease = None

    async def _open_repository(self) -> WorktreeRepository:
        if self._repository is None:
            return self._create_repository(await find_git_checkout(self._git, self._root))
        return self._repository

    def _create_repository(self, checkout: GitCheckout) -> WorktreeRepository:
        """Create the repository object, unless a concurrent call did: all must share one lock."""
        if self._repository is None:
            files = WorktreeRecordStore(
                Path(os.path.realpath(self._home))
                / "worktrees"
                / _get_repository_directory_name(checkout.common)
            )
            lock = GitRepositoryLock(checkout.common, self._clock)
            self._repository = WorktreeRepository(git=self._git, checkout=checkout, files=files, lock=lock)
        return self._repository

    def _plan_worktree_record(
        self, repository: WorktreeRepository, agent: str, session: str, base: str
    ) -> WorktreeRecord:
        name = f"agent-{agent[:_ID_LENGTH]}"
        return WorktreeRecord(
            name=name,
            agent=agent,
            base=base,
            owner=self._get_worktree_owner(repository.files, session),
            path=repository.files.get_worktree_path(name),
            branch=f"{get_agent_branch_prefix(name)}/work",
            checkout=repository.checkout.top,
            inside=repository.checkout.inside,
            made_at=self._clock.now(),
        )

    def _get_worktree_owner(self, files: WorktreeRecordStore, session: str) -> WorktreeOwnerProcess:
        if self._lease is None:
            try:
                self._lease = WorktreeOwnerLease(files.lease_directory)
                remove_dead_worktree_leases(files.lease_directory)
            except OSError as error:
                raise build_worktree_storage_error(files.directory, error) from error
            # A git process that outlives us is one more reason not to reap what it creates.
            self._git.set_inherited_descriptors(self._lease.fileno)
        pid = os.getpid()
        return WorktreeOwnerProcess(
            pid=pid, started=get_process_start_ticks(pid), lease=self._lease.name, session=session
        )

    async def _check_out_worktree(
        self, repository: WorktreeRepository, record: WorktreeRecord, sparse_paths: Sequence[str]
    ) -> Path:
        arguments = ("worktree", "add", "--quiet", "--no-checkout", "-b", record.branch)
        async with repository.lock.acquire():
            await self._git(*arguments, str(record.path), record.base, at=repository.checkout.git_directories)
        entry = find_git_worktree_entry(repository.checkout.common, record.path)
        if entry is None:
            raise WorktreeError(format_workspace_notice("worktree_not_listed", path=record.path))
        location = GitDirectories(entry=entry, common=repository.checkout.common, tree=record.path)
        if sparse_paths:
            async with repository.lock.acquire():
                await limit_to_sparse_paths(self._git, location, sparse_paths)
        async with self._checkouts:
            await self._git("reset", "--hard", "--quiet", at=location)
        return entry

    async def _discard_worktree(self, repository: WorktreeRepository, record: WorktreeRecord) -> None:
        async with repository.lock.acquire():
            await repository.remove_worktree(record)


def _get_repository_directory_name(common: Path) -> str:
    """Return a directory name with a hash: two repositories must never share a directory."""
    path = str(common.parent if common.name == ".git" else common)
    digest = sha256(os.fsencode(common)).hexdigest()[:8]
    return f"{slugify_project_path(path)[-_MAX_NAME_LENGTH:].lstrip('-')}-{digest}"


def _list_abandoned_worktrees(repository: WorktreeRepository) -> list[WorktreeRecord]:
    """Return the worktrees of dead owners that are not settled yet."""
    unsettled = [record for record in repository.files.iter_records() if record.state != "kept"]
    return [
        record
        for record in unsettled
        if not is_worktree_lease_held(repository.files.lease_directory, record.owner.lease)
    ]


async def _refuse_taken_branch(repository: WorktreeRepository, record: WorktreeRecord) -> None:
    """Refuse before the record exists: somebody else's branch must not become ours."""
    repository.files.refuse_taken_worktree(record)
    if (
        await repository.git(
            "for-each-ref",
            f"refs/heads/{get_agent_branch_prefix(record.name)}",
            at=repository.checkout.git_directories,
        )
    ).out:
        raise WorktreeError(
            format_workspace_notice("branch_exists", prefix=get_agent_branch_prefix(record.name))
        )
