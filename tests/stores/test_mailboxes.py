"""Inboxes on disk: size limits, shared writes, wakeups, and behavior without the lock."""

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
from mail_helpers import TIMESTAMP, create_mailboxes, get_inbox_path, make_mail, open_mailboxes, take_all_mail

from shoal.core.errors import InboxNotFound, LockUnavailable, StateFileError, TeamNotFound
from shoal.core.teams.mail import MailMessage, MailPostReceipt
from shoal.stores.files.locks import foreign_lock
from shoal.stores.files.mailboxes import inbox_overflow
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore

POSTER_SCRIPT = Path(__file__).with_name("mail_poster.py")


@pytest.fixture
async def open_store(home: Path) -> AsyncIterator[Callable[..., FileMailboxStore]]:
    """Opens stores of the same mailboxes, each as another process would."""
    stores: list[FileMailboxStore] = []

    def open_another(**options: Any) -> FileMailboxStore:
        stores.append(create_mailboxes(home, **options))
        return stores[-1]

    yield open_another
    for store in stores:
        await store.aclose()


@pytest.fixture
async def mail(open_store: Callable[..., FileMailboxStore]) -> FileMailboxStore:
    boxes = open_store()
    await boxes.open_inbox("ann")
    return boxes


async def take_texts(mail: FileMailboxStore) -> list[str]:
    return [each.text for each in await take_all_mail(mail)]


@pytest.mark.spec("BOX-01")
async def test_an_entry_has_the_published_fields_and_is_flagged_when_read(mail: FileMailboxStore, home: Path):
    await mail.post(
        "ann", MailMessage(id="m1", sender="bob", text="hi", timestamp=TIMESTAMP, summary="s", color="blue")
    )
    entry = {
        "from": "bob",
        "text": "hi",
        "timestamp": TIMESTAMP,
        "read": False,
        "summary": "s",
        "color": "blue",
    }
    assert json.loads(get_inbox_path(home).read_bytes()) == [entry | {"msg_id": "m1"}]
    await mail.mark_read("ann", ["m1"])
    assert json.loads(get_inbox_path(home).read_bytes()) == [entry | {"msg_id": "m1", "read": True}]


@pytest.mark.spec("BOX-01")
async def test_a_foreign_entry_is_flagged_when_read(mail: FileMailboxStore, home: Path):
    theirs = {"from": "bob", "text": "hi", "timestamp": TIMESTAMP, "read": False, "parts": [{"kind": "text"}]}
    get_inbox_path(home).write_text(json.dumps([theirs], indent=2))
    assert await take_texts(mail) == ["hi"]
    (entry,) = json.loads(get_inbox_path(home).read_bytes())
    assert entry.items() >= (theirs | {"read": True}).items()
    assert await mail.take_unread("ann") == ()


@pytest.mark.spec("BOX-01", "BOX-05", "USR-04")
async def test_the_inbox_file_stays_small_and_loses_no_mail(mail: FileMailboxStore, home: Path):
    receipts = [(await mail.post("ann", make_mail(str(n)))).standing for n in range(1_000)]
    assert receipts == ["delivered"] * 64 + ["queued"] * 936
    sizes = []
    got = []
    while batch := await mail.take_unread("ann"):
        got += [each.text for each in batch]
        await mail.mark_read("ann", [each.id for each in batch])
        sizes.append(len(json.loads(get_inbox_path(home).read_bytes())))
    assert got == [str(n) for n in range(1_000)]
    assert max(sizes) <= 64 + 8
    assert [each.text for each in await mail.read_history("ann")] == got
    assert all(each.read for each in await mail.read_history("ann"))


async def test_the_inbox_file_is_bounded_in_bytes(mail: FileMailboxStore, home: Path):
    texts = [str(n) * 100_000 for n in range(10)]
    for text in texts:
        await mail.post("ann", make_mail(text, ident=text[:1]))
    assert get_inbox_path(home).stat().st_size < 400_000
    assert await take_texts(mail) == texts
    assert get_inbox_path(home).stat().st_size < 400_000


async def test_a_message_longer_than_the_bound_is_delivered(mail: FileMailboxStore):
    await mail.post("ann", make_mail("x" * 1_000_000, ident="x"))
    await mail.post("ann", make_mail("y" * 1_000_000, ident="y"))
    assert [len(text) for text in await take_texts(mail)] == [1_000_000, 1_000_000]


async def test_an_unread_message_does_not_delay_others_or_grow_the_file(mail: FileMailboxStore, home: Path):
    await mail.post("ann", make_mail("stays"))
    for n in range(500):
        await mail.post("ann", make_mail(str(n)))
        fresh = [each for each in await mail.take_unread("ann") if each.text != "stays"]
        assert [each.text for each in fresh] == [str(n)]
        await mail.mark_read("ann", [each.id for each in fresh])
    assert len(json.loads(get_inbox_path(home).read_bytes())) <= 10
    assert len(await mail.read_history("ann")) == 501


