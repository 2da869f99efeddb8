"""The team stores, each of which can be opened any number of times."""

from __future__ import annotations

from contextlib import aclosing as closing
from contextlib import asynccontextmanager

from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.stores.files.board.file_task_board import FileTaskBoard
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore
from shoal.stores.files.teams.file_roster_store import FileRosterStore
from shoal.testing import MemoryTeamStorage


class MemoryStoreOpener:
    """Opens the same in-memory object each time."""

    def __init__(self, _home) -> None:
        self._storage = MemoryTeamStorage(SystemClock(), IdGenerator(1))

    @asynccontextmanager
    async def mailboxes(self):
        yield self._storage.open_mailboxes("roof")

    @asynccontextmanager
    async def board(self):
        yield self._storage.open_board("roof")

    @asynccontextmanager
    async def rosters(self):
        yield self._storage.rosters


class FileStoreOpener:
    """Opens a new object on the same files each time, as another process does."""

    def __init__(self, home) -> None:
        self._home = home

    @asynccontextmanager
    async def mailboxes(self):
        async with closing(
            FileMailboxStore(self._home, "roof", clock=SystemClock(), ids=IdGenerator())
        ) as boxes:
            yield boxes

    @asynccontextmanager
    async def board(self):
        async with closing(
            FileTaskBoard(self._home, "roof", clock=SystemClock(), ids=IdGenerator())
        ) as board:
            yield board

    @asynccontextmanager
    async def rosters(self):
        async with closing(FileRosterStore(self._home, clock=SystemClock())) as rosters:
            yield rosters


STORE_OPENERS = {"memory": MemoryStoreOpener, "files": FileStoreOpener}
