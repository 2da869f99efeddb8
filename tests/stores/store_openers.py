"""The stores, each of which can be opened any number of times."""

from __future__ import annotations

from contextlib import aclosing as closing
from contextlib import asynccontextmanager

from postgres_server import get_clean_database
from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.stores.files.file_store import FileStore
from shoal.stores.memory.memory_store import MemoryStore


def ignore_store(_store):
    """Leave a store open: it holds nothing that must be closed."""


class StorePortOpener:
    """Opens ports of a store; `reopen` returns the store as another process or session opens it."""

    def __init__(self, reopen, close=ignore_store) -> None:
        self._reopen = reopen
        self._close = close

    @asynccontextmanager
    async def store(self):
        store = self._reopen()
        try:
            yield store
        finally:
            self._close(store)

    @asynccontextmanager
    async def mailboxes(self):
        async with self.store() as store, closing(store.open_mailboxes("roof", **make_services())) as boxes:
            yield boxes

    @asynccontextmanager
    async def board(self):
        async with self.store() as store, closing(store.open_board("roof", **make_services())) as board:
            yield board

    @asynccontextmanager
    async def rosters(self):
        async with (
            self.store() as store,
            closing(store.open_rosters(clock=SystemClock(), report=ignore_report)) as rosters,
        ):
            yield rosters


def ignore_report(_text):
    """Ignore what a store reports."""


def make_services():
    return {"clock": SystemClock(), "ids": IdGenerator(), "report": ignore_report}


def open_memory_ports(_home):
    store = MemoryStore()
    return StorePortOpener(lambda: store)


def open_postgres_ports(home):
    from shoal.stores.postgres.database_client import DatabaseClient
    from shoal.stores.postgres.postgres_store import PostgresStore

    address = get_clean_database()
    # Each has a client of its own, as each process has.
    return StorePortOpener(lambda: PostgresStore(DatabaseClient(address), home), PostgresStore.close)


STORE_OPENERS = {
    "memory": open_memory_ports,
    "postgres": open_postgres_ports,
    "files": lambda home: StorePortOpener(lambda: FileStore(home)),
}
