"""What the journal hears of a board, also where its disk is full for a while."""

from __future__ import annotations

import asyncio

from shoal.app.teams.told_tasks import ToldBoard
from shoal.core.clock import SystemClock
from shoal.core.errors import StoreError
from shoal.core.events import Journaled, TaskChanged
from shoal.core.ids import Ids
from shoal.core.names import AgentName
from shoal.core.tasks import Change, Draft
from shoal.stores.files.board import FileTaskBoard
from troupe import home


class Disk:
    """Where events are written, if there is room."""

    def __init__(self) -> None:
        self.full = False
        self.told: list[tuple[str, str]] = []
        self.news = asyncio.Event()

    def write(self, event: Journaled) -> None:
        if self.full:
            raise StoreError("No space left on device.", path=home())
        assert isinstance(event, TaskChanged)
        self.told.append((event.subject, event.status))
        self.news.set()


async def test_a_task_deleted_while_the_disk_is_full_is_deleted_and_told_later() -> None:
    disk, clock = Disk(), SystemClock()
    board = FileTaskBoard(home(), "crew", clock=clock, ids=Ids(1))
    told = ToldBoard(board, "crew", home() / "tasks" / "crew", disk.write)
    one, two = [await told.create(Draft(subject=each, description="")) for each in ("one", "two")]
    disk.full = True
    await told.delete(one.id)
    await told.update(two.id, Change(status="deleted"), by=AgentName("user"))
    assert await told.list() == ()
    disk.full = False
    disk.news.clear()
    await told.create(Draft(subject="three", description=""))
    async with asyncio.timeout(10):
        while disk.told.count(("one", "deleted")) + disk.told.count(("two", "deleted")) < 2:
            await disk.news.wait()
            disk.news.clear()
    await told.aclose()
    assert sorted(disk.told) == sorted(
        [
            ("one", "pending"),
            ("two", "pending"),
            ("three", "pending"),
            ("one", "deleted"),
            ("two", "deleted"),
        ]
    )
