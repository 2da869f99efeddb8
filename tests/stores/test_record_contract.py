"""What every store of the record keeps, on each store there is."""

from __future__ import annotations

from contextlib import aclosing as closing
from contextlib import asynccontextmanager

import pytest

from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.stores.files.board import FileTaskBoard
from shoal.stores.files.mailboxes import FileMailboxes
from shoal.stores.files.rosters import FileRosters
from shoal.stores.memory_record import MemoryRecord
from shoal.testing.contracts import board_rules, mailbox_rules, roster_rules


class InMemory:
    """All doors are the same object."""

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
    """Each door is an object of its own, as another process has it."""

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


def each(rules):
    """Every rule on every store; what the rules show of the specification, they show on files."""
    return pytest.mark.parametrize(
        ("rule", "store"),
        [
            pytest.param(
                rule,
                store,
                id=f"{name}-{rule.__name__}",
                marks=[pytest.mark.spec(*rule.spec)] if rule.spec and name == "files" else [],
            )
            for name, store in STORES.items()
            for rule in rules
        ],
    )


@each(mailbox_rules())
async def test_mailboxes(rule, store, home):
    await rule(store(home).mailboxes)


@each(board_rules())
async def test_board(rule, store, home):
    await rule(store(home).board)


@each(roster_rules())
async def test_rosters(rule, store, home):
    await rule(store(home).rosters)
