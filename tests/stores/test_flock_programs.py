"""Programs that lock a directory with one flock, next to our locks: nothing is lost, doubled or set aside."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from board_helpers import open_board
from mail_helpers import get_inbox_path, make_mail, open_mailboxes, take_all_mail

from shoal.core.names import AgentName
from shoal.core.teams.tasks import TaskDraft, TaskUpdate
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.locks.directory_flock import SharedDirectoryFlock

PROGRAM = Path(__file__).with_name("flock_program.py")


async def write_next_to_other_program(home: Path, *, count: int, seconds: float) -> None:
    """Post and update in this process and in one with the other kind of lock; check that all is there."""
    problems: list[str] = []
    taken: list[str] = []
    async with open_mailboxes(home, report_problem=problems.append) as mail, open_board(home) as board:
        await mail.open_inbox(AgentName("ann"))
        task = await board.create(TaskDraft(subject="shared", description="", metadata={}))
        path = home / "tasks" / "roof" / f"{task.id}.json"
        other = await asyncio.create_subprocess_exec(
            *(sys.executable, str(PROGRAM), str(get_inbox_path(home)), str(path), str(count), str(seconds)),
            stdout=asyncio.subprocess.PIPE,
        )
        end, own = time.monotonic() + seconds, 0
        while own < count and time.monotonic() < end:
            await mail.post("ann", make_mail(f"own {own}"))
            await board.update(task.id, TaskUpdate(metadata={f"own {own}": own}), by=AgentName("bob"))
            own += 1
            taken += [each.text for each in await take_all_mail(mail)]
        out, _ = await other.communicate()
        assert other.returncode == 0
        others = int(out)
        taken += [each.text for each in await take_all_mail(mail)]
        updated = await board.get(task.id)
    assert own > 10
    assert others > 10
    expected = [f"own {number}" for number in range(own)] + [f"other {number}" for number in range(others)]
    assert Counter(taken) == Counter(expected)
    assert updated is not None
    assert {key for key in updated.metadata if key.startswith(("own", "other"))} == set(expected)
    assert problems == []
    assert not list(home.rglob("*corrupt*"))


@pytest.mark.spec("LIM-08")
async def test_mail_and_updates_next_to_a_program_with_a_directory_flock_are_complete(home: Path) -> None:
    await write_next_to_other_program(home, count=80, seconds=60)


@pytest.mark.spec("LIM-08")
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
async def test_a_minute_next_to_a_program_with_a_directory_flock_loses_nothing(home: Path) -> None:
    await write_next_to_other_program(home, count=1 << 30, seconds=60)


@pytest.mark.spec("LIM-08")
async def test_holders_of_one_process_share_the_flock_and_others_wait_for_the_last(tmp_path: Path) -> None:
    with DirectoryHandle.open_root(tmp_path) as directory, DirectoryHandle.open_root(tmp_path) as same:
        ours, others = SharedDirectoryFlock(directory), SharedDirectoryFlock(same)
        deadline = time.monotonic() + 30
        await ours.acquire(deadline)
        await ours.acquire(deadline)
        waiting = asyncio.create_task(others.acquire(deadline))
        ours.release()
        assert not others.try_acquire()
        assert not waiting.done()
        ours.release()
        await asyncio.wait_for(waiting, 10)
        assert not ours.try_acquire()
        others.release()
        assert ours.try_acquire()
        ours.release()
