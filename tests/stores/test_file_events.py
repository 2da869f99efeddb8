"""A process gets all file events through one inotify descriptor; the number per user is limited."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from board_helpers import fill_board, open_board
from mail_helpers import TIMESTAMP, get_inbox_path, make_mail, open_mailboxes

from shoal.core.names import AgentName
from shoal.core.teams.tasks import TaskUpdate
from shoal.stores import board_waiters
from shoal.stores.files.access import inotify
from shoal.stores.files.access.file_watch import DirectoryWatch, FileWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs inotify")
ANN, BOB = AgentName("ann"), AgentName("bob")


def count_inotify_descriptors() -> int:
    places = [each for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sum("inotify" in str(each.readlink()) for each in places)


@pytest.fixture
def wakeups(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Wakeups of this process by inotify, one item each."""
    times: list[None] = []
    readable = inotify._InotifyReader._on_readable

    def record_wakeup(source: inotify._InotifyReader) -> None:
        times.append(None)
        readable(source)

    monkeypatch.setattr(inotify._InotifyReader, "_on_readable", record_wakeup)
    return times


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def test_boards_mailboxes_and_watches_share_one_inotify_descriptor_and_close_it(home: Path):
    before = count_inotify_descriptors()
    async with AsyncExitStack() as stack:
        boards = [
            await stack.enter_async_context(open_board(home, name)) for name in ("roof", "wall", "roof")
        ]
        boxes = await stack.enter_async_context(open_mailboxes(home))
        await boxes.open_inbox(ANN)
        waits = [asyncio.ensure_future(each.wait_for_claimable()) for each in boards]
        waits.append(asyncio.ensure_future(boxes.wait_for_mail(ANN)))
        watch = DirectoryWatch(home / "tasks" / "roof", lambda: None)
        async with asyncio.timeout(10):
            while not boards[0]._waiters or not boards[1]._waiters or boxes.find_changed_inboxes([ANN]):
                await asyncio.sleep(0)
        assert count_inotify_descriptors() == before + 1
        for wait in waits:
            wait.cancel()
        watch.close()
    assert count_inotify_descriptors() == before


async def test_two_watches_of_one_directory_each_get_the_events_of_their_mask(tmp_path: Path):
    written, any_change = (
        inotify.watch_directory_with_inotify(tmp_path, lambda flags: flags.CLOSE_WRITE),
        inotify.watch_directory_with_inotify(tmp_path, lambda flags: flags.CREATE | flags.DELETE),
    )
    (tmp_path / "file").write_text("x")
    assert written.take_changed_names() == {"file"}
    assert any_change.take_changed_names() == {"file"}
    (tmp_path / "file").unlink()
    assert written.take_changed_names() == set()
    assert any_change.take_changed_names() == {"file"}
    any_change.close()
    (tmp_path / "other").write_text("x")
    assert written.take_changed_names() == {"other"}
    written.close()


async def test_polling_one_watch_does_not_swallow_events_of_another(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    names: list[set[str]] = []
    watch = DirectoryWatch(tmp_path / "one", lambda: None, on_names=names.append)
    asking = inotify.watch_directory_with_inotify(tmp_path / "two", lambda flags: flags.CREATE)
    (tmp_path / "one" / "file").write_text("x")
    assert asking.take_changed_names() == set(), "this reads the shared descriptor"
    await wait_until(lambda: names)
    assert names == [{"file"}]
    asking.close()
    watch.close()


async def test_events_in_a_pause_are_dropped_and_later_ones_are_delivered(tmp_path: Path):
    names: list[set[str]] = []
    watch = DirectoryWatch(tmp_path, lambda: None, on_names=names.append)
    pause = asyncio.create_task(watch.ignore_events_for(0.01))
    await asyncio.sleep(0)
    (tmp_path / "early").write_text("x")
    await pause
    (tmp_path / "late").write_text("x")
    await wait_until(lambda: names)
    assert names == [{"late"}]
    closing = asyncio.create_task(watch.ignore_events_for(0.01))
    await asyncio.sleep(0)
    watch.close()
    await closing
    assert not watch.deliver_pending_events()


async def test_a_callback_does_not_run_for_events_that_were_taken_before(tmp_path: Path):
    calls: list[str] = []
    taken, other = (
        inotify.watch_directory_with_inotify(tmp_path, lambda flags: flags.CREATE) for _ in range(2)
    )
    (tmp_path / "early").write_text("x")
    assert other.take_changed_names() == {"early"}
    taken.set_callback(lambda: calls.append("taken"))
    other.set_callback(lambda: calls.append("other"))
    # The callback for the early file is scheduled, and its names are taken first.
    assert taken.take_changed_names() == {"early"}
    (tmp_path / "late").write_text("x")
    await wait_until(lambda: len(calls) >= 2)
    for watch in (taken, other):
        watch.close()
    assert sorted(calls) == ["other", "taken"]


async def test_a_failing_callback_does_not_stop_the_other_watches(tmp_path: Path):
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, names: failures.append(str(names["exception"]))
    )
    names: list[set[str]] = []

    def fail() -> None:
        raise RuntimeError("the board cannot be read")

    watches = [DirectoryWatch(tmp_path, fail) for _ in range(3)]
    watches.insert(1, DirectoryWatch(tmp_path, lambda: None, on_names=names.append))
    (tmp_path / "file").write_text("x")
    await wait_until(lambda: names and len(failures) >= 3)
    for watch in watches:
        watch.close()
    assert set(failures) == {"the board cannot be read"}


