"""The board shared by processes, some of which are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from board_helpers import fill_board, open_board, read_task_file, start_board_process

from shoal.core.errors import TaskUpdateRefused
from shoal.core.teams.tasks import TaskUpdate


@pytest.mark.slow
@pytest.mark.spec("TSK-05", "USR-25", "TSK-09")
async def test_sixty_four_agents_complete_a_thousand_tasks_once_each(
    home: Path, record_property: Callable[[str, object], None]
):
    directory = home / "tasks" / "roof"
    directory.mkdir(parents=True)
    for number in range(1, 1001):
        task = {"id": str(number), "subject": "x", "description": "", "status": "pending"}
        (directory / f"{number}.json").write_text(json.dumps(task))
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(start_board_process("work", home, f"p{n}", 16)) for n in range(4)
        ]
        assert [await each.read_reply() for each in processes] == ["ready"] * 4
        for each in processes:
            each.send_go()
        done = [task for each in processes for task in await each.read_reply()]
    assert Counter(done) == Counter({str(number): 1 for number in range(1, 1001)})
    async with open_board(home) as board:
        assert {task.status for task in await board.list_tasks()} == {"completed"}
    record_property("measured", f"{len(done):,} tasks completed once each by 64 claimants")


@pytest.mark.spec("TSK-03", "TSK-09")
async def test_six_processes_that_add_a_blocker_at_once_are_all_recorded(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 7)
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(start_board_process("block", home, n, 1)) for n in range(2, 8)
        ]
        for each in processes:
            assert await each.read_reply() == "ready"
        for each in processes:
            each.send_go()
        assert [await each.read_reply() for each in processes] == ["done"] * 6
    assert sorted(read_task_file(home, "1")["blocks"]) == ["2", "3", "4", "5", "6", "7"]
    assert all(read_task_file(home, n)["blockedBy"] == ["1"] for n in range(2, 8))


@pytest.mark.spec("TSK-03", "TSK-09", "USR-15")
async def test_a_dependency_written_to_one_of_two_files_is_repaired(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 2)
        async with start_board_process("block_and_die", home, 2, 1, 1) as dying:
            assert await dying.read_reply() is None
        assert (read_task_file(home, "2")["blockedBy"], read_task_file(home, "1")["blocks"]) == (["1"], [])
        since = time.monotonic()
        one, two = await board.list_tasks()
        assert (one.blocks, two.blocked_by) == (("2",), ("1",))
        assert time.monotonic() - since < 5  # its locks are taken over at once
        assert read_task_file(home, "1")["blocks"] == ["2"]
        with pytest.raises(TaskUpdateRefused, match="wait"):
            await board.update("1", TaskUpdate(add_blocked_by=("2",)), by="a")
    assert not [path for path in (home / "tasks" / "roof").iterdir() if path.name.endswith(".lock.lock")]


@pytest.mark.spec("TSK-09", "USR-25")
async def test_the_task_of_a_killed_process_is_pending_again_at_once(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 1)
        async with start_board_process("hold", home, "bob") as holder:
            task, attempt = await holder.read_reply()
            assert (await board.get(task)).owner == "bob"
            assert (await board.claim(task, by="carol")).reason == "already_claimed"
            assert await board.claim_next(by="carol") is None
            await holder.kill_process()
        since = time.monotonic()
        claim = await board.claim_next(by="carol")
        assert time.monotonic() - since < 5
        assert (claim.task.id, claim.task.owner) == (task, "carol")
        with pytest.raises(TaskUpdateRefused, match="no longer held"):
            await board.update(task, TaskUpdate(status="completed", attempt=attempt), by="bob")
    assert list((home / "shoal" / "leases").iterdir()) == []


@pytest.mark.slow
@pytest.mark.spec("TSK-09", "USR-25")
async def test_a_waiter_is_woken_when_the_holder_is_killed(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 1)
        async with start_board_process("hold", home, "bob") as holder:
            await holder.read_reply()
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(board.wait_for_claimable())
                while not len(board._waiters):
                    await asyncio.sleep(0)
                await holder.kill_process()
                await asyncio.wait_for(waiting, 30)
        assert (await board.get("1")).status == "pending"


async def test_a_child_process_does_not_keep_the_claim_of_a_killed_holder(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 1)
        async with start_board_process("hold_with_child", home, "bob") as holder:
            _, child = await holder.read_reply()
            try:
                assert (await board.claim("1", by="carol")).reason == "already_claimed"
                await holder.kill_process()
                assert (await board.claim("1", by="carol")).success
            finally:
                os.kill(child, signal.SIGKILL)