async def test_concurrent_posts_share_one_write(mail: FileMailboxStore, home: Path):
    async with asyncio.TaskGroup() as group:
        for n in range(50):
            group.create_task(mail.post("ann", make_mail(str(n))))
        await asyncio.sleep(0)
        assert json.loads(get_inbox_path(home).read_bytes()) == []
        await asyncio.sleep(0)
        assert len(json.loads(get_inbox_path(home).read_bytes())) == 50
    assert await take_texts(mail) == [str(n) for n in range(50)]


async def test_a_cancelled_post_does_not_affect_the_others(mail: FileMailboxStore, home: Path):
    lock = get_inbox_path(home).with_name("ann.json.lock")
    lock.mkdir()
    posts = [asyncio.ensure_future(mail.post("ann", make_mail(str(n)))) for n in range(6)]
    await asyncio.sleep(0.02)
    for post in (posts[0], posts[1], posts[4]):
        post.cancel()
        await asyncio.sleep(0)
    lock.rmdir()
    outcomes = await asyncio.wait_for(asyncio.gather(*posts, return_exceptions=True), 30)
    assert [isinstance(each, asyncio.CancelledError) for each in outcomes] == [1, 1, 0, 0, 1, 0]
    assert await take_texts(mail) == ["2", "3", "5"]


async def test_with_posts_cancelled_at_random_the_others_are_written_once(
    open_store: Callable[..., FileMailboxStore], mail: FileMailboxStore
):
    other, chance = open_store(), random.Random(1)
    posted_ids = set()

    async def post(store: FileMailboxStore, text: str):
        posted_ids.add((await store.post("ann", make_mail(text))).id)

    async def run_round(round_):
        stores = (mail, mail, mail, other)
        posts = [asyncio.ensure_future(post(chance.choice(stores), f"{round_}-{n}")) for n in range(12)]
        for _ in range(12):
            await asyncio.sleep(0)
            if chance.random() < 0.5:
                chance.choice(posts).cancel()
        outcomes = await asyncio.wait_for(asyncio.gather(*posts, return_exceptions=True), 20)
        assert [each for each in outcomes if each and not isinstance(each, asyncio.CancelledError)] == []

    for round_ in range(60):
        await run_round(round_)
    got = await take_texts(mail)
    assert len(set(got)) == len(got)
    assert {f"id of {text}" for text in got} >= posted_ids


async def test_a_post_retried_right_after_a_lock_timeout_is_written(
    open_store: Callable[..., FileMailboxStore], home: Path
):
    mail = open_store(lock_timeout=0.1)
    await mail.open_inbox("ann")
    lock = get_inbox_path(home).with_name("ann.json.lock")
    lock.mkdir()

    async def post_with_retry(text: str) -> MailPostReceipt | None:
        try:
            await mail.post("ann", make_mail(text))
        except LockUnavailable:
            if lock.exists():
                lock.rmdir()
            return await mail.post("ann", make_mail(text))

    receipts = await asyncio.gather(*(post_with_retry(str(n)) for n in range(5)))
    assert [receipt.standing for receipt in receipts] == ["delivered"] * 5
    assert sorted(await take_texts(mail)) == ["0", "1", "2", "3", "4"]


@pytest.mark.spec("USR-15")
async def test_without_the_lock_no_mail_is_written_and_every_post_fails(
    open_store: Callable[..., FileMailboxStore], home: Path
):
    mail = open_store(lock_timeout=0.2)
    await mail.open_inbox("ann")
    before = get_inbox_path(home).read_bytes()
    get_inbox_path(home).with_name("ann.json.lock").mkdir()
    posts = [mail.post("ann", make_mail(str(n))) for n in range(3)]
    outcomes = await asyncio.gather(*posts, return_exceptions=True)
    assert [type(each) for each in outcomes] == [LockUnavailable] * 3
    assert get_inbox_path(home).read_bytes() == before
    get_inbox_path(home).with_name("ann.json.lock").rmdir()
    await mail.post("ann", make_mail("after"))
    assert await take_texts(mail) == ["after"]


async def test_marking_nothing_needs_no_lock(open_store: Callable[..., FileMailboxStore], home: Path):
    mail = open_store(lock_timeout=0.1)
    await mail.open_inbox("ann")
    await mail.post("ann", make_mail("kept"))
    get_inbox_path(home).with_name("ann.json.lock").mkdir()
    await mail.mark_read("ann", [])
    with pytest.raises(LockUnavailable):
        await mail.mark_read("ann", ["another"])
    assert [each.text for each in await mail.take_unread("ann")] == ["kept"]


