"""A process hears of what changes from one source of the kernel, of which a user may have few."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest
from board_kit import board_at, filled

from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.names import AgentName, TeamName
from shoal.core.tasks import Change
from shoal.stores.files import board_waiting, inotify
from shoal.stores.files.mailboxes import FileMailboxes
from shoal.stores.files.watch import DirectoryWatch, FileWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of nothing")
ANN, BOB = AgentName("ann"), AgentName("bob")


def sources() -> int:
    places = [each for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sum("inotify" in str(each.readlink()) for each in places)


def mailboxes(home: Path) -> aclosing[FileMailboxes]:
    return aclosing(FileMailboxes(home, TeamName("crew"), clock=SystemClock(), ids=Ids()))


def mail(ident: str) -> Mail:
    return Mail(id=ident, sender=BOB, text="hello", timestamp="2026-02-13T10:11:35.247Z")


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """How often the kernel woke somebody of this process."""
    times: list[None] = []
    readable = inotify._Source._readable

    def noted(source: inotify._Source) -> None:
        times.append(None)
        readable(source)

    monkeypatch.setattr(inotify._Source, "_readable", noted)
    return times


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def test_boards_mailboxes_and_watches_share_one_source_and_let_go_of_it(home: Path):
    before = sources()
    async with AsyncExitStack() as stack:
        boards = [await stack.enter_async_context(board_at(home, name)) for name in ("roof", "wall", "roof")]
        boxes = await stack.enter_async_context(mailboxes(home))
        await boxes.open(ANN)
        waits = [asyncio.ensure_future(each.wait_claimable()) for each in boards]
        waits.append(asyncio.ensure_future(boxes.wait(ANN)))
        watch = DirectoryWatch(home / "tasks" / "roof", lambda: None)
        async with asyncio.timeout(10):
            while not boards[0]._waiters or not boards[1]._waiters or boxes.stirred([ANN]):
                await asyncio.sleep(0)
        assert sources() == before + 1
        for wait in waits:
            wait.cancel()
        watch.close()
    assert sources() == before


async def test_each_of_two_who_watch_the_same_directory_hears_of_what_it_wants(tmp_path: Path):
    written, any_change = (
        inotify.notices_of(tmp_path, lambda flags: flags.CLOSE_WRITE),
        inotify.notices_of(tmp_path, lambda flags: flags.CREATE | flags.DELETE),
    )
    (tmp_path / "file").write_text("x")
    assert written.taken() == {"file"}
    assert any_change.taken() == {"file"}
    (tmp_path / "file").unlink()
    assert written.taken() == set()
    assert any_change.taken() == {"file"}
    any_change.close()
    (tmp_path / "other").write_text("x")
    assert written.taken() == {"other"}
    written.close()


async def test_who_asks_takes_no_news_from_who_is_to_be_told(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    told: list[set[str]] = []
    watch = DirectoryWatch(tmp_path / "one", lambda: None, named=told.append)
    asking = inotify.notices_of(tmp_path / "two", lambda flags: flags.CREATE)
    (tmp_path / "one" / "file").write_text("x")
    assert asking.taken() == set(), "and with that the source is read"
    await until(lambda: told)
    assert told == [{"file"}]
    asking.close()
    watch.close()


async def test_one_who_fails_when_told_keeps_nobody_else_from_hearing(tmp_path: Path):
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: failures.append(str(told["exception"])))
    told: list[set[str]] = []

    def fail() -> None:
        raise RuntimeError("the board cannot be read")

    watches = [DirectoryWatch(tmp_path, fail) for _ in range(3)]
    watches.insert(1, DirectoryWatch(tmp_path, lambda: None, named=told.append))
    (tmp_path / "file").write_text("x")
    await until(lambda: told and len(failures) >= 3)
    for watch in watches:
        watch.close()
    assert set(failures) == {"the board cannot be read"}


async def test_a_directory_that_is_removed_is_told_as_lost(tmp_path: Path):
    (tmp_path / "one").mkdir()
    notices = inotify.notices_of(tmp_path / "one", lambda flags: flags.CREATE)
    (tmp_path / "one").rmdir()
    assert notices.taken() is None
    notices.close()
    assert notices.taken() == set()


async def test_mail_for_others_wakes_nobody_who_waits_for_one_inbox(home: Path, heard: list[None]):
    async with mailboxes(home) as boxes, mailboxes(home) as others:
        for name in (ANN, BOB):
            await boxes.open(name)
        waits = asyncio.ensure_future(boxes.wait(ANN))
        await until(lambda: not boxes.stirred([ANN]))
        heard.clear()
        for number in range(20):
            await others.post(BOB, mail(f"b{number}"))
            await others.mark(BOB, [f"b{number}"])
        for _ in range(20):
            await asyncio.sleep(0)
        assert heard == []
        await others.post(ANN, mail("a1"))
        await asyncio.wait_for(waits, 10)
        assert [each.id for each in await boxes.take(ANN)] == ["a1"]


async def test_mail_comes_through_whoever_writes_it_and_however_often(home: Path):
    async with mailboxes(home) as boxes, mailboxes(home) as others:
        await boxes.open(ANN)
        inbox = home / "teams" / "crew" / "inboxes" / "ann.json"
        for number in range(30):
            waits = asyncio.ensure_future(boxes.wait(ANN))
            await until(lambda: not boxes.stirred([ANN]))
            # Nothing but the kernel's word is to wake it.
            boxes._watch._timer.cancel()
            entry = {"from": "bob", "text": f"hello {number}", "timestamp": "2026-02-13T10:11:35.247Z"}
            if number % 3 == 0:
                await others.post(ANN, mail(f"m{number}"))
            elif number % 3 == 1:
                inbox.write_text(json.dumps([{**entry, "read": False}]))
            else:
                new = inbox.with_suffix(".json.tmp.0a0b0c0d")
                new.write_text(json.dumps([{**entry, "read": False}]))
                new.replace(inbox)
            async with asyncio.timeout(10):
                await waits
            await boxes.mark(ANN, [each.id for each in await boxes.take(ANN)])


async def test_two_who_wait_in_one_process_are_both_told(home: Path):
    async with mailboxes(home) as boxes, mailboxes(home) as others:
        for name in (ANN, BOB):
            await boxes.open(name)
        waits = {name: asyncio.ensure_future(boxes.wait(name)) for name in (ANN, BOB)}
        await until(lambda: not boxes.stirred([ANN, BOB]))
        boxes._watch._timer.cancel()
        for name in (ANN, BOB):
            await others.post(name, mail(f"for-{name}"))
            await asyncio.wait_for(waits[name], 10)


async def test_a_file_that_is_missing_is_watched_once_it_is_there(tmp_path: Path):
    told = asyncio.Event()
    watch = FileWatch(tmp_path / "file", told.set, anyway=lambda: None)
    (tmp_path / "file").write_text("x")
    async with asyncio.timeout(10):
        while not watch.tell_now():
            await told.wait()
            told.clear()
    told.clear()
    watch._timer.cancel()
    (tmp_path / "file").write_text("y")
    async with asyncio.timeout(10):
        await told.wait()
    watch.close()


async def test_a_board_is_heard_of_by_who_waits_while_others_ask_in_the_same_process(home: Path):
    async with board_at(home) as board, board_at(home) as waiting, board_at(home, "wall") as asking:
        (task,) = await filled(board, 1)
        await board.update(task.id, Change(status="completed"), by="ann")
        waits = asyncio.ensure_future(waiting.wait_claimable())
        await until(lambda: len(waiting._waiters))
        await asking.look()
        await board.update(task.id, Change(status="pending"), by="ann")
        await asking.look()
        async with asyncio.timeout(2):
            await waits


async def test_one_who_came_too_late_lets_others_go_first(home: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("_LEAST", "_MOST"):
        monkeypatch.setattr(board_waiting, name, 1e6)
    async with board_at(home) as board, board_at(home) as late:
        await filled(late, 0)
        assert await late.claim_next(by="bob") is None
        waits = asyncio.ensure_future(late.wait_claimable())
        await until(lambda: len(late._waiters))
        (first,) = await filled(board, 1)
        await until(lambda: late._turn is not None)
        assert (await board.claim(first.id, by="ann")).success
        late._take_turn()
        assert len(late._waiters) == 1, "it is claimed, and nobody is woken for it"
        (second,) = await filled(board, 1)
        await until(lambda: late._turn is not None)
        assert len(late._waiters) == 1
        late._take_turn()
        await asyncio.wait_for(waits, 10)
        assert (await late.claim_next(by="bob")).task.id == second.id
        waits = asyncio.ensure_future(late.wait_claimable())
        await until(lambda: len(late._waiters))
        await filled(board, 1)
        await asyncio.wait_for(waits, 10)
        assert late._turn is None, "who came first goes at once"


def test_those_who_come_too_late_spread_over_a_short_time():
    crowd = [board_waiting.Turns() for _ in range(100)]
    assert {each.pause("1") for each in crowd} == {0.0}
    for each in crowd:
        for _ in range(10):
            each.came_too_late()
    for task in ("1", "2"):
        pauses = sorted(each.pause(task) for each in crowd)
        assert len(set(pauses)) == 100
        assert 0.02 < pauses[-1] - pauses[0] < 0.05
    assert [each.pause("1") for each in crowd] != [each.pause("2") for each in crowd]
