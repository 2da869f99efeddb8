"""The board shared by processes, some of which are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from board_kit import board_at, file_of, filled, other

from shoal.core.errors import TaskRefused
from shoal.core.tasks import Change


@pytest.mark.spec("TSK-05", "USR-25", "TSK-09")
async def test_sixty_four_claimants_do_a_thousand_tasks_once_each(home: Path):
    directory = home / "tasks" / "roof"
    directory.mkdir(parents=True)
    for number in range(1, 1001):
        task = {"id": str(number), "subject": "x", "description": "", "status": "pending"}
        (directory / f"{number}.json").write_text(json.dumps(task))
    async with AsyncExitStack() as leave:
        others = [await leave.enter_async_context(other("work", home, f"p{n}", 16)) for n in range(4)]
        assert [await each.heard() for each in others] == ["ready"] * 4
        for each in others:
            each.go()
        done = [task for each in others for task in await each.heard()]
    assert Counter(done) == Counter({str(number): 1 for number in range(1, 1001)})
    async with board_at(home) as board:
        assert {task.status for task in await board.list()} == {"completed"}


@pytest.mark.spec("TSK-03", "TSK-09")
async def test_six_processes_that_block_one_task_at_once_are_all_recorded(home: Path):
    async with board_at(home) as board:
        await filled(board, 7)
    async with AsyncExitStack() as leave:
        others = [await leave.enter_async_context(other("block", home, n, 1)) for n in range(2, 8)]
        for each in others:
            assert await each.heard() == "ready"
        for each in others:
            each.go()
        assert [await each.heard() for each in others] == ["done"] * 6
    assert sorted(file_of(home, "1")["blocks"]) == ["2", "3", "4", "5", "6", "7"]
    assert all(file_of(home, n)["blockedBy"] == ["1"] for n in range(2, 8))


@pytest.mark.spec("TSK-03", "TSK-09", "USR-15")
async def test_a_dependency_cut_between_its_two_files_is_made_whole(home: Path):
    async with board_at(home) as board:
        await filled(board, 2)
        async with other("block_and_die", home, 2, 1, 1) as dying:
            assert await dying.heard() is None
        assert (file_of(home, "2")["blockedBy"], file_of(home, "1")["blocks"]) == (["1"], [])
        since = time.monotonic()
        one, two = await board.list()
        assert (one.blocks, two.blocked_by) == (("2",), ("1",))
        assert time.monotonic() - since < 5  # its locks are taken over at once
        assert file_of(home, "1")["blocks"] == ["2"]
        with pytest.raises(TaskRefused, match="wait"):
            await board.update("1", Change(add_blocked_by=("2",)), by="a")
    assert not [path for path in (home / "tasks" / "roof").iterdir() if path.name.endswith(".lock.lock")]


@pytest.mark.spec("TSK-09", "USR-25")
async def test_the_task_of_a_killed_claimant_is_pending_again_at_once(home: Path):
    async with board_at(home) as board:
        await filled(board, 1)
        async with other("hold", home, "bob") as holder:
            task, attempt = await holder.heard()
            assert (await board.get(task)).owner == "bob"
            assert (await board.claim(task, by="carol")).reason == "already_claimed"
            assert await board.claim_next(by="carol") is None
            await holder.kill()
        since = time.monotonic()
        claim = await board.claim_next(by="carol")
        assert time.monotonic() - since < 5
        assert (claim.task.id, claim.task.owner) == (task, "carol")
        with pytest.raises(TaskRefused, match="no longer held"):
            await board.update(task, Change(status="completed", attempt=attempt), by="bob")
    assert list((home / "shoal" / "leases").iterdir()) == []


@pytest.mark.spec("TSK-09", "USR-25")
async def test_who_waits_hears_of_a_killed_claimant(home: Path):
    async with board_at(home) as board:
        await filled(board, 1)
        async with other("hold", home, "bob") as holder:
            await holder.heard()
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(board.wait_claimable())
                while not len(board._waiters):
                    await asyncio.sleep(0)
                await holder.kill()
                await asyncio.wait_for(waiting, 30)
        assert (await board.get("1")).status == "pending"


async def test_a_child_of_the_holder_does_not_keep_its_claim(home: Path):
    async with board_at(home) as board:
        await filled(board, 1)
        async with other("hold_with_child", home, "bob") as holder:
            _, child = await holder.heard()
            try:
                assert (await board.claim("1", by="carol")).reason == "already_claimed"
                await holder.kill()
                assert (await board.claim("1", by="carol")).success
            finally:
                os.kill(child, signal.SIGKILL)
