"""Chooses the store; no other module refers to all implementations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, cast

from shoal.core.errors import SettingsError
from shoal.core.ids import SessionId
from shoal.core.store import SessionStore, Store

POSTGRES_SCHEMES = ("postgresql://", "postgres://")
MAX_TEMPORARY_EVENTS = 1_000
"""Maximum number of events, the newest ones, kept in the journals of a temporary store."""


class MemberSessionPaths(Protocol):
    """Session of a lead, as its teammates' processes know it."""

    @property
    def session(self) -> str: ...

    @property
    def transcript(self) -> str: ...

    @property
    def run_directory(self) -> str: ...


def open_store(
    place: Store | Path | str, *, home: Path | None = None, durable: bool = False, read_only: bool = False
) -> Store:
    """Return the store of a home directory, of an address, or the given one.

    A store in a database has its working files in `home`. A `durable` store of files flushes every change to
    the disk, and with `read_only` it repairs nothing; a given store object stays as it is. Raises
    `SettingsError` for an unknown address: no other store is used instead.
    """
    if isinstance(place, str):
        if is_postgres_address(place):
            return _open_postgres_store(place, home)
        scheme, separator, rest = place.partition(":")
        if scheme == "memory" and separator and not rest:
            from shoal.stores.memory.memory_store import MemoryStore

            return MemoryStore()
        if scheme != "file" or not separator or not Path(rest).is_absolute():
            raise SettingsError(
                f"There is no store {place!r}. Use memory:, file: with an absolute directory (such as "
                f"file:/srv/shoal), postgresql://USER@HOST/DATABASE, or a store object."
            )
        place = Path(rest)
    if isinstance(place, Path):
        from shoal.stores.files.file_store import FileStore

        return FileStore(place, durable=durable, read_only=read_only)
    return place


def open_member_session(
    store: Store, membership: MemberSessionPaths, *, home: Path, durable: bool
) -> SessionStore:
    """Open the session of a lead for a teammate's process; the lead has its lock."""
    if get_shared_address(store) is not None:
        return to_shared_store(store).open_member_session(SessionId(membership.session))
    from shoal.stores.files.sessions.file_session_store import FileSessionStore

    return FileSessionStore(
        home,
        SessionId(membership.session),
        Path(membership.transcript),
        directory=Path(membership.run_directory),
        durable=durable,
    )


class SharedStore(Store, Protocol):
    """Store that processes on several machines use at the same time."""

    async def end_lease(self, epoch: int) -> None:
        """End the lease of another process: it can write nothing from then on, and its tasks are free."""
        ...

    async def wait_until_available(self) -> None:
        """Return when the server answers. Raises `StateFileError` if that takes too long."""
        ...

    def read_result(self, session: str, name: str) -> bytes | None:
        """Return a result of a session; None if there is none of this name."""
        ...

    def open_member_session(self, session: SessionId) -> SessionStore:
        """Open a session for a teammate; its lead may not have written anything. Raises `SessionNotFound`."""
        ...


def to_shared_store(store: Store) -> SharedStore:
    """Return the store as one that machines share. Raises `SettingsError` if it is not one."""
    if get_shared_address(store) is None:
        raise SettingsError("Only a store in PostgreSQL can be shared by several machines.")
    return cast("SharedStore", store)


def get_shared_address(store: Store) -> str | None:
    """Return the address of a store in a database; None if its state is in this process or in files."""
    return store.url if store.url is not None and is_postgres_address(store.url) else None


def get_file_home(store: Store) -> Path | None:
    """Return the directory of a store in files; None for another store."""
    scheme, _, directory = (store.url or "").partition(":")
    return Path(directory) if scheme == "file" else None


def is_postgres_address(address: str) -> bool:
    return address.startswith(POSTGRES_SCHEMES)


def check_postgres_extra() -> None:
    """Raise `SettingsError` if the extra that a store in PostgreSQL needs is not installed."""
    from importlib.util import find_spec

    if find_spec("asyncpg") is None:
        raise SettingsError(
            "A PostgreSQL store needs the extra postgres, which is not installed. Install it: pip "
            "install 'shoal[postgres]'"
        )


def _open_postgres_store(address: str, home: Path | None) -> Store:
    check_postgres_extra()
    from shoal.stores.postgres.database_client import get_shared_client
    from shoal.stores.postgres.postgres_store import PostgresStore

    if home is None:
        raise SettingsError("A store in PostgreSQL needs a home directory for the working files of its runs.")
    return PostgresStore(get_shared_client(address), home)


@contextmanager
def open_temporary_store(directory: str) -> Iterator[Store]:
    """Open a store for sessions that are never resumed, with its working files in a directory.

    Nothing is left at the end.
    """
    from shoal.stores.memory.memory_store import MemoryStore

    store = MemoryStore(max_events=MAX_TEMPORARY_EVENTS, directory=directory)
    try:
        yield store
    finally:
        store.close()
