"""What is done costs a board next to nothing, however much it is."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
import zlib
from pathlib import Path

import pytest
from board_kit import board_at, filled

from shoal.core import packed
from shoal.core.clock import Deadline, SystemClock
from shoal.core.tasks import Change, Draft
from shoal.stores.files import task_files
from shoal.stores.files.board import PER_TASK
from shoal.stores.files.watch import UNTOLD

DONE = 2_000


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was read of tasks that are done and packed, a piece for each time."""
    pieces: list[bytes] = []

    class Counted:
        compress = zlib.compress

        @staticmethod
        def decompress(piece: bytes) -> bytes:
            pieces.append(piece)
            return zlib.decompress(piece)

    monkeypatch.setattr(packed, "zlib", Counted)
    return pieces


def write_done(home: Path, count: int, board: str = "roof") -> None:
    """Each waited for the one before."""
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


async def test_a_completed_task_takes_few_bytes_of_each_process(home: Path):
    write_done(home, DONE)
    async with board_at(home) as board:
        gc.collect()
        tracemalloc.start()
        try:
            assert len(await board.look()) == DONE
            gc.collect()
            # The few that are not packed yet among them.
            assert tracemalloc.get_traced_memory()[0] / DONE < 300
        finally:
            tracemalloc.stop()


async def test_tasks_that_others_complete_are_kept_in_few_bytes(home: Path):
    """By one who waits as a member does, and by one who only looks on."""
    async with board_at(home) as board, board_at(home) as waiting, board_at(home) as looking:
        await filled(board, 1)
        await board.update("1", Change(status="completed"), by="ann")
        waits = asyncio.ensure_future(waiting.wait_claimable())
        await looking.look()
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(2, 602):
                task = await board.create(Draft(subject=f"task {number}", description="as always"))
                assert (await board.claim(task.id, by="ann")).success
                await looking.look()
                await board.update(task.id, Change(status="completed"), by="ann")
                await looking.look()
            gc.collect()
            each = (tracemalloc.get_traced_memory()[0] - before) / 600
        finally:
            tracemalloc.stop()
            waits.cancel()
        assert each < 1_500, "of three processes together"


async def test_nobody_who_works_reads_what_is_done(home: Path, unpacked: list[bytes]):
    write_done(home, DONE)
    async with board_at(home) as board, board_at(home) as other:
        for each in (board, other):
            await each.look()
        one, two = await filled(board, 2)
        unpacked.clear()
        assert (await other.claim_next(by="ann")).task.id == one.id
        assert (await board.claim(two.id, by="bob")).success
        await board.update(two.id, Change(add_blocked_by=(one.id,)), by="bob")
        assert [task.id for task in await other.unfinished()] == [one.id, two.id]
        assert await board.release_all("bob") == (two.id,)
        await other.update(one.id, Change(status="completed"), by="ann")
        await board.wait_claimable()
        assert await board.reclaim("ann") == ()
        assert (await other.claim_next(by="ann")).task.id == two.id
        assert unpacked == []


async def test_a_task_that_waits_for_what_is_done_costs_no_more_than_those(home: Path, unpacked: list[bytes]):
    write_done(home, DONE)
    async with board_at(home) as board:
        await board.look()
        one, two = await filled(board, 2)
        unpacked.clear()
        await board.update(one.id, Change(add_blocked_by=("5", "7")), by="ann")
        await board.update(two.id, Change(add_blocked_by=(one.id,)), by="ann")
        assert (await board.claim_next(by="ann")).task.id == one.id
        assert len(unpacked) < 20


async def test_what_was_claimed_and_done_is_no_candidate_of_one_who_never_claims(home: Path):
    async with board_at(home) as board, board_at(home) as looking:
        for _ in range(50):
            (task,) = await filled(board, 1)
            await looking.look()
            await board.update(task.id, Change(status="completed"), by="ann")
            await looking.look()
        assert looking._files.index._ready == []


async def test_who_is_told_of_nothing_looks_the_less_often_the_more_there_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    pauses: list[float] = []

    class Noting(SystemClock):
        def deadline(self, seconds: float) -> Deadline:
            pauses.append(seconds)
            return super().deadline(seconds)

    monkeypatch.setattr(task_files, "news_of", lambda _: None)
    async with board_at(home, clock=Noting()) as board:
        for done in (0, DONE):
            if done:
                write_done(home, done)
            waits = asyncio.ensure_future(board.wait_claimable())
            async with asyncio.timeout(10):
                while not len(board._waiters):
                    await asyncio.sleep(0)
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
    assert pauses == [UNTOLD, PER_TASK * DONE]