async def test_no_inbox_is_written_after_another_program_took_its_lock(
    open_store: Callable[..., FileMailboxStore], home: Path, monkeypatch: pytest.MonkeyPatch
):
    mail = open_store()
    await mail.open_inbox("ann")
    for number in range(400):
        await mail.post("ann", make_mail(f"{number} " + "x" * 200))
    inbox, write = get_inbox_path(home), os.write
    lock = inbox.with_name("ann.json.lock")
    contents: list[bytes] = []

    def take_lock_and_write(fd: int, content: bytes) -> int:
        if "archive" in str(Path(f"/proc/self/fd/{fd}").readlink()) and not contents:
            lock.rmdir()
            lock.mkdir()
            contents.append(inbox.read_bytes())
            # As if this process had been suspended for as long.
            monkeypatch.setattr(foreign_lock, "REFRESH_INTERVAL", -1.0)
        return write(fd, content)

    monkeypatch.setattr(os, "write", take_lock_and_write)
    with pytest.raises(LockUnavailable):
        await take_all_mail(mail)
    monkeypatch.undo()
    assert [inbox.read_bytes()] == contents


async def test_mail_is_read_while_another_program_holds_the_lock(
    open_store: Callable[..., FileMailboxStore], home: Path
):
    mail = open_store(lock_timeout=0.1)
    await mail.open_inbox("ann")
    await mail.post("ann", make_mail("early"))
    get_inbox_path(home).with_name("ann.json.lock").mkdir()
    for reader in (mail, open_store(lock_timeout=0.1)):
        assert [each.text for each in await reader.take_unread("ann")] == ["early"]
        assert [each.text for each in await reader.read_history("ann")] == ["early"]


async def test_mail_not_marked_read_is_delivered_again(
    open_store: Callable[..., FileMailboxStore], mail: FileMailboxStore
):
    await mail.post("ann", make_mail("once"))
    (first,) = await open_store().take_unread("ann")
    (again,) = await open_store().take_unread("ann")
    assert first == again


async def test_mail_to_a_missing_inbox_or_team_is_refused(mail: FileMailboxStore, home: Path):
    with pytest.raises(InboxNotFound, match="ann"):
        await mail.post("bob", make_mail("x"))
    for name in ("ann.json",):
        (home / "teams" / "t" / "inboxes" / name).unlink()
    (home / "teams" / "t" / "inboxes").rmdir()
    with pytest.raises(TeamNotFound):
        await mail.post("ann", make_mail("x"))
    assert not get_inbox_path(home).exists()


async def test_posts_during_team_removal_all_fail(mail: FileMailboxStore, home: Path):
    shutil.rmtree(home / "shoal" / "teams" / "t" / "staging")
    posts = [mail.post("ann", make_mail(str(n))) for n in range(3)]
    outcomes = await asyncio.wait_for(asyncio.gather(*posts, return_exceptions=True), 10)
    assert [type(each) for each in outcomes] == [StateFileError] * 3


async def test_mail_in_the_overflow_counts_as_queued_when_it_cannot_move_to_the_inbox(
    mail: FileMailboxStore, home: Path
):
    for number in range(66):
        await mail.post("ann", make_mail(str(number)))
    # Another program took all mail from the file; it does not know the overflow.
    entries = json.loads(get_inbox_path(home).read_bytes())
    get_inbox_path(home).write_text(json.dumps([{**entry, "read": True} for entry in entries]))
    in_the_way = home / "shoal" / "teams" / "t" / "staging" / "ann.json"
    in_the_way.unlink()
    in_the_way.mkdir()
    receipt = await mail.post("ann", make_mail("last"))
    assert receipt.standing == "queued"
    in_the_way.rmdir()
    assert await take_texts(mail) == ["64", "65", "last"]