async def test_a_removed_directory_reports_a_lost_watch(tmp_path: Path):
    (tmp_path / "one").mkdir()
    notices = inotify.watch_directory_with_inotify(tmp_path / "one", lambda flags: flags.CREATE)
    (tmp_path / "one").rmdir()
    assert notices.take_changed_names() is None
    notices.close()
    assert notices.take_changed_names() == set()


async def test_mail_for_another_member_does_not_wake_a_waiter(home: Path, wakeups: list[None]):
    async with open_mailboxes(home) as boxes, open_mailboxes(home) as others:
        for name in (ANN, BOB):
            await boxes.open_inbox(name)
        waits = asyncio.ensure_future(boxes.wait_for_mail(ANN))
        await wait_until(lambda: not boxes.find_changed_inboxes([ANN]))
        wakeups.clear()
        for number in range(20):
            await others.post(BOB, make_mail("hello", ident=f"b{number}"))
            await others.mark_read(BOB, [f"b{number}"])
        for _ in range(20):
            await asyncio.sleep(0)
        assert wakeups == []
        await others.post(ANN, make_mail("hello", ident="a1"))
        await asyncio.wait_for(waits, 10)
        assert [each.id for each in await boxes.take_unread(ANN)] == ["a1"]


async def test_every_way_of_writing_mail_wakes_the_waiter(home: Path):
    async with open_mailboxes(home) as boxes, open_mailboxes(home) as others:
        await boxes.open_inbox(ANN)
        inbox = get_inbox_path(home)
        for number in range(30):
            waits = asyncio.ensure_future(boxes.wait_for_mail(ANN))
            await wait_until(lambda: not boxes.find_changed_inboxes([ANN]))
            # Only a file event may wake it.
            boxes._watch._timer.cancel()
            entry = {"from": "bob", "text": f"hello {number}", "timestamp": TIMESTAMP}
            if number % 3 == 0:
                await others.post(ANN, make_mail("hello", ident=f"m{number}"))
            elif number % 3 == 1:
                inbox.write_text(json.dumps([{**entry, "read": False}]))
            else:
                new = inbox.with_suffix(".json.tmp.0a0b0c0d")
                new.write_text(json.dumps([{**entry, "read": False}]))
                new.replace(inbox)
            async with asyncio.timeout(10):
                await waits
            await boxes.mark_read(ANN, [each.id for each in await boxes.take_unread(ANN)])


async def test_two_waiters_in_one_process_are_both_woken(home: Path):
    async with open_mailboxes(home) as boxes, open_mailboxes(home) as others:
        for name in (ANN, BOB):
            await boxes.open_inbox(name)
        waits = {name: asyncio.ensure_future(boxes.wait_for_mail(name)) for name in (ANN, BOB)}
        await wait_until(lambda: not boxes.find_changed_inboxes([ANN, BOB]))
        boxes._watch._timer.cancel()
        for name in (ANN, BOB):
            await others.post(name, make_mail("hello", ident=f"for-{name}"))
            await asyncio.wait_for(waits[name], 10)


async def test_a_missing_file_is_watched_once_it_exists(tmp_path: Path):
    names = asyncio.Event()
    watch = FileWatch(tmp_path / "file", names.set, on_poll=lambda: None)
    (tmp_path / "file").write_text("x")
    async with asyncio.timeout(10):
        while not watch.deliver_pending_events():
            await names.wait()
            names.clear()
    names.clear()
    watch._timer.cancel()
    (tmp_path / "file").write_text("y")
    async with asyncio.timeout(10):
        await names.wait()
    watch.close()


