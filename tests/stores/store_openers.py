"""The stores, each of which can be opened any number of times."""

from __future__ import annotations

from contextlib import aclosing as closing
from contextlib import asynccontextmanager

from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.stores.files.file_store import FileStore
from shoal.stores.memory.memory_store import MemoryStore


class StorePortOpener:
    """Opens ports of a store; `reopen` returns the store as another process or session opens it."""

    def __init__(self, reopen) -> None:
        self._reopen = reopen

    @asynccontextmanager
    async def store(self):
        yield self._reopen()

    @asynccontextmanager
    async def mailboxes(self):
        async with closing(self._reopen().open_mailboxes("roof", **make_services())) as boxes:
            yield boxes

    @asynccontextmanager
    async def board(self):
        async with closing(self._reopen().open_board("roof", **make_services())) as board:
            yield board

    @asynccontextmanager
    async def rosters(self):
        async with closing(self._reopen().open_rosters(clock=SystemClock(), report=ignore_report)) as rosters:
            yield rosters


def ignore_report(_text):
    """Ignore what a store reports."""


def make_services():
    return {"clock": SystemClock(), "ids": IdGenerator(), "report": ignore_report}


def open_memory_ports(_home):
    store = MemoryStore()
    return StorePortOpener(lambda: store)


STORE_OPENERS = {
    "memory": open_memory_ports,
    "files": lambda home: StorePortOpener(lambda: FileStore(home)),
}
