"""The store of a home for commands, and the runs of a database, shown like those in the files of the home."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import SessionNotFound, ShoalError

if TYPE_CHECKING:
    from shoal.app.run_access.run_handle import RunHandle
    from shoal.core.ids import SessionId
    from shoal.core.store import Store
    from shoal.stores.postgres.journal_copies import JournalCopies

REFRESH_PAUSE = 1.0
"""Seconds between two looks at the database while a run is watched."""


def find_store_address(home: Path) -> str | None:
    """Return the address of the configured database; None if runs are files."""
    from shoal.stores.store_choice import is_postgres_address

    place = _find_configured_store(home)
    return place if place is not None and is_postgres_address(place) else None


def _find_configured_store(home: Path) -> str | None:
    """Return the configured store; None if it is the home itself."""
    if not os.environ.get("SHOAL_STORE"):
        # Settings are read only if they may name a store: most homes name none.
        try:
            if '"store"' not in (home / "settings.json").read_text(errors="replace"):
                return None
        except OSError:
            return None
    from shoal.app.settings.settings import load_settings

    return load_settings(cwd=Path.cwd()).own.store


def open_home_store(home: Path, *, read_only: bool = False) -> Store:
    """Open the store that is configured for a home, for a command; without one, the files of the home."""
    from shoal.stores.store_choice import open_store

    return open_store(_find_configured_store(home) or home, home=home, durable=True, read_only=read_only)


def open_run(home: Path, session: SessionId) -> RunHandle:
    """Return the run of a session in the configured store; the journal in a database is copied first."""
    from shoal.app.run_access.run_handle import RunHandle

    with open_shared_runs(home, session) as copies:
        if copies is None:
            return RunHandle(session=session, home=home)
        return RunHandle(session=session, home=home, database=open_home_store(home), journal_home=copies.home)


@contextmanager
def lock_session(home: Path, session: SessionId) -> Iterator[None]:
    """Hold the lock of a session that no process works on. Raises `StateFileError` if one does."""
    from shoal.stores.files.locks.pid_locks import SessionLock

    if find_store_address(home) is None:
        lock = SessionLock(home, session)
        try:
            yield
        finally:
            lock.release_unused()
        return
    try:
        stored = open_home_store(home).find_session(session)
    except SessionNotFound:
        yield  # nobody can resume it
        return
    stored.acquire_lock()
    try:
        yield
    finally:
        stored.release_lock()


@contextmanager
def open_shared_runs(home: Path, session: str = "") -> Iterator[JournalCopies | None]:
    """Yield copies of the journals in the database; None if runs are files."""
    address = find_store_address(home)
    if address is None:
        yield None
        return
    from shoal.stores.postgres.journal_copies import JournalCopies
    from shoal.stores.store_choice import check_postgres_extra

    check_postgres_extra()
    with JournalCopies(address, home, session=session) as copies:
        yield copies


def find_run_in_copies(copies: JournalCopies | None, session: str) -> RunHandle | None:
    """Return a run of the database by the beginning of its id; None if there is none."""
    from shoal.app.run_access.run_handle import find_run

    if copies is None:
        return None
    with suppress(SessionNotFound):
        return find_run(copies.home, session)
    return None


async def run_with_current_copies(copies: JournalCopies | None, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, and copy what is new in the database once a second meanwhile."""
    async with asyncio.TaskGroup() as tasks:
        refreshing = None if copies is None else tasks.create_task(_refresh_repeatedly(copies))
        try:
            await work
        finally:
            if refreshing is not None:
                refreshing.cancel()


async def _refresh_repeatedly(copies: JournalCopies) -> None:
    while True:
        await asyncio.sleep(REFRESH_PAUSE)
        with suppress(ShoalError, OSError):  # the database may return
            await asyncio.to_thread(copies.refresh)
