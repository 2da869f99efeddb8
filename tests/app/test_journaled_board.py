"""Journal events of a task board, also while the disk is full."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Sequence

import pytest

from shoal.app.teams.journaled_board import JournaledTaskBoard
from shoal.core.clock import SystemClock
from shoal.core.errors import StateFileError
from shoal.core.events import JournaledEvent, TaskChanged
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TaskId
from shoal.core.teams import packed_task_map
from shoal.core.teams.tasks import TaskDraft, TaskUpdate
from shoal.stores.files.board.file_task_board import FileTaskBoard
from team_scripts import get_home


class Disk:
    """Records events unless it is full."""

    def __init__(self) -> None:
        self.full = False
        self.changes: list[tuple[str, str]] = []
        self.news = asyncio.Event()

    def write(self, events: Sequence[JournaledEvent]) -> None:
        if self.full:
            raise StateFileError("No space left on device.", path=get_home())
        for event in events:
            assert isinstance(event, TaskChanged)
            self.changes.append((event.subject, event.status))
        self.news.set()


async def test_a_task_deleted_while_the_disk_is_full_is_journaled_later() -> None:
    disk, clock = Disk(), SystemClock()
    board = FileTaskBoard(get_home(), "crew", clock=clock, ids=IdGenerator(1))
    journaled = JournaledTaskBoard(board, "crew", disk.write)
    one, two = [await journaled.create(TaskDraft(subject=each, description="")) for each in ("one", "two")]
    disk.full = True
    await journaled.delete(one.id)
    await journaled.update(two.id, TaskUpdate(status="deleted"), by=AgentName("user"))
    assert await journaled.list_tasks() == ()
    disk.full = False
    disk.news.clear()
    await journaled.create(TaskDraft(subject="three", description=""))
    async with asyncio.timeout(10):
        while disk.changes.count(("one", "deleted")) + disk.changes.count(("two", "deleted")) < 2:
            await disk.news.wait()
            disk.news.clear()
    await journaled.aclose()
    assert sorted(disk.changes) == sorted(
        [
            ("one", "pending"),
            ("two", "pending"),
            ("three", "pending"),
            ("one", "deleted"),
            ("two", "deleted"),
        ]
    )


async def test_a_foreign_change_is_journaled_without_reading_completed_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = get_home() / "tasks" / "crew"
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

    monkeypatch.setattr(packed_task_map, "zlib", Counted)
    disk, clock = Disk(), SystemClock()
    journaled = JournaledTaskBoard(
        FileTaskBoard(get_home(), "crew", clock=clock, ids=IdGenerator(1)), "crew", disk.write
    )
    other = FileTaskBoard(get_home(), "crew", clock=clock, ids=IdGenerator(2))

    async def told_of(subject: str, status: str) -> None:
        async with asyncio.timeout(20):
            while (subject, status) not in disk.changes:
                disk.news.clear()
                await disk.news.wait()

    journaled.start_watching()
    await told_of("task 500", "completed")
    assert len(disk.changes) == 500
    await other.get_live_task_mapping()
    pieces.clear()
    new = await other.create(TaskDraft(subject="new", description=""))
    await told_of("new", "pending")
    await other.update(new.id, TaskUpdate(status="completed"), by=AgentName("ann"))
    await told_of("new", "completed")
    assert pieces == []
    await other.delete(TaskId("7"))
    await told_of("task 7", "deleted")
    for board in (journaled, other):
        await board.aclose()
    assert len(disk.changes) == 503
