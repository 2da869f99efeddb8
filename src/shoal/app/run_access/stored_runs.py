"""Runs of the configured store, seen from another process: in files of the home, or in a database."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from shoal.app.run_access.run_handle import RunHandle, read_start_directory
from shoal.app.settings.configured_store import open_given_store, open_home_store
from shoal.core.errors import SessionNotFound, ShoalError
from shoal.core.ids import SessionId
from shoal.core.task_groups import open_task_group
from shoal.stores.store_choice import get_file_home, get_shared_address

if TYPE_CHECKING:
    from shoal.core.store import Store
    from shoal.stores.postgres.run_copies import RunCopies

T = TypeVar("T")
REFRESH_PAUSE = 1.0
"""Seconds between two looks at the database while a run is watched."""


class StoredRuns(Struct, frozen=True, kw_only=True):
    """Runs of a home. Runs in a database come first; then those that are still in the files of the home."""

    home: Path
    store: Store | None = None
    """Store of the runs; None for the files of the home."""
    copies: RunCopies | None = None
    """Copies of the runs in a database; None if runs are files."""

    @property
    def journals_home(self) -> Path:
        """Home with the journals of the runs: the copies of those in a database."""
        return self.home if self.copies is None else self.copies.home

    def get_store(self) -> Store:
        """Return the store that contains the runs and their teams."""
        return self.store or open_given_store(self.home, durable=True)

    def open_run(self, session: SessionId) -> RunHandle:
        return RunHandle(session=session, home=self.home, store=self.store, copies=self.copies)

    def list_live_runs(self) -> list[RunHandle]:
        """Return the runs that a process works on now, in any directory."""
        return [run for run in self._iter_runs() if run.is_live]

    def list_live_runs_in_directory(self, cwd: Path) -> list[RunHandle]:
        """Return the live runs of this directory, the one with the newest event first."""
        return [
            run
            for run in _sort_runs_newest_first(self.list_live_runs())
            if read_start_directory(run) == str(cwd)
        ]

    def list_runs_newest_first(self) -> list[RunHandle]:
        """Return all runs that have a journal, the one with the newest event first."""
        return _sort_runs_newest_first(self._iter_runs())

    def find_run(self, name: str) -> RunHandle:
        """Return the run with this session id or unique id prefix. Raises `SessionNotFound`."""
        runs = {run.session: run for run in self._iter_runs() if run.session.startswith(name)}
        found = [runs[SessionId(name)]] if name in runs else list(runs.values())
        if len(found) != 1:
            reason = (
                f"{len(found)} run ids start with it: {', '.join(run.session for run in found[:5])}"
                if found
                else "no run id starts with it"
            )
            place = self.home if self.copies is None else "the database"
            raise SessionNotFound(f"{name!r} does not identify a run in {place}: {reason}.", path=self.home)
        return found[0]

    def find_named_or_latest_run(self, cwd: Path, name: str | None = None) -> RunHandle | None:
        """Return the run with that name, or the latest one started in this directory; None if there is
        none."""
        if name is not None:
            return self.find_run(name)
        directory = str(cwd.resolve())
        return next(
            (run for run in self.list_runs_newest_first() if read_start_directory(run) == directory), None
        )

    def _iter_runs(self) -> Iterator[RunHandle]:
        shared = [] if self.copies is None else _list_run_names(self.copies.home)
        yield from (self.open_run(SessionId(name)) for name in shared)
        for name in _list_run_names(self.home):
            if self.copies is None:
                yield self.open_run(SessionId(name))
            elif name not in shared:
                run = RunHandle(session=SessionId(name), home=self.home)
                if run.journal_path.exists():
                    yield run


def open_stored_runs(home: Path, session: str = "") -> StoredRuns:
    """Return the runs of the configured store. The journals of a database are copied first.

    Only those are copied whose session starts with `session`.
    """
    store = open_home_store(home)
    copies = _open_copies(store, home, session)
    if copies is None:
        return StoredRuns(home=get_file_home(store) or home)
    copies.refresh()
    return StoredRuns(home=home, store=store, copies=copies)


def open_session_run(store: Store, session: SessionId, home: Path) -> RunHandle:
    """Return the handle of a session of this process."""
    copies = _open_copies(store, home, session)
    return RunHandle(session=session, home=get_file_home(store) or home, store=store, copies=copies)


def list_reachable_runs(store: Store, home: Path) -> list[RunHandle]:
    """Return the live runs of a store that were started on this machine with this home."""
    copies = _open_copies(store, home)
    if copies is None:
        return StoredRuns(home=get_file_home(store) or home).list_live_runs()
    runs = [
        RunHandle(session=SessionId(name), home=home, store=store, copies=copies)
        for name in _list_run_names(home)
    ]
    return [run for run in runs if run.is_live]


def _open_copies(store: Store, home: Path, session: str = "") -> RunCopies | None:
    address = get_shared_address(store)
    if address is None:
        return None
    from shoal.stores.postgres.run_copies import RunCopies

    return RunCopies(address, home, session=session)


def find_process_run(session: str) -> RunHandle:
    """Return a run of this process's home by the beginning of its id. Raises `SessionNotFound`."""
    from shoal.app.settings.settings import find_process_shoal_home

    return open_stored_runs(find_process_shoal_home(), session).find_run(session)


def open_process_run(session: str) -> RunHandle:
    """Return the run of a session of this process's home, whether it has a journal yet or not."""
    from shoal.app.settings.settings import find_process_shoal_home

    return open_stored_runs(find_process_shoal_home(), session).open_run(SessionId(session))


@contextmanager
def lock_run(run: RunHandle) -> Iterator[None]:
    """Hold the lock of a run that no process works on. Raises `StateFileError` if one does."""
    from shoal.stores.files.locks.pid_locks import SessionLock

    if run.copies is None:
        lock = SessionLock(run.home, run.session)
        try:
            yield
        finally:
            lock.release_unused()
        return
    try:
        stored = run.get_store().find_session(run.session)
    except SessionNotFound:
        yield  # nobody can resume it
        return
    stored.acquire_lock()
    try:
        yield
    finally:
        stored.release_lock()


async def run_with_current_copies(copies: RunCopies | None, work: Coroutine[object, object, T]) -> T:
    """Do the work, and copy what is new in the database once a second meanwhile."""
    if copies is None:
        return await work
    async with open_task_group() as tasks:
        refreshing = tasks.create_task(_refresh_repeatedly(copies))
        copies.is_kept_current = True
        try:
            return await work
        finally:
            copies.is_kept_current = False
            refreshing.cancel()


async def _refresh_repeatedly(copies: RunCopies) -> None:
    while True:
        await asyncio.sleep(REFRESH_PAUSE)
        with suppress(ShoalError, OSError):  # the database may return
            await asyncio.to_thread(copies.refresh)


def _list_run_names(home: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in (home / "shoal" / "runs").iterdir())
    except OSError:
        return []


def _sort_runs_newest_first(runs: Iterable[RunHandle]) -> list[RunHandle]:
    """Sort by the newest event; omit runs without a journal and runs that are being removed."""
    with_times: list[tuple[int, RunHandle]] = []
    for run in runs:
        with suppress(OSError):
            with_times.append((run.journal_path.stat().st_mtime_ns, run))
    return [run for _, run in sorted(with_times, key=lambda each: each[0], reverse=True)]
