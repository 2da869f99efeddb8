"""Choice of the store: the one place that knows all implementations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.core.errors import SettingsError
from shoal.core.store import Store

MAX_TEMPORARY_EVENTS = 1_000
"""Newest events that the journals of a temporary store hold."""


def open_store(place: Store | Path | str, *, durable: bool = False) -> Store:
    """Return the store of a home directory, of `file:DIRECTORY` or `memory:`, or the given one.

    A `durable` store of files flushes every change to the disk; a given store object stays as it is.
    Raises `SettingsError` for anything else: no other store is used instead.
    """
    if isinstance(place, str):
        scheme, separator, rest = place.partition(":")
        if scheme == "memory" and separator and not rest:
            from shoal.stores.memory.memory_store import MemoryStore

            return MemoryStore()
        if scheme != "file" or not separator or not Path(rest).is_absolute():
            raise SettingsError(
                f"There is no store {place!r}. Use memory:, file: with an absolute directory (such as "
                f"file:/srv/shoal), or a store object."
            )
        place = Path(rest)
    if isinstance(place, Path):
        from shoal.stores.files.file_store import FileStore

        return FileStore(place, durable=durable)
    return place


@contextmanager
def open_temporary_store() -> Iterator[Store]:
    """Open a store for sessions that are never resumed; nothing of it is left at the end."""
    from shoal.stores.memory.memory_store import MemoryStore

    store = MemoryStore(max_events=MAX_TEMPORARY_EVENTS)
    try:
        yield store
    finally:
        store.close()
