"""The team stores, each of which can be opened any number of times."""

from __future__ import annotations

from contextlib import aclosing as closing
from contextlib import asynccontextmanager

from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.stores.files.board import FileTaskBoard
from shoal.stores.files.mailboxes import FileMailboxes
from shoal.stores.files.rosters import FileRosters
from shoal.testing import MemoryRecord


class InMemory:
    """Opens the same in-memory object each time."""

    def __init__(self, _home) -> None:
        self._record = MemoryRecord(SystemClock(), Ids(1))

    @asynccontextmanager
    async def mailboxes(self):
        yield self._record.mailboxes("roof")

    @asynccontextmanager
    async def board(self):
        yield self._record.board("roof")

    @asynccontextmanager
    async def rosters(self):
        yield self._record.rosters


class OnFiles:
    """Opens a new object on the same files each time, as another process does."""

    def __init__(self, home) -> None:
        self._home = home

    @asynccontextmanager
    async def mailboxes(self):
        async with closing(FileMailboxes(self._home, "roof", clock=SystemClock(), ids=Ids())) as boxes:
            yield boxes

    @asynccontextmanager
    async def board(self):
        async with closing(FileTaskBoard(self._home, "roof", clock=SystemClock(), ids=Ids())) as board:
            yield board

    @asynccontextmanager
    async def rosters(self):
        async with closing(FileRosters(self._home, clock=SystemClock())) as rosters:
            yield rosters


STORES = {"memory": InMemory, "files": OnFiles}
