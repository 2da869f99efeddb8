"""Inboxes on disk: their bounds, who shares a write, who is woken, what happens without a lock."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.core.clock import SystemClock
from shoal.core.errors import LockUnavailable, NoSuchInbox, NoSuchTeam, StoreError
from shoal.core.ids import Ids
from shoal.core.mail import Mail, Receipt
from shoal.stores.files.mailboxes import FileMailboxes

AT = "2026-02-13T10:11:35.247Z"
POSTER = Path(__file__).with_name("mail_poster.py")


@pytest.fixture
async def opened(home: Path) -> AsyncIterator[Callable[..., FileMailboxes]]:
    """Opens doors to the same mail, each as another process would have it."""
    doors: list[FileMailboxes] = []

    def another(team: str = "t", **how: Any) -> FileMailboxes:
        doors.append(FileMailboxes(home, team, clock=SystemClock(), ids=Ids(), **how))
        return doors[-1]

    yield another
    for door in doors:
        await door.aclose()


@pytest.fixture
async def mail(opened: Callable[..., FileMailboxes]) -> FileMailboxes:
    boxes = opened()
    await boxes.open("ann")
    return boxes


def inbox(home: Path, owner: str = "ann", team: str = "t") -> Path:
    return home / "teams" / team / "inboxes" / f"{owner}.json"


def message(text: str, ident: str | None = None) -> Mail:
    return Mail(id=ident or f"id of {text}", sender="bob", text=text, timestamp=AT)


async def consumed(mail: FileMailboxes, owner: str = "ann") -> list[str]:
    got = []
    while batch := await mail.take(owner):
        got += [each.text for each in batch]
        await mail.mark(owner, [each.id for each in batch])
    return got


@pytest.mark.spec("BOX-01")
async def test_an_entry_has_the_published_fields_and_is_flagged_when_consumed(
    mail: FileMailboxes, home: Path
):
    await mail.post("ann", Mail(id="m1", sender="bob", text="hi", timestamp=AT, summary="s", color="blue"))
    entry = {"from": "bob", "text": "hi", "timestamp": AT, "read": False, "summary": "s", "color": "blue"}
    assert json.loads(inbox(home).read_bytes()) == [entry | {"msg_id": "m1"}]
    await mail.mark("ann", ["m1"])
    assert json.loads(inbox(home).read_bytes()) == [entry | {"msg_id": "m1", "read": True}]


@pytest.mark.spec("BOX-01")
async def test_what_another_program_wrote_in_its_own_way_is_flagged_when_consumed(
    mail: FileMailboxes, home: Path
):
    theirs = {"from": "bob", "text": "hi", "timestamp": AT, "read": False, "parts": [{"kind": "text"}]}
    inbox(home).write_text(json.dumps([theirs], indent=2))
    assert await consumed(mail) == ["hi"]
    (entry,) = json.loads(inbox(home).read_bytes())
    assert entry.items() >= (theirs | {"read": True}).items()
    assert await mail.take("ann") == ()


@pytest.mark.spec("BOX-01", "BOX-05", "USR-04")
async def test_the_file_stays_small_whatever_the_history_and_nothing_is_lost(mail: FileMailboxes, home: Path):
    standings = [(await mail.post("ann", message(str(n)))).standing for n in range(1_000)]
    assert standings == ["delivered"] * 64 + ["queued"] * 936
    sizes = []
    got = []
    while batch := await mail.take("ann"):
        got += [each.text for each in batch]
        await mail.mark("ann", [each.id for each in batch])
        sizes.append(len(json.loads(inbox(home).read_bytes())))
    assert got == [str(n) for n in range(1_000)]
    assert max(sizes) <= 64 + 8
    assert [each.text for each in await mail.history("ann")] == got
    assert all(each.read for each in await mail.history("ann"))


async def test_long_messages_fill_the_file_sooner(mail: FileMailboxes, home: Path):
    texts = [str(n) * 100_000 for n in range(10)]
    for text in texts:
        await mail.post("ann", message(text, ident=text[:1]))
    assert inbox(home).stat().st_size < 400_000
    assert await consumed(mail) == texts
    assert inbox(home).stat().st_size < 400_000


async def test_one_message_longer_than_any_bound_is_delivered(mail: FileMailboxes):
    await mail.post("ann", message("x" * 1_000_000, ident="x"))
    await mail.post("ann", message("y" * 1_000_000, ident="y"))
    assert [len(text) for text in await consumed(mail)] == [1_000_000, 1_000_000]


async def test_one_that_stays_unread_does_not_hold_up_or_swell_the_rest(mail: FileMailboxes, home: Path):
    await mail.post("ann", message("stays"))
    for n in range(500):
        await mail.post("ann", message(str(n)))
        fresh = [each for each in await mail.take("ann") if each.text != "stays"]
        assert [each.text for each in fresh] == [str(n)]
        await mail.mark("ann", [each.id for each in fresh])
    assert len(json.loads(inbox(home).read_bytes())) <= 10
    assert len(await mail.history("ann")) == 501


async def test_posts_that_wait_at_the_same_time_share_one_write(mail: FileMailboxes, home: Path):
    async with asyncio.TaskGroup() as group:
        for n in range(50):
            group.create_task(mail.post("ann", message(str(n))))
        await asyncio.sleep(0)
        assert json.loads(inbox(home).read_bytes()) == []
        await asyncio.sleep(0)
        assert len(json.loads(inbox(home).read_bytes())) == 50
    assert await consumed(mail) == [str(n) for n in range(50)]


async def test_a_post_given_up_harms_no_other(mail: FileMailboxes, home: Path):
    lock = inbox(home).with_name("ann.json.lock")
    lock.mkdir()
    posts = [asyncio.ensure_future(mail.post("ann", message(str(n)))) for n in range(6)]
    await asyncio.sleep(0.02)
    for post in (posts[0], posts[1], posts[4]):
        post.cancel()
        await asyncio.sleep(0)
    lock.rmdir()
    outcomes = await asyncio.wait_for(asyncio.gather(*posts, return_exceptions=True), 30)
    assert [isinstance(each, asyncio.CancelledError) for each in outcomes] == [1, 1, 0, 0, 1, 0]
    assert await consumed(mail) == ["2", "3", "5"]


async def test_of_many_posts_given_up_at_random_moments_the_others_are_all_written_once(
    opened: Callable[..., FileMailboxes], mail: FileMailboxes
):
    other, chance = opened(), random.Random(1)
    written = set()

    async def post(door: FileMailboxes, text: str):
        written.add((await door.post("ann", message(text))).id)

    async def some(round_):
        doors = (mail, mail, mail, other)
        posts = [asyncio.ensure_future(post(chance.choice(doors), f"{round_}-{n}")) for n in range(12)]
        for _ in range(12):
            await asyncio.sleep(0)
            if chance.random() < 0.5:
                chance.choice(posts).cancel()
        outcomes = await asyncio.wait_for(asyncio.gather(*posts, return_exceptions=True), 20)
        assert [each for each in outcomes if each and not isinstance(each, asyncio.CancelledError)] == []

    for round_ in range(60):
        await some(round_)
    got = await consumed(mail)
    assert len(set(got)) == len(got)
    assert {f"id of {text}" for text in got} >= written


async def test_a_post_tried_again_at_once_after_a_refusal_is_written(
    opened: Callable[..., FileMailboxes], home: Path
):
    mail = opened(patience=0.1)
    await mail.open("ann")
    lock = inbox(home).with_name("ann.json.lock")
    lock.mkdir()

    async def stubborn(text: str) -> Receipt | None:
        try:
            await mail.post("ann", message(text))
        except LockUnavailable:
            if lock.exists():
                lock.rmdir()
            return await mail.post("ann", message(text))

    receipts = await asyncio.gather(*(stubborn(str(n)) for n in range(5)))
    assert [receipt.standing for receipt in receipts] == ["delivered"] * 5
    assert sorted(await consumed(mail)) == ["0", "1", "2", "3", "4"]


@pytest.mark.spec("USR-15")
async def test_without_the_lock_nothing_is_written_and_all_who_waited_hear_it(
    opened: Callable[..., FileMailboxes], home: Path
):
    mail = opened(patience=0.2)
    await mail.open("ann")
    before = inbox(home).read_bytes()
    inbox(home).with_name("ann.json.lock").mkdir()
    posts = [mail.post("ann", message(str(n))) for n in range(3)]
    outcomes = await asyncio.gather(*posts, return_exceptions=True)
    assert [type(each) for each in outcomes] == [LockUnavailable] * 3
    assert inbox(home).read_bytes() == before
    inbox(home).with_name("ann.json.lock").rmdir()
    await mail.post("ann", message("after"))
    assert await consumed(mail) == ["after"]


async def test_a_reader_that_died_before_marking_gets_the_same_message_again(
    opened: Callable[..., FileMailboxes], mail: FileMailboxes
):
    await mail.post("ann", message("once"))
    (first,) = await opened().take("ann")
    (again,) = await opened().take("ann")
    assert first == again


async def test_without_an_inbox_or_a_team_mail_is_refused(mail: FileMailboxes, home: Path):
    with pytest.raises(NoSuchInbox, match="ann"):
        await mail.post("bob", message("x"))
    for name in ("ann.json",):
        (home / "teams" / "t" / "inboxes" / name).unlink()
    (home / "teams" / "t" / "inboxes").rmdir()
    with pytest.raises(NoSuchTeam):
        await mail.post("ann", message("x"))
    assert not inbox(home).exists()


async def test_all_who_post_while_the_team_is_being_removed_hear_that_nothing_was_written(
    mail: FileMailboxes, home: Path
):
    shutil.rmtree(home / "shoal" / "teams" / "t" / "staging")
    posts = [mail.post("ann", message(str(n))) for n in range(3)]
    outcomes = await asyncio.wait_for(asyncio.gather(*posts, return_exceptions=True), 10)
    assert [type(each) for each in outcomes] == [StoreError] * 3


async def test_what_is_kept_behind_the_inbox_is_not_told_as_refused_where_it_cannot_move_up(
    mail: FileMailboxes, home: Path
):
    for number in range(66):
        await mail.post("ann", message(str(number)))
    # Another program has taken all that was in the file, and knows nothing of what waits behind it.
    entries = json.loads(inbox(home).read_bytes())
    inbox(home).write_text(json.dumps([{**entry, "read": True} for entry in entries]))
    in_the_way = home / "shoal" / "teams" / "t" / "staging" / "ann.json"
    in_the_way.unlink()
    in_the_way.mkdir()
    receipt = await mail.post("ann", message("last"))
    assert receipt.standing == "queued"
    in_the_way.rmdir()
    assert await consumed(mail) == ["64", "65", "last"]


async def test_a_link_in_the_place_of_an_inbox_leads_nowhere(mail: FileMailboxes, home: Path, tmp_path: Path):
    outside = tmp_path / "outside.json"
    outside.write_text("[]")
    inbox(home).unlink()
    inbox(home).symlink_to(outside)
    with pytest.raises(StoreError, match="link"):
        await mail.post("ann", message("x"))
    assert outside.read_text() == "[]"


async def test_durable_mail_is_the_same_mail(opened: Callable[..., FileMailboxes]):
    mail = opened(durable=True)
    await mail.open("ann")
    for n in range(70):
        await mail.post("ann", message(str(n)))
    assert await consumed(mail) == [str(n) for n in range(70)]


@pytest.mark.spec("BOX-06")
async def test_a_post_of_another_process_wakes_who_waits_at_once(
    mail: FileMailboxes, home: Path, monkeypatch: pytest.MonkeyPatch
):
    # Nothing but the watch can wake it then; how fast that is, the bench tells.
    monkeypatch.setattr("shoal.stores.files.watch.SAFETY", 3600)
    poster = subprocess.Popen(
        [sys.executable, POSTER, home, "ann"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert poster.stdout.readline() == "ready\n"
    for _ in range(20):
        waiting = asyncio.ensure_future(mail.wait("ann"))
        await asyncio.sleep(0.005)
        assert not waiting.done()
        poster.stdin.write("post\n")
        poster.stdin.flush()
        await asyncio.wait_for(waiting, 30)
        await asyncio.to_thread(poster.stdout.readline)
        await consumed(mail)
    poster.communicate(timeout=30)


@pytest.mark.spec("BOX-06")
async def test_a_post_wakes_who_waits_in_this_process_without_the_file_system(
    mail: FileMailboxes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shoal.stores.files.mailboxes.DirectoryWatch", _Deaf)
    waiting = asyncio.ensure_future(mail.wait("ann"))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await mail.post("ann", message("x"))
    await asyncio.wait_for(waiting, 30)


class _Deaf:
    def __init__(self, *_, **__): ...

    def close(self): ...


@pytest.mark.spec("BOX-05", "USR-04")
async def test_the_ten_thousandth_message_costs_what_the_tenth_did(mail: FileMailboxes):
    """In system calls' bytes: what is written for a post does not depend on what is behind it."""

    def written():
        fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(fields["wchar"]), int(fields["rchar"])

    async def cost():
        before = written()
        await mail.post("ann", message("y" * 100, ident=os.urandom(8).hex()))
        batch = await mail.take("ann")
        await mail.mark("ann", [batch[0].id])
        after = written()
        return after[0] - before[0], after[1] - before[1]

    for n in range(100):
        await mail.post("ann", message(f"{n:0100}"))
    early = await cost()
    for n in range(10_000):
        await mail.post("ann", message(f"{n:0100}"))
    late = await cost()
    assert late[0] <= early[0] * 1.3
    assert late[1] <= early[1] * 1.3 + (1 << 17), "one chunk of what waits, whatever waits"
