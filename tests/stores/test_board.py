"""The board on files: what its files hold, what other programs do to them, and what is remembered."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from pathlib import Path

import pytest
from board_kit import board_at, file_of, filled

from shoal.core.errors import BadName, LockUnavailable, StoreError, TaskRefused
from shoal.core.tasks import ATTEMPT, Change, Draft
from shoal.stores.files import task_files
from shoal.testing.clock import FakeClock


@pytest.mark.spec("TSK-01", "HOM-05")
async def test_a_task_is_one_private_file_of_the_known_shape(home: Path):
    async with board_at(home) as board:
        await board.create(Draft(subject="Fix it", description="all of it", active_form="Fixing it"))
    assert file_of(home, "1") == {
        "id": "1",
        "subject": "Fix it",
        "description": "all of it",
        "activeForm": "Fixing it",
        "status": "pending",
        "blocks": [],
        "blockedBy": [],
    }
    directory = home / "tasks" / "roof"
    assert stat.S_IMODE((directory / "1.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert sorted(path.name for path in directory.iterdir()) == [".highwatermark", ".lock", "1.json"]
    assert (directory / ".lock").stat().st_size == 0


@pytest.mark.spec("TSK-01")
async def test_an_id_is_never_used_twice(home: Path):
    async with board_at(home) as board:
        await filled(board, 3)
        await board.delete("3")
    async with board_at(home) as board:
        assert (await board.create(Draft(subject="next", description=""))).id == "4"
        (home / "tasks" / "roof" / "4.json").unlink()  # by hand, without a word to anybody
        assert (await board.create(Draft(subject="next", description=""))).id == "5"


@pytest.mark.spec("TSK-01", "TSK-12")
async def test_what_another_program_made_is_respected(home: Path):
    async with board_at(home) as board:
        await filled(board, 1)
        (home / "tasks" / "roof" / ".highwatermark").write_text("20")
        assert (await board.create(Draft(subject="a", description=""))).id == "21"
        theirs = {
            "id": "40",
            "subject": "theirs",
            "status": "pending",
            "createdAt": 7,
            "deep": {"x": [None]},
        }
        (home / "tasks" / "roof" / "40.json").write_text(json.dumps(theirs))
        assert (await board.create(Draft(subject="b", description=""))).id == "41"
        await board.update("40", Change(subject="ours too", metadata={"k": 1}), by="a")
    written = file_of(home, "40")
    assert (written["createdAt"], written["deep"], written["id"]) == (7, {"x": [None]}, "40")
    assert (written["subject"], written["metadata"]) == ("ours too", {"k": 1})


async def test_a_file_that_another_program_writes_in_place_is_seen_at_once(home: Path):
    async with board_at(home) as board:
        await filled(board, 2)
        path = home / "tasks" / "roof" / "2.json"
        content = path.read_text()
        assert (await board.get("2")).status == "pending"
        with path.open("r+") as file:
            file.write(content.replace('"pending"', '"completed"'))
        assert (await board.get("2")).status == "completed"


@pytest.mark.spec("TSK-12")
async def test_an_invalid_file_reads_as_absent_and_is_reported_and_kept(home: Path):
    told: list[str] = []
    async with board_at(home, report=told.append) as board:
        await filled(board, 2)
        path = home / "tasks" / "roof" / "2.json"
        path.write_text("{ half")
        os.utime(path, (1, 1))
        assert await board.get("2") is None
        assert [task.id for task in await board.list()] == ["1"]
        with pytest.raises(TaskRefused, match="no task 2"):
            await board.update("2", Change(subject="x"), by="a")
        assert path.read_text() == "{ half"
        assert (await board.create(Draft(subject="next", description=""))).id == "3"
    assert len(set(told)) == 1
    assert "2.json" in told[0]


async def test_half_a_file_leaves_what_was_known_for_a_moment(home: Path):
    told: list[str] = []
    async with board_at(home, report=told.append) as board:
        await filled(board, 2)
        await board.update("2", Change(add_blocked_by=("1",)), by="a")
        path = home / "tasks" / "roof" / "1.json"
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        assert (await board.claim("2", by="a")).reason == "blocked"
        assert told == []
        path.write_bytes(content)
        assert (await board.get("1")).subject == "task 1"


@pytest.mark.spec("TSK-02")
async def test_a_stored_deleted_reads_as_absent(home: Path):
    async with board_at(home) as board:
        await filled(board, 2)
        await board.update("2", Change(add_blocked_by=("1",)), by="a")
        path = home / "tasks" / "roof" / "1.json"
        path.write_text(path.read_text().replace('"pending"', '"deleted"'))
        assert await board.get("1") is None
        assert (await board.get("2")).blocked_by == ()
        assert (await board.claim("2", by="a")).success


@pytest.mark.spec("TSK-02")
async def test_deleting_drops_every_reference_and_frees_who_waited(home: Path):
    async with board_at(home) as board:
        await filled(board, 3)
        await board.update("2", Change(add_blocked_by=("1",), add_blocks=("3",)), by="a")
        await board.update("2", Change(status="deleted"), by="a")
        one, three = await board.list()
        assert (one.blocks, three.blocked_by) == ((), ())
    assert file_of(home, "1")["blocks"] == file_of(home, "3")["blockedBy"] == []


@pytest.mark.spec("USR-25")
async def test_a_stale_attempt_cannot_complete(home: Path):
    async with board_at(home) as board:
        await filled(board, 1)
        first = await board.claim("1", by="a")
        assert await board.release("1", attempt=first.attempt)
        second = await board.claim("1", by="b")
        with pytest.raises(TaskRefused, match="no longer held"):
            await board.update("1", Change(status="completed", attempt=first.attempt), by="a")
        assert not await board.release("1", attempt=first.attempt)
        assert (await board.get("1")).owner == "b"
        _, after = await board.update("1", Change(status="completed", attempt=second.attempt), by="b")
    assert after.status == "completed"
    assert file_of(home, "1")["metadata"] == {ATTEMPT: second.attempt}


@pytest.mark.spec("TSK-09")
async def test_what_a_closed_board_held_is_pending_again(home: Path):
    async with board_at(home) as board:
        await filled(board, 1)
        await board.claim("1", by="a")
    async with board_at(home) as board:
        task = await board.get("1")
    assert (task.status, task.owner, task.attempt) == ("pending", None, None)


async def test_what_a_foreign_program_holds_stays_its_own_until_it_was_silent_for_long(home: Path):
    theirs = {"id": "1", "subject": "theirs", "status": "in_progress", "owner": "bob"}
    async with board_at(home, foreign_patience=600) as board:
        await filled(board, 1)
        path = home / "tasks" / "roof" / "1.json"
        path.write_text(json.dumps(theirs))
        os.utime(path, (time.time() - 500,) * 2)
        assert (await board.claim("1", by="a")).reason == "already_claimed"
        os.utime(path, (time.time() - 700,) * 2)
        assert (await board.claim("1", by="a")).success


@pytest.mark.spec("TSK-09", "USR-15")
async def test_without_the_lock_nothing_is_written(home: Path):
    async with board_at(home, patience=0.2) as board:
        await filled(board, 1)
        before = (home / "tasks" / "roof" / "1.json").read_bytes()
        (home / "tasks" / "roof" / "1.json.lock").mkdir()
        with pytest.raises(LockUnavailable):
            await board.update("1", Change(subject="x"), by="a")
        with pytest.raises(LockUnavailable):
            await board.claim("1", by="a")
        assert (home / "tasks" / "roof" / "1.json").read_bytes() == before
        (home / "tasks" / "roof" / ".lock.lock").mkdir()
        with pytest.raises(LockUnavailable):
            await board.create(Draft(subject="x", description=""))
        assert len(await board.list()) == 1


@pytest.mark.spec("HOM-04", "USR-29")
@pytest.mark.parametrize("name", ["../up", "a/b", "", ".", "..", "a\0b", "-x", "x" * 65, "/etc", "a b", "ü"])
def test_a_hostile_name_opens_nothing(home: Path, name: str):
    with pytest.raises(BadName):
        asyncio.run(_open(home, name))
    assert not home.exists()


async def _open(home: Path, name: str) -> None:
    async with board_at(home, name) as board:
        await board.create(Draft(subject="x", description=""))


@pytest.mark.spec("USR-29", "HOM-04")
async def test_a_link_in_the_home_leads_nowhere(home: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "1.json").write_text('{"id":"1","subject":"secret","status":"pending"}')
    (home / "tasks").mkdir(parents=True)
    (home / "tasks" / "roof").symlink_to(outside)
    async with board_at(home) as board:
        with pytest.raises(StoreError, match="link"):
            await board.create(Draft(subject="x", description=""))
    (home / "tasks" / "roof").unlink()
    async with board_at(home) as board:
        await filled(board, 1)
        (home / "tasks" / "roof" / "7.json").symlink_to(outside / "1.json")
        assert [task.id for task in await board.list()] == ["1"]
    assert [path.name for path in outside.iterdir()] == ["1.json"]


async def test_a_list_where_nothing_changed_reads_no_file(home: Path, monkeypatch: pytest.MonkeyPatch):
    async with board_at(home) as board:
        await filled(board, 50)
        first = await board.list()
        read: list[bytes] = []
        monkeypatch.setattr(task_files, "read_task", lambda content, task: read.append(content))
        assert await board.list() is first
        assert read == []


async def test_a_board_without_news_from_the_system_sees_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(task_files, "news_of", lambda _: None)
    async with board_at(home) as board, board_at(home) as second:
        await filled(board, 3)
        assert len(await second.list()) == 3
        await board.update("2", Change(status="completed"), by="a")
        assert [task.status for task in await second.list()] == ["pending", "completed", "pending"]
        await board.delete("2")
        assert [task.id for task in await second.list()] == ["1", "3"]
        waiting = asyncio.ensure_future(second.wait_claimable())
        await asyncio.wait_for(waiting, 30)


@pytest.mark.spec("TSK-06")
async def test_k_unblocked_tasks_wake_at_most_k_waiters(home: Path):
    async with board_at(home) as board:
        await filled(board, 3)
        await board.update("1", Change(add_blocks=("2", "3")), by="a")
        claim = await board.claim("1", by="a")
        woken: list[int] = []

        async def wait(number: int) -> None:
            await board.wait_claimable()
            woken.append(number)

        async with asyncio.TaskGroup() as group:
            waiters = [group.create_task(wait(number)) for number in range(5)]
            while len(board._waiters) < 5:
                await asyncio.sleep(0)
            await board.update("1", Change(status="completed", attempt=claim.attempt), by="a")
            for _ in range(20):
                await asyncio.sleep(0)
            assert woken == [0, 1]
            for waiter in waiters:
                waiter.cancel()


@pytest.mark.spec("TSK-06")
async def test_completing_on_another_board_object_wakes_over_the_file_system(home: Path):
    async with board_at(home) as board, board_at(home) as second:
        await filled(board, 2)
        await board.update("2", Change(add_blocked_by=("1",)), by="a")
        claim = await board.claim("1", by="a")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(second.wait_claimable())
            while not len(second._waiters):
                await asyncio.sleep(0)
            since = time.monotonic()
            await board.update("1", Change(status="completed", attempt=claim.attempt), by="a")
            await asyncio.wait_for(waiting, 30)
        assert time.monotonic() - since < 5
        assert (await second.claim_next(by="b")).task.id == "2"


async def test_a_waiter_looks_after_the_dead_now_and_then(home: Path):
    clock = FakeClock(start=int(time.time() * 1000))
    async with board_at(home) as holder, board_at(home, clock=clock) as board:
        await filled(holder, 1)
        await holder.claim("1", by="a")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(board.wait_claimable())
            await clock.asleep()
            holder._lease.end()  # as the kernel does when its process dies
            await clock.advance(30)
            await asyncio.wait_for(waiting, 30)


async def test_a_board_that_is_removed_and_made_again_is_found(home: Path):
    async with board_at(home) as board:
        await filled(board, 2)
        for path in (home / "tasks" / "roof").iterdir():
            path.unlink()
        (home / "tasks" / "roof").rmdir()
        assert list(await board.list()) == []
        assert (await board.create(Draft(subject="new", description=""))).id == "1"
        assert len(await board.list()) == 1