async def test_an_overflow_that_shrinks_keeps_the_mail_that_has_not_moved(
    mail: FileMailboxStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(inbox_overflow, "_SHRINK_THRESHOLD", 1)
    texts = [str(number) for number in range(500)]
    for text in texts:
        await mail.post("ann", make_mail(text))
    taken = []
    while len(taken) < len(texts):
        found = await take_texts(mail)
        assert found, f"only {len(taken)} of {len(texts)}"
        taken += found
    assert taken == texts


async def test_a_link_in_place_of_an_inbox_is_not_followed(
    mail: FileMailboxStore, home: Path, tmp_path: Path
):
    outside = tmp_path / "outside.json"
    outside.write_text("[]")
    get_inbox_path(home).unlink()
    get_inbox_path(home).symlink_to(outside)
    await mail.post("ann", make_mail("x"))
    assert await take_texts(mail) == ["x"]
    assert outside.read_text() == "[]"
    assert not get_inbox_path(home).is_symlink()


async def test_durable_mail_is_delivered_like_other_mail(open_store: Callable[..., FileMailboxStore]):
    mail = open_store(durable=True)
    await mail.open_inbox("ann")
    for n in range(70):
        await mail.post("ann", make_mail(str(n)))
    assert await take_texts(mail) == [str(n) for n in range(70)]


@pytest.mark.spec("BOX-06")
async def test_a_post_of_another_process_wakes_the_waiter_at_once(
    mail: FileMailboxStore, home: Path, monkeypatch: pytest.MonkeyPatch
):
    # Only the watch can wake it then; the benchmark measures how fast.
    monkeypatch.setattr("shoal.stores.files.access.file_watch.SAFETY_INTERVAL", 3600)
    poster = subprocess.Popen(
        [sys.executable, POSTER_SCRIPT, home, "ann"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert poster.stdout.readline() == "ready\n"
    for _ in range(20):
        waiting = asyncio.ensure_future(mail.wait_for_mail("ann"))
        await asyncio.sleep(0.005)
        assert not waiting.done()
        poster.stdin.write("post\n")
        poster.stdin.flush()
        await asyncio.wait_for(waiting, 30)
        await asyncio.to_thread(poster.stdout.readline)
        await take_texts(mail)
    poster.communicate(timeout=30)


@pytest.mark.spec("BOX-06")
async def test_a_post_wakes_a_waiter_of_the_same_process_without_file_events(
    mail: FileMailboxStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shoal.stores.files.mailboxes.file_mailbox_store.DirectoryWatch", _SilentWatch)
    waiting = asyncio.ensure_future(mail.wait_for_mail("ann"))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await mail.post("ann", make_mail("x"))
    await asyncio.wait_for(waiting, 30)


class _SilentWatch:
    def __init__(self, *_, **__): ...

    def close(self): ...


@pytest.mark.slow
@pytest.mark.spec("BOX-05", "USR-04")
@pytest.mark.parametrize("messages", [10_000, pytest.param(100_000, marks=pytest.mark.exhaustive)])
async def test_the_cost_of_a_message_does_not_grow_with_the_number_of_messages(
    mail: FileMailboxStore, messages: int, record_property: Callable[[str, object], None]
):
    """Counts bytes of system calls: they do not depend on the mail already posted."""

    def count_io_bytes():
        fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(fields["wchar"]), int(fields["rchar"])

    async def measure_cost():
        before = count_io_bytes()
        await mail.post("ann", make_mail("y" * 100, ident=os.urandom(8).hex()))
        batch = await mail.take_unread("ann")
        await mail.mark_read("ann", [batch[0].id])
        after = count_io_bytes()
        return after[0] - before[0], after[1] - before[1]

    for n in range(100):
        await mail.post("ann", make_mail(f"{n:0100}"))
    early = await measure_cost()
    for n in range(messages):
        await mail.post("ann", make_mail(f"{n:0100}"))
    late = await measure_cost()
    record_property(
        "measured",
        f"bytes written and read for a message: {early[0]:,} and {early[1]:,}, "
        f"after {messages:,} messages {late[0]:,} and {late[1]:,}",
    )
    assert late[0] <= early[0] * 1.3
    assert late[1] <= early[1] * 1.3 + (1 << 17), "at most one chunk of the overflow"


@pytest.mark.parametrize(
    ("damage", "missing"),
    [
        (lambda lines: lines.replace(b"}\n", b"}", 1), set()),
        (lambda lines: lines.replace(b'"}\n', b"", 1), {"m0"}),
        (lambda lines: b"\0" * 20 + lines, set()),
    ],
    ids=["joined", "torn and joined", "zeros"],
)
async def test_damaged_lines_of_the_archive_are_read_as_far_as_possible_and_reported(
    open_store: Callable[..., FileMailboxStore],
    home: Path,
    damage: Callable[[bytes], bytes],
    missing: set[str],
):
    problems: list[str] = []
    mail = open_store(report_problem=problems.append)
    await mail.open_inbox("ann")
    names = [f"m{number}" for number in range(40)]
    for name in names:
        await mail.post("ann", make_mail("hello", ident=name))
        await mail.mark_read("ann", [name])
    (archive,) = home.glob("shoal/teams/*/archive/ann.jsonl")
    before = archive.read_bytes()
    archive.write_bytes(damage(before))
    assert archive.read_bytes() != before
    history = await open_store(report_problem=problems.append).read_history("ann")
    assert {each.id for each in history} == {*names} - missing
    assert len(problems) == (0 if damage(b"}\n") == b"}" else 1), problems
    assert all(str(archive) in problem for problem in problems)


async def test_a_view_of_a_team_without_mail_creates_nothing(home: Path) -> None:
    home.mkdir(exist_ok=True)
    async with open_mailboxes(home, read_only=True) as view:
        with pytest.raises(InboxNotFound, match="t"):
            await view.read_history("ann")
    assert list(home.iterdir()) == []
