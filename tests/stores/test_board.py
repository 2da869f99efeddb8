"""The task board on disk: its files, changes by other programs, and caching."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import time
from pathlib import Path

import pytest
from board_helpers import fill_board, open_board, read_task_file

from shoal.core.errors import InvalidName, LockUnavailable, StateFileError, TaskUpdateRefused
from shoal.core.teams.tasks import ATTEMPT_KEY, TaskDraft, TaskUpdate
from shoal.stores.files.board import file_task_board, task_files
from shoal.stores.files.board.file_task_board import FOREIGN_TASK_TIMEOUT
from shoal.stores.files.locks.board_locks import LOCK_SLOTS
from shoal.testing.fake_clock import FakeClock


@pytest.mark.spec("TSK-01", "HOM-05")
async def test_a_task_is_one_private_file_with_the_documented_fields(home: Path):
    async with open_board(home) as board:
        await board.create(TaskDraft(subject="Fix it", description="all of it", active_form="Fixing it"))
    assert read_task_file(home, "1") == {
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
    async with open_board(home) as board:
        await fill_board(board, 3)
        await board.delete("3")
    async with open_board(home) as board:
        assert (await board.create(TaskDraft(subject="next", description=""))).id == "4"
        (home / "tasks" / "roof" / "4.json").unlink()  # by hand, without updating anything else
        assert (await board.create(TaskDraft(subject="next", description=""))).id == "5"


@pytest.mark.spec("TSK-01", "TSK-12")
async def test_ids_and_fields_of_foreign_tasks_are_respected(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 1)
        (home / "tasks" / "roof" / ".highwatermark").write_text("20")
        assert (await board.create(TaskDraft(subject="a", description=""))).id == "21"
        theirs = {
            "id": "40",
            "subject": "theirs",
            "status": "pending",
            "createdAt": 7,
            "deep": {"x": [None]},
        }
        (home / "tasks" / "roof" / "40.json").write_text(json.dumps(theirs))
        assert (await board.create(TaskDraft(subject="b", description=""))).id == "41"
        await board.update("40", TaskUpdate(subject="ours too", metadata={"k": 1}), by="a")
    written = read_task_file(home, "40")
    assert (written["createdAt"], written["deep"], written["id"]) == (7, {"x": [None]}, "40")
    assert (written["subject"], written["metadata"]) == ("ours too", {"k": 1})


async def test_a_task_file_rewritten_in_place_is_seen_at_once(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 2)
        path = home / "tasks" / "roof" / "2.json"
        content = path.read_text()
        assert (await board.get("2")).status == "pending"
        with path.open("r+") as file:
            file.write(content.replace('"pending"', '"completed"'))
        assert (await board.get("2")).status == "completed"


@pytest.mark.spec("TSK-12")
async def test_an_invalid_task_file_reads_as_absent_and_is_reported_and_kept(home: Path):
    reports: list[str] = []
    async with open_board(home, report_problem=reports.append) as board:
        await fill_board(board, 2)
        path = home / "tasks" / "roof" / "2.json"
        path.write_text("{ half")
        os.utime(path, (1, 1))
        assert await board.get("2") is None
        assert [task.id for task in await board.list_tasks()] == ["1"]
        with pytest.raises(TaskUpdateRefused, match="no task 2"):
            await board.update("2", TaskUpdate(subject="x"), by="a")
        assert path.read_text() == "{ half"
        assert (await board.create(TaskDraft(subject="next", description=""))).id == "3"
    assert len(set(reports)) == 1
    assert "2.json" in reports[0]


async def test_a_half_written_task_file_keeps_its_last_known_state(home: Path):
    reports: list[str] = []
    async with open_board(home, report_problem=reports.append) as board:
        await fill_board(board, 2)
        await board.update("2", TaskUpdate(add_blocked_by=("1",)), by="a")
        path = home / "tasks" / "roof" / "1.json"
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        assert (await board.claim("2", by="a")).reason == "blocked"
        assert reports == []
        # Still half written after the grace time, and no file event tells so.
        os.utime(path, (1, 1))
        assert await board.get("1") is None
        assert len(set(reports)) == 1
        path.write_bytes(content)
        assert (await board.get("1")).subject == "task 1"


CALLS = {
    "get": lambda board: board.get("1"),
    "claim": lambda board: board.claim("1", by="ann"),
    "update": lambda board: board.update("1", TaskUpdate(subject="new"), by="ann"),
    "add a dependency": lambda board: board.update("1", TaskUpdate(add_blocks=("2",)), by="ann"),
    "delete": lambda board: board.update("1", TaskUpdate(status="deleted"), by="ann"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_waits_for_a_task_that_is_being_written_and_then_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    async with open_board(home) as board:
        await fill_board(board, 2)
    path = home / "tasks" / "roof" / "1.json"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    async with open_board(home) as board:
        monkeypatch.setattr(file_task_board, "_MAX_WRITE_SECONDS", 0.0)
        with pytest.raises(TaskUpdateRefused, match="Another program is writing task 1"):
            await CALLS[name](board)
        with pytest.raises(TaskUpdateRefused, match="Another program is writing task 1"):
            await CALLS[name](board)
        assert await board.get("2") is not None
        monkeypatch.setattr(file_task_board, "_MAX_WRITE_SECONDS", 30.0)
        call = asyncio.ensure_future(CALLS[name](board))
        await asyncio.sleep(0)
        path.write_bytes(content)
        async with asyncio.timeout(30):
            assert await call is not None


async def test_a_task_is_blocked_while_the_state_of_its_blocker_is_unknown(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 2)
        await board.update("2", TaskUpdate(add_blocked_by=("1",)), by="a")
    path = home / "tasks" / "roof" / "1.json"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    async with open_board(home) as board:
        assert (await board.claim("2", by="ann")).reason == "blocked"
        assert await board.claim_next(by="ann") is None
        path.write_bytes(content.replace(b'"pending"', b'"completed"'))
        assert (await board.claim("2", by="ann")).success


async def test_partial_files_of_dead_writers_are_removed_and_no_others(home: Path):
    directory = home / "tasks" / "roof"
    directory.mkdir(parents=True)
    names = {
        name: directory / name for name in (".1.json.tmp.0123abcd", ".2.json.tmp.0123abcd", ".1.json.tmp.x")
    }
    for path in names.values():
        path.write_text("{ half")
        os.utime(path, (1, 1))
    os.utime(directory / ".2.json.tmp.0123abcd")
    async with open_board(home) as board:
        await fill_board(board, 1)
    assert [name for name, path in names.items() if path.exists()] == [
        ".2.json.tmp.0123abcd",
        ".1.json.tmp.x",
    ]


@pytest.mark.spec("TSK-02")
async def test_a_task_stored_as_deleted_reads_as_absent(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 2)
        await board.update("2", TaskUpdate(add_blocked_by=("1",)), by="a")
        path = home / "tasks" / "roof" / "1.json"
        path.write_text(path.read_text().replace('"pending"', '"deleted"'))
        assert await board.get("1") is None
        assert (await board.get("2")).blocked_by == ()
        assert (await board.claim("2", by="a")).success


@pytest.mark.spec("TSK-02")
async def test_deleting_a_task_removes_every_reference_and_unblocks_others(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 3)
        await board.update("2", TaskUpdate(add_blocked_by=("1",), add_blocks=("3",)), by="a")
        await board.update("2", TaskUpdate(status="deleted"), by="a")
        one, three = await board.list_tasks()
        assert (one.blocks, three.blocked_by) == ((), ())
    assert read_task_file(home, "1")["blocks"] == read_task_file(home, "3")["blockedBy"] == []


@pytest.mark.spec("USR-25")
async def test_a_stale_attempt_cannot_complete(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 1)
        first = await board.claim("1", by="a")
        assert await board.release("1", attempt=first.attempt)
        second = await board.claim("1", by="b")
        with pytest.raises(TaskUpdateRefused, match="no longer held"):
            await board.update("1", TaskUpdate(status="completed", attempt=first.attempt), by="a")
        assert not await board.release("1", attempt=first.attempt)
        assert (await board.get("1")).owner == "b"
        _, after = await board.update("1", TaskUpdate(status="completed", attempt=second.attempt), by="b")
    assert after.status == "completed"
    assert read_task_file(home, "1")["metadata"] == {ATTEMPT_KEY: second.attempt}


@pytest.mark.spec("TSK-09")
async def test_a_task_held_by_a_closed_board_is_pending_again(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 1)
        await board.claim("1", by="a")
    async with open_board(home) as board:
        task = await board.get("1")
    assert (task.status, task.owner, task.claim_attempt) == ("pending", None, None)


async def test_a_task_held_by_a_foreign_program_is_free_after_the_timeout(home: Path):
    theirs = {"id": "1", "subject": "theirs", "status": "in_progress", "owner": "bob"}
    async with open_board(home) as board:
        await fill_board(board, 1)
        path = home / "tasks" / "roof" / "1.json"
        path.write_text(json.dumps(theirs))
        os.utime(path, (time.time() - FOREIGN_TASK_TIMEOUT + 100,) * 2)
        assert (await board.claim("1", by="a")).reason == "already_claimed"
        os.utime(path, (time.time() - FOREIGN_TASK_TIMEOUT - 100,) * 2)
        assert (await board.claim("1", by="a")).success


@pytest.mark.spec("TSK-09", "USR-15")
async def test_without_the_lock_no_task_is_written(home: Path):
    async with open_board(home, lock_timeout=0.2) as board:
        await fill_board(board, 1)
        before = (home / "tasks" / "roof" / "1.json").read_bytes()
        (home / "tasks" / "roof" / "1.json.lock").mkdir()
        with pytest.raises(LockUnavailable):
            await board.update("1", TaskUpdate(subject="x"), by="a")
        with pytest.raises(LockUnavailable):
            await board.claim("1", by="a")
        assert (home / "tasks" / "roof" / "1.json").read_bytes() == before
        (home / "tasks" / "roof" / ".lock.lock").mkdir()
        with pytest.raises(LockUnavailable):
            await board.create(TaskDraft(subject="x", description=""))
        assert len(await board.list_tasks()) == 1


@pytest.mark.spec("USR-15")
async def test_a_task_that_another_program_locks_is_passed_over_and_no_lock_is_kept(home: Path):
    async with open_board(home, lock_timeout=0.2) as board, open_board(home, lock_timeout=5) as other:
        await fill_board(board, 2)
        (home / "tasks" / "roof" / "1.json.lock").mkdir()
        claim = await board.claim_next(by="a")
        assert claim is not None
        assert claim.task is not None
        assert claim.task.id == "2"
        await other.update("2", TaskUpdate(subject="y"), by="b")
    assert read_task_file(home, "2")["subject"] == "y"


async def test_two_tasks_that_share_a_flock_can_be_changed_together(home: Path):
    async with open_board(home, lock_timeout=2) as board:
        await fill_board(board, LOCK_SLOTS + 1)
        await board.update("1", TaskUpdate(add_blocks=(str(LOCK_SLOTS + 1),)), by="a")
    assert read_task_file(home, str(LOCK_SLOTS + 1))["blockedBy"] == ["1"]


@pytest.mark.spec("USR-15")
async def test_a_change_that_does_not_get_its_lock_holds_no_other_lock(home: Path):
    async with open_board(home, lock_timeout=0.2) as board, open_board(home, lock_timeout=5) as other:
        await fill_board(board, 2)
        (home / "tasks" / "roof" / "2.json.lock").mkdir()
        with pytest.raises(LockUnavailable):
            await board.update("2", TaskUpdate(subject="x"), by="a")
        with pytest.raises(LockUnavailable):
            await board.update("1", TaskUpdate(add_blocks=("2",)), by="a")
        await other.update("1", TaskUpdate(subject="y"), by="b")
        assert read_task_file(home, "1")["subject"] == "y"
        locks = sorted(path.name for path in (home / "tasks" / "roof").glob("*.lock"))
        assert locks == [".lock", "2.json.lock"]


@pytest.mark.spec("HOM-04", "USR-29")
@pytest.mark.parametrize("name", ["../up", "a/b", "", ".", "..", "a\0b", "-x", "x" * 65, "/etc", "a b", "ü"])
def test_a_board_with_a_hostile_name_is_refused(home: Path, name: str):
    with pytest.raises(InvalidName):
        asyncio.run(create_task_on(home, name))
    assert not home.exists()


async def create_task_on(home: Path, name: str) -> None:
    async with open_board(home, name) as board:
        await board.create(TaskDraft(subject="x", description=""))


@pytest.mark.spec("USR-29", "HOM-04")
async def test_a_link_in_place_of_a_board_or_task_is_not_followed(home: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "1.json").write_text('{"id":"1","subject":"secret","status":"pending"}')
    (home / "tasks").mkdir(parents=True)
    (home / "tasks" / "roof").symlink_to(outside)
    async with open_board(home) as board:
        with pytest.raises(StateFileError, match="link"):
            await board.create(TaskDraft(subject="x", description=""))
    (home / "tasks" / "roof").unlink()
    async with open_board(home) as board:
        await fill_board(board, 1)
        (home / "tasks" / "roof" / "7.json").symlink_to(outside / "1.json")
        assert [task.id for task in await board.list_tasks()] == ["1"]
    assert [path.name for path in outside.iterdir()] == ["1.json"]


async def test_listing_an_unchanged_board_reads_no_file(home: Path, monkeypatch: pytest.MonkeyPatch):
    async with open_board(home) as board:
        await fill_board(board, 50)
        first = await board.list_tasks()
        read: list[bytes] = []
        monkeypatch.setattr(task_files, "parse_task", lambda content, task: read.append(content))
        assert await board.list_tasks() is first
        assert read == []


async def test_a_board_without_file_events_sees_every_change(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(task_files, "watch_directory_fd", lambda _: None)
    async with open_board(home) as board, open_board(home) as second:
        await fill_board(board, 3)
        assert len(await second.list_tasks()) == 3
        await board.update("2", TaskUpdate(status="completed"), by="a")
        assert [task.status for task in await second.list_tasks()] == ["pending", "completed", "pending"]
        await board.delete("2")
        assert [task.id for task in await second.list_tasks()] == ["1", "3"]
        waiting = asyncio.ensure_future(second.wait_for_claimable())
        await asyncio.wait_for(waiting, 30)


async def test_a_board_knows_at_once_that_another_process_made_a_task_claimable(home: Path):
    async with open_board(home) as board, open_board(home) as second:
        assert not second.is_task_claimable_now()
        await fill_board(board, 1)
        assert second.is_task_claimable_now()
        await board.claim("1", by="a")
        assert not second.is_task_claimable_now()


@pytest.mark.skipif(sys.platform != "linux", reason="needs inotify")
async def test_locks_beside_the_tasks_are_not_reported_as_changes(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 1)
        watch = task_files.watch_directory_fd(board._files.directory.fd)
        assert watch is not None
        watch.take_changed_names()
        (home / "tasks" / "roof" / "1.json.lock").mkdir()
        (home / "tasks" / "roof" / "1.json.lock").rmdir()
        assert watch.take_changed_names() == set()
        (home / "tasks" / "roof" / "2.json").write_text("{}")
        assert watch.take_changed_names() == {"2.json"}
        watch.close()


@pytest.mark.parametrize("lock", [".lock", "slot-1"])
async def test_a_pipe_in_place_of_a_lock_file_is_refused(home: Path, lock: str):
    async with open_board(home) as board:
        await fill_board(board, 1)
        directory = home / "tasks" / "roof" if lock == ".lock" else home / "shoal" / "tasks" / "roof"
        (directory / lock).unlink(missing_ok=True)
        os.mkfifo(directory / lock)
        with pytest.raises(StateFileError, match="is not a plain file"):
            await board.claim("1", by="a")


@pytest.mark.spec("TSK-06")
async def test_k_unblocked_tasks_wake_at_most_k_waiters(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 3)
        await board.update("1", TaskUpdate(add_blocks=("2", "3")), by="a")
        claim = await board.claim("1", by="a")
        woken: list[int] = []

        async def wait(number: int) -> None:
            await board.wait_for_claimable()
            woken.append(number)

        async with asyncio.TaskGroup() as group:
            waiters = [group.create_task(wait(number)) for number in range(5)]
            while len(board._waiters) < 5:
                await asyncio.sleep(0)
            await board.update("1", TaskUpdate(status="completed", attempt=claim.attempt), by="a")
            for _ in range(20):
                await asyncio.sleep(0)
            assert woken == [0, 1]
            for waiter in waiters:
                waiter.cancel()


@pytest.mark.spec("TSK-06")
async def test_a_completion_by_another_board_object_wakes_a_waiter(home: Path):
    async with open_board(home) as board, open_board(home) as second:
        await fill_board(board, 2)
        await board.update("2", TaskUpdate(add_blocked_by=("1",)), by="a")
        claim = await board.claim("1", by="a")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(second.wait_for_claimable())
            while not len(second._waiters):
                await asyncio.sleep(0)
            since = time.monotonic()
            await board.update("1", TaskUpdate(status="completed", attempt=claim.attempt), by="a")
            await asyncio.wait_for(waiting, 30)
        assert time.monotonic() - since < 5
        assert (await second.claim_next(by="b")).task.id == "2"


async def test_a_waiter_checks_for_dead_holders_from_time_to_time(home: Path):
    clock = FakeClock(start=int(time.time() * 1000))
    async with open_board(home) as holder, open_board(home, clock=clock) as board:
        await fill_board(holder, 1)
        await holder.claim("1", by="a")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(board.wait_for_claimable())
            await clock.wait_for_sleepers()
            holder._lease.release()  # as the kernel does when its process dies
            await clock.advance(30)
            await asyncio.wait_for(waiting, 30)


async def test_an_empty_task_file_is_not_taken_for_a_pipe(home: Path):
    reports: list[str] = []
    async with open_board(home) as board:
        await fill_board(board, 2)
    (home / "tasks" / "roof" / "2.json").write_bytes(b"")
    (home / "tasks" / "roof" / "3.json").mkdir()
    os.mkfifo(home / "tasks" / "roof" / "4.json")
    async with open_board(home, report_problem=reports.append) as board:
        assert [task.id for task in await board.list_tasks()] == ["1"]
    for number, kind in ((3, "a directory"), (4, "a pipe")):
        assert any(f"{number}.json is {kind} and not a task" in report for report in reports)
    assert not any("2.json is a pipe" in report for report in reports)


@pytest.mark.parametrize("size", [(1 << 16) - 200, 1 << 16, 3 << 16])
async def test_a_task_of_any_length_is_read_whole(home: Path, size: int):
    async with open_board(home) as board:
        await board.create(TaskDraft(subject="long", description="x" * size))
    async with open_board(home) as board:
        task = await board.get("1")
        assert len(task.description) == size


async def test_a_board_that_is_removed_and_created_again_is_usable(home: Path):
    async with open_board(home) as board:
        await fill_board(board, 2)
        for path in (home / "tasks" / "roof").iterdir():
            path.unlink()
        (home / "tasks" / "roof").rmdir()
        assert list(await board.list_tasks()) == []
        assert (await board.create(TaskDraft(subject="new", description=""))).id == "1"
        assert len(await board.list_tasks()) == 1