async def test_a_waiter_is_woken_while_another_board_of_the_process_is_polled(home: Path):
    async with open_board(home) as board, open_board(home) as waiting, open_board(home, "wall") as asking:
        (task,) = await fill_board(board, 1)
        await board.update(task.id, TaskUpdate(status="completed"), by="ann")
        waits = asyncio.ensure_future(waiting.wait_for_claimable())
        await wait_until(lambda: len(waiting._waiters))
        await asking.get_live_task_mapping()
        await board.update(task.id, TaskUpdate(status="pending"), by="ann")
        await asking.get_live_task_mapping()
        async with asyncio.timeout(2):
            await waits


async def test_a_process_that_lost_a_claim_backs_off(home: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("_MIN_SPREAD", "_MAX_SPREAD"):
        monkeypatch.setattr(board_waiters, name, 1e6)
    async with open_board(home) as board, open_board(home) as slow:
        await fill_board(slow, 0)
        assert await slow.claim_next(by="bob") is None
        waits = asyncio.ensure_future(slow.wait_for_claimable())
        await wait_until(lambda: len(slow._waiters))
        (first,) = await fill_board(board, 1)
        await wait_until(lambda: slow._backoff_timer is not None)
        assert (await board.claim(first.id, by="ann")).success
        slow._on_claim_backoff_elapsed()
        assert len(slow._waiters) == 1, "it is claimed, so no waiter is woken"
        (second,) = await fill_board(board, 1)
        await wait_until(lambda: slow._backoff_timer is not None)
        assert len(slow._waiters) == 1
        slow._on_claim_backoff_elapsed()
        await asyncio.wait_for(waits, 10)
        assert (await slow.claim_next(by="bob")).task.id == second.id
        waits = asyncio.ensure_future(slow.wait_for_claimable())
        await wait_until(lambda: len(slow._waiters))
        await fill_board(board, 1)
        await asyncio.wait_for(waits, 10)
        assert slow._backoff_timer is None, "a process that won a claim does not back off"


def test_the_backoff_delays_are_spread_over_a_short_time():
    backoffs = [board_waiters.TaskClaimBackoff() for _ in range(100)]
    assert {each.get_delay("1") for each in backoffs} == {0.0}
    for each in backoffs:
        for _ in range(10):
            each.record_failure()
    for task in ("1", "2"):
        delays = sorted(each.get_delay(task) for each in backoffs)
        assert len(set(delays)) == 100
        assert 0.02 < delays[-1] - delays[0] < 0.05
    assert [each.get_delay("1") for each in backoffs] != [each.get_delay("2") for each in backoffs]


@pytest.mark.parametrize("removals", [True, False])
async def test_removed_and_moved_files_count_only_if_they_are_asked_for(
    tmp_path: Path, removals: bool
) -> None:
    watched, elsewhere = tmp_path / "watched", tmp_path / "elsewhere"
    for directory in (watched, elsewhere):
        directory.mkdir()
    for name in ("removed", "moved-away"):
        (watched / name).write_text("x")
    (elsewhere / "moved-in").write_text("x")
    names: set[str] = set()
    watch = DirectoryWatch(watched, lambda: None, on_names=names.update, removals=removals)
    (watched / "removed").unlink()
    (watched / "moved-away").rename(elsewhere / "moved-away")
    (elsewhere / "moved-in").rename(watched / "moved-in")
    assert watch.deliver_pending_events()
    assert names == {"moved-in"} | ({"removed", "moved-away"} if removals else set())
    watch.close()


@pytest.mark.parametrize("skips_locks", [True, False])
async def test_lock_files_count_unless_they_are_skipped(tmp_path: Path, skips_locks: bool) -> None:
    names: set[str] = set()
    watch = DirectoryWatch(tmp_path, lambda: None, on_names=names.update, skips_locks=skips_locks)
    for name in ("1.lock", "1.json"):
        (tmp_path / name).write_text("x")
    watch.deliver_pending_events()
    assert names == {"1.json"} | (set() if skips_locks else {"1.lock"})
    watch.close()


async def test_waiters_are_woken_after_the_directory_of_their_board_was_replaced(home: Path):
    async with open_board(home) as board, open_board(home) as others:
        waits = [asyncio.ensure_future(board.wait_for_claimable())]
        await wait_until(lambda: len(board._waiters) == 1)
        shutil.rmtree(home / "tasks" / "roof")
        waits.append(asyncio.ensure_future(board.wait_for_claimable()))
        await wait_until(lambda: len(board._waiters) == 2)
        await fill_board(others, 2)
        async with asyncio.timeout(4):  # the board is read every 5 seconds anyway
            await asyncio.gather(*waits)
