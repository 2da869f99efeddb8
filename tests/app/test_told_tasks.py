"""What the journal hears of a board, also where its disk is full for a while."""

from __future__ import annotations

import asyncio
import json
import zlib

import pytest

from shoal.app.teams.told_tasks import ToldBoard
from shoal.core import packed
from shoal.core.clock import SystemClock
from shoal.core.errors import StoreError
from shoal.core.events import Journaled, TaskChanged
from shoal.core.ids import Ids
from shoal.core.names import AgentName, TaskId
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


async def test_a_change_by_others_is_told_without_a_look_at_what_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = home() / "tasks" / "crew"
    tasks.mkdir(parents=True, mode=0o700)
    for number in range(1, 501):
        done = {"id": str(number), "subject": f"task {number}", "description": "", "status": "completed"}
        (tasks / f"{number}.json").write_text(json.dumps(done))
    pieces: list[bytes] = []

    class Counted:
        compress = zlib.compress

        @staticmethod
        def decompress(piece: bytes) -> bytes:
            pieces.append(piece)
            return zlib.decompress(piece)

    monkeypatch.setattr(packed, "zlib", Counted)
    disk, clock = Disk(), SystemClock()
    told = ToldBoard(FileTaskBoard(home(), "crew", clock=clock, ids=Ids(1)), "crew", tasks, disk.write)
    other = FileTaskBoard(home(), "crew", clock=clock, ids=Ids(2))

    async def told_of(subject: str, status: str) -> None:
        async with asyncio.timeout(20):
            while (subject, status) not in disk.told:
                disk.news.clear()
                await disk.news.wait()

    told.follow()
    await told_of("task 500", "completed")
    assert len(disk.told) == 500
    await other.look()
    pieces.clear()
    new = await other.create(Draft(subject="new", description=""))
    await told_of("new", "pending")
    await other.update(new.id, Change(status="completed"), by=AgentName("ann"))
    await told_of("new", "completed")
    assert pieces == []
    await other.delete(TaskId("7"))
    await told_of("task 7", "deleted")
    for board in (told, other):
        await board.aclose()
    assert len(disk.told) == 503
