"""Worktrees of a repository's agents: created from the lead's commit, never removed with work in them."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from shoal.core.clock import Clock
from shoal.core.errors import WorktreeError
from shoal.core.ids import slug
from shoal.core.worktrees import Kept, Merged, Owner, Removed, Standing, WorktreeRecord
from shoal.workspaces import upkeep
from shoal.workspaces.checkout import Checkout, find_checkout, head_of, left_behind
from shoal.workspaces.git import Git, Place
from shoal.workspaces.owners import Lease, clear_dead, lives, started
from shoal.workspaces.repository_lock import RepositoryLock
from shoal.workspaces.shelf import Shelf
from shoal.workspaces.work import find_entry, prefix_of
from shoal.workspaces.worktree import Worktree
from shoal.workspaces.worktree_files import WorktreeFiles, unwritable

_NAMED_BY = 8
"""Characters of an agent's id in the name of its worktree."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_SIDE_BY_SIDE = 8
"""Concurrent checkouts; more only compete for the disk."""
_LONGEST_NAME = 100


class Worktrees:
    """Creates, reopens, merges and removes worktrees; `root` is the lead's directory, `home` is Shoal's.

    The worktrees of all repositories are in `home`. They are not in the checkout, where tools would find
    every file twice, and not below `shoal` in the home, which is hidden from commands.
    """

    def __init__(self, root: Path, home: Path, *, env: Mapping[str, str], clock: Clock) -> None:
        self._root = root
        self._home = home
        self._clock = clock
        self._git = Git(env, clock)
        self._shelf: Shelf | None = None
        self._lease: Lease | None = None
        self._checkouts = asyncio.Semaphore(_SIDE_BY_SIDE)

    async def make(self, agent: str, *, session: str) -> Worktree:
        """Create a worktree at the commit of the lead's checkout. Raises `WorktreeError`."""
        shelf = await self._opened()
        if _ID.fullmatch(agent) is None:
            raise WorktreeError(f"{agent!r} cannot name a worktree.")
        record = await self._planned(shelf, agent, session)
        async with shelf.lock.held():
            await _refuse_taken(shelf, record)
            shelf.files.enter(record)
        try:
            entry = await self._filled(shelf, record)
            notes = await left_behind(self._git, shelf.checkout)
        except BaseException:
            # After a second cancellation it is left to be reaped.
            await asyncio.shield(self._discard(shelf, record))
            raise
        record = shelf.files.mark(record, "live")
        if record.inside and not (record.path / record.inside).is_dir():
            notes = (*notes, f"{record.inside} is not in the commit: you start at the top of the worktree.")
        return Worktree(record=record, common=shelf.checkout.common, entry=entry, notes=notes)

    async def reopen(self, name: str, *, session: str) -> Worktree:
        """Reopen a kept worktree for its agent. Raises `WorktreeError` if it is gone or in use."""
        shelf = await self._opened()
        async with shelf.lock.held():
            record = shelf.free(name)
            entry = find_entry(shelf.checkout.common, record.path)
            if entry is None or not record.path.is_dir() or record.state not in ("live", "kept"):
                raise WorktreeError(f"The worktree {name} is no longer there to go on in.")
            record = replace(record, owner=self._owner(shelf.files, session), state="live")
            shelf.files.put(record)
        return Worktree(record=record, common=shelf.checkout.common, entry=entry)

    async def finish(self, worktree: Worktree) -> Kept | Removed:
        """Finish after the agent ended: remove an unchanged worktree with its branch, keep any other."""
        shelf = await self._opened()
        record = shelf.known(worktree.name)
        # Inspected without the lock: nobody else touches a living owner's worktree.
        found = await shelf.look(record)
        if isinstance(found, Kept):
            return found
        if not found.is_nothing:
            return await shelf.retain(record, found)
        async with shelf.lock.held():
            return await shelf.remove(record)

    async def settle(self, place: Path) -> Kept | Removed | None:
        """Settle the worktree of a dead owner that contains this path; None if there is none."""
        shelf = await self._opened()
        async with shelf.lock.held():
            for record in shelf.files.all():
                if place.is_relative_to(record.path) and not shelf.in_use(record):
                    return await shelf.settle(record)
        return None

    async def settle_left(self, session: str, going_on: Collection[Path]) -> list[Kept | Removed]:
        """Settle the worktrees of dead processes of a session, except where their agents may resume."""
        shelf = await self._opened()
        async with shelf.lock.held():
            return [
                await shelf.settle(record)
                for record in _abandoned(shelf)
                if record.owner.session == session
                and not any(place.is_relative_to(record.path) for place in going_on)
            ]

    async def reap(self) -> list[Kept | Removed]:
        """Settle the worktrees of dead owners: remove unchanged ones, keep all others under a ref."""
        shelf = await self._opened()
        async with shelf.lock.held():
            done = [await shelf.settle(record) for record in _abandoned(shelf)]
            clear_dead(shelf.files.owners)
            shelf.files.clear_abandoned()
        return done

    async def list(self) -> list[Standing]:
        return await upkeep.standings(await self._opened())

    async def show(self, name: str) -> tuple[Standing, str]:
        """Return the status of a worktree and a summary of its changes from git."""
        return await upkeep.shown(await self._opened(), name)

    async def merge(self, name: str) -> Merged:
        """Merge the work into the branch of the checkout, and remove the worktree.

        Raises `MergeConflict`, which leaves the checkout unchanged, and `WorktreeError`.
        """
        shelf = await self._opened()
        async with shelf.lock.held():
            return await upkeep.merge(shelf, name)

    async def remove(self, name: str, *, force: bool = False) -> Removed:
        """Remove a worktree. Raises `WorktreeError` for unmerged work, unless forced: its ref remains."""
        shelf = await self._opened()
        async with shelf.lock.held():
            return await upkeep.remove(shelf, name, force=force)

    def close(self) -> None:
        """Give up ownership of all worktrees; unfinished ones are left to be reaped."""
        if self._lease is not None:
            self._git.lend()
            self._lease.end()
            self._lease = None

    async def _opened(self) -> Shelf:
        if self._shelf is None:
            return self._first(await find_checkout(self._git, self._root))
        return self._shelf

    def _first(self, checkout: Checkout) -> Shelf:
        """Create the repository object, unless a concurrent call did: all must share one lock."""
        if self._shelf is None:
            files = WorktreeFiles(
                Path(os.path.realpath(self._home)) / "worktrees" / _name_of(checkout.common)
            )
            lock = RepositoryLock(checkout.common, self._clock)
            self._shelf = Shelf(git=self._git, checkout=checkout, files=files, lock=lock)
        return self._shelf

    async def _planned(self, shelf: Shelf, agent: str, session: str) -> WorktreeRecord:
        name = f"agent-{agent[:_NAMED_BY]}"
        return WorktreeRecord(
            name=name,
            agent=agent,
            base=await head_of(self._git, shelf.checkout),
            owner=self._owner(shelf.files, session),
            path=shelf.files.path(name),
            branch=f"{prefix_of(name)}/work",
            checkout=shelf.checkout.top,
            inside=shelf.checkout.inside,
            made_at=self._clock.now(),
        )

    def _owner(self, files: WorktreeFiles, session: str) -> Owner:
        if self._lease is None:
            try:
                self._lease = Lease(files.owners)
                clear_dead(files.owners)
            except OSError as error:
                raise unwritable(files.directory, error) from error
            # A git process that outlives us is one more reason not to reap what it creates.
            self._git.lend(self._lease.fileno)
        pid = os.getpid()
        return Owner(pid=pid, started=started(pid), lease=self._lease.name, session=session)

    async def _filled(self, shelf: Shelf, record: WorktreeRecord) -> Path:
        words = ("worktree", "add", "--quiet", "--no-checkout", "-b", record.branch)
        async with shelf.lock.held():
            await self._git(*words, str(record.path), record.base, at=shelf.checkout.place)
        entry = find_entry(shelf.checkout.common, record.path)
        if entry is None:
            raise WorktreeError(f"git made the worktree {record.path} and does not know it.")
        place = Place(entry=entry, common=shelf.checkout.common, tree=record.path)
        async with self._checkouts:
            await self._git("reset", "--hard", "--quiet", at=place)
        return entry

    async def _discard(self, shelf: Shelf, record: WorktreeRecord) -> None:
        async with shelf.lock.held():
            await shelf.remove(record)


def _name_of(common: Path) -> str:
    """Return a directory name with a hash: two repositories must never share a directory."""
    path = str(common.parent if common.name == ".git" else common)
    mark = sha256(os.fsencode(common)).hexdigest()[:8]
    return f"{slug(path)[-_LONGEST_NAME:].lstrip('-')}-{mark}"


def _abandoned(shelf: Shelf) -> list[WorktreeRecord]:
    """Return the worktrees of dead owners that are not settled yet."""
    left = [record for record in shelf.files.all() if record.state != "kept"]
    return [record for record in left if not lives(shelf.files.owners, record.owner.lease)]


async def _refuse_taken(shelf: Shelf, record: WorktreeRecord) -> None:
    """Refuse before the record exists: somebody else's branch must not become ours."""
    shelf.files.refuse_taken(record)
    if (await shelf.git("for-each-ref", f"refs/heads/{prefix_of(record.name)}", at=shelf.checkout.place)).out:
        raise WorktreeError(
            f"There is already a branch below {prefix_of(record.name)}. Look at it: git branch --list "
            f"'{prefix_of(record.name)}*'"
        )
