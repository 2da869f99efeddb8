"""Completed tasks cost a board almost nothing, even thousands of them."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
import zlib
from pathlib import Path

import pytest
from board_helpers import fill_board, open_board

from shoal.core.clock import Deadline, SystemClock
from shoal.core.teams import packed_task_map
from shoal.core.teams.tasks import TaskDraft, TaskUpdate
from shoal.stores.files.access.file_watch import POLL_INTERVAL
from shoal.stores.files.board import task_files
from shoal.stores.files.board.file_task_board import POLL_DELAY_PER_TASK

COMPLETED = 2_000


@pytest.fixture
def unpacked_chunks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Chunks of packed completed tasks that were decompressed."""
    chunks: list[bytes] = []

    class CountingZlib:
        compress = zlib.compress

        @staticmethod
        def decompress(chunk: bytes) -> bytes:
            chunks.append(chunk)
            return zlib.decompress(chunk)

    monkeypatch.setattr(packed_task_map, "zlib", CountingZlib)
    return chunks


def write_completed_tasks(home: Path, count: int, board: str = "roof") -> None:
    """Write completed tasks, each blocked by the one before."""
    directory = home / "tasks" / board
    directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    for number in range(1, count + 1):
        task = {
            "id": str(number),
            "subject": f"task {number}",
            "description": "as always",
            "activeForm": "",
            "status": "completed",
            "owner": f"m{number % 10}",
            "blocks": [str(number + 1)] if number < count else [],
            "blockedBy": [str(number - 1)] if number > 1 else [],
            "metadata": {"shoal:attempt": f"lease{number}-mark"},
        }
        (directory / f"{number}.json").write_text(json.dumps(task))


@pytest.mark.slow
async def test_a_completed_task_uses_few_bytes_in_each_process(home: Path):
    write_completed_tasks(home, COMPLETED)
    async with open_board(home) as board:
        gc.collect()
        tracemalloc.start()
        try:
            assert len(await board.get_live_task_mapping()) == COMPLETED
            gc.collect()
            # Includes the few that are not packed yet.
            assert tracemalloc.get_traced_memory()[0] / COMPLETED < 300
        finally:
            tracemalloc.stop()


@pytest.mark.slow
async def test_tasks_completed_by_others_use_few_bytes(home: Path):
    """Both in a board that waits like a member and in one that only views."""
    async with open_board(home) as board, open_board(home) as waiting, open_board(home) as viewer:
        await fill_board(board, 1)
        await board.update("1", TaskUpdate(status="completed"), by="ann")
        waits = asyncio.ensure_future(waiting.wait_for_claimable())
        await viewer.get_live_task_mapping()
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(2, 602):
                task = await board.create(TaskDraft(subject=f"task {number}", description="as always"))
                assert (await board.claim(task.id, by="ann")).success
                await viewer.get_live_task_mapping()
                await board.update(task.id, TaskUpdate(status="completed"), by="ann")
                await viewer.get_live_task_mapping()
            gc.collect()
            each = (tracemalloc.get_traced_memory()[0] - before) / 600
        finally:
            tracemalloc.stop()
            waits.cancel()
        assert each < 1_500, "of three boards together"


async def test_claiming_and_updating_unpack_no_completed_task(home: Path, unpacked_chunks: list[bytes]):
    write_completed_tasks(home, COMPLETED)
    async with open_board(home) as board, open_board(home) as other:
        for each in (board, other):
            await each.get_live_task_mapping()
        one, two = await fill_board(board, 2)
        unpacked_chunks.clear()
        assert (await other.claim_next(by="ann")).task.id == one.id
        assert (await board.claim(two.id, by="bob")).success
        await board.update(two.id, TaskUpdate(add_blocked_by=(one.id,)), by="bob")
        assert [task.id for task in await other.list_unfinished()] == [one.id, two.id]
        assert await board.release_owner_tasks("bob") == (two.id,)
        await other.update(one.id, TaskUpdate(status="completed"), by="ann")
        await board.wait_for_claimable()
        assert await board.reclaim_owner_tasks("ann") == ()
        assert (await other.claim_next(by="ann")).task.id == two.id
        assert unpacked_chunks == []


async def test_a_task_blocked_by_completed_tasks_unpacks_only_those(home: Path, unpacked_chunks: list[bytes]):
    write_completed_tasks(home, COMPLETED)
    async with open_board(home) as board:
        await board.get_live_task_mapping()
        one, two = await fill_board(board, 2)
        unpacked_chunks.clear()
        await board.update(one.id, TaskUpdate(add_blocked_by=("5", "7")), by="ann")
        await board.update(two.id, TaskUpdate(add_blocked_by=(one.id,)), by="ann")
        assert (await board.claim_next(by="ann")).task.id == one.id
        assert len(unpacked_chunks) < 20


async def test_a_board_that_only_views_keeps_no_completed_candidates(home: Path):
    async with open_board(home) as board, open_board(home) as viewer:
        for _ in range(50):
            (task,) = await fill_board(board, 1)
            await viewer.get_live_task_mapping()
            await board.update(task.id, TaskUpdate(status="completed"), by="ann")
            await viewer.get_live_task_mapping()
        assert viewer._files.index._candidates == []


async def test_without_file_events_the_poll_interval_grows_with_the_number_of_tasks(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    pauses: list[float] = []

    class RecordingClock(SystemClock):
        def deadline(self, seconds: float) -> Deadline:
            pauses.append(seconds)
            return super().deadline(seconds)

    monkeypatch.setattr(task_files, "watch_directory_fd", lambda _: None)
    async with open_board(home, clock=RecordingClock()) as board:
        for done in (0, COMPLETED):
            if done:
                write_completed_tasks(home, done)
            waits = asyncio.ensure_future(board.wait_for_claimable())
            async with asyncio.timeout(10):
                while not len(board._waiters):
                    await asyncio.sleep(0)
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
    assert pauses == [POLL_INTERVAL, POLL_DELAY_PER_TASK * COMPLETED]
