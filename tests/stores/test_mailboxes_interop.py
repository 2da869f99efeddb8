"""Other programs on the same inboxes at the same time: they know the files and the lock, nothing of Shoal."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.stores.files.mailboxes import FileMailboxes

FOREIGN = Path(__file__).with_name("foreign_program.py")
AT = "2026-02-13T10:11:35.247Z"


@pytest.fixture
async def mail(home: Path) -> AsyncIterator[FileMailboxes]:
    boxes = FileMailboxes(home, "t", clock=SystemClock(), ids=Ids(), report=reports.append)
    reports.clear()
    yield boxes
    await boxes.aclose()


reports: list[str] = []


def inbox(home: Path, owner: str = "ann") -> Path:
    return home / "teams" / "t" / "inboxes" / f"{owner}.json"


def foreign(home: Path, manner: str, count: int, owner: str = "ann") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, FOREIGN, inbox(home, owner), manner, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def message(text: str) -> Mail:
    return Mail(id=f"id of {text}", sender="bob", text=text, timestamp=AT)


async def finished(process: subprocess.Popen[str]) -> str:
    out, errors = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 0, errors
    return out


@pytest.mark.spec("BOX-04", "HOM-05")
async def test_entries_of_other_programs_and_ours_arrive_once_and_in_the_order_of_their_writers(
    mail: FileMailboxes, home: Path
):
    each = 60
    await mail.open("ann")
    writers = [foreign(home, "early", each), foreign(home, "late", each)]
    got: list[tuple[str, str]] = []

    async def ours():
        for number in range(each):
            await mail.post("ann", message(f"ours {number}"))

    async def read():
        while len(got) < 3 * each:
            await mail.wait("ann")
            batch = await mail.take("ann")
            got.extend((each.id, each.text) for each in batch)
            await mail.mark("ann", [each.id for each in batch])

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(ours())
        group.create_task(read())
        for writer in writers:
            group.create_task(finished(writer))
    texts = [text for _, text in got]
    assert len(set(texts)) == len(texts) == 3 * each
    assert len({ident for ident, _ in got}) == 3 * each
    for manner in ("early", "late", "ours"):
        assert [t for t in texts if t.startswith(manner)] == [f"{manner} {n}" for n in range(each)]
    assert sorted(m.text for m in await mail.history("ann")) == sorted(texts)
    assert reports == []
    assert not list(home.rglob("*.corrupt-*"))


async def test_an_owner_run_by_another_program_gets_everything_through_its_file(
    mail: FileMailboxes, home: Path
):
    await mail.open("ann", foreign=True)
    reader = foreign(home, "reader", 200)
    for number in range(200):
        assert (await mail.post("ann", message(str(number)))).standing == "delivered"
    assert json.loads(await finished(reader)) == [str(number) for number in range(200)]


async def test_an_owner_that_becomes_foreign_gets_what_waited_behind_its_file(
    mail: FileMailboxes, home: Path
):
    await mail.open("ann")
    for number in range(100):
        await mail.post("ann", message(str(number)))
    assert len(json.loads(inbox(home).read_bytes())) == 64
    await mail.open("ann", foreign=True)
    entries = json.loads(inbox(home).read_bytes())
    assert [entry["text"] for entry in entries] == [str(number) for number in range(100)]


@pytest.mark.spec("HOM-05")
async def test_fields_we_do_not_know_survive_our_rewrite(mail: FileMailboxes, home: Path):
    await mail.open("ann")
    entry = {
        "from": "eve",
        "text": "hi",
        "timestamp": AT,
        "read": False,
        "msg_id": "e1",
        "later": {"a": [1, None]},
    }
    inbox(home).write_text(json.dumps([entry]))
    await mail.post("ann", message("ours"))
    assert json.loads(inbox(home).read_bytes())[0] == entry
    await mail.mark("ann", ["e1"])
    assert json.loads(inbox(home).read_bytes())[0] == entry | {"read": True}


@pytest.mark.parametrize("name", [b"\xff", b"caf\xe9"])
async def test_a_message_with_a_field_whose_name_is_not_utf8_is_not_lost(
    mail: FileMailboxes, home: Path, name: bytes
):
    await mail.open("ann")
    inbox(home).write_bytes(b'[{"from":"bob","text":"hi","timestamp":"%b","%b":7}]' % (AT.encode(), name))
    (taken,) = await mail.take("ann")
    assert taken.text == "hi"
    await mail.mark("ann", [taken.id])
    assert [kept.text for kept in await mail.history("ann")] == ["hi"]
    (entry,) = json.loads(inbox(home).read_bytes())
    assert entry[name.decode(errors="surrogateescape")] == 7


async def test_the_same_thing_said_again_by_a_program_without_ids_is_another_message(
    mail: FileMailboxes, home: Path
):
    entry = {"from": "eve", "text": "ping", "timestamp": AT, "read": False}
    await mail.open("ann")
    got = set()
    for _ in range(20):
        entries = json.loads(inbox(home).read_bytes())
        inbox(home).write_text(json.dumps([*entries, entry, entry]))
        batch = await mail.take("ann")
        assert len(batch) == 2
        assert {m.id for m in batch} == {m.id for m in await mail.take("ann")}, "the id stays"
        got |= {m.id for m in batch}
        await mail.mark("ann", [m.id for m in batch])
    assert len(got) == 40
    assert len(await mail.history("ann")) == 40


async def test_an_inbox_emptied_by_somebody_else_lets_the_next_ones_move_up(mail: FileMailboxes, home: Path):
    await mail.open("ann")
    for number in range(80):
        await mail.post("ann", message(str(number)))
    inbox(home).write_text("[]")
    await asyncio.wait_for(mail.wait("ann"), 30)
    assert [m.text for m in await mail.take("ann")] == [str(number) for number in range(64, 80)]


async def test_half_a_file_is_looked_at_again_and_not_set_aside(mail: FileMailboxes, home: Path):
    await mail.open("ann")
    await mail.post("ann", message("one"))
    whole = inbox(home).read_bytes()
    lock = inbox(home).with_name("ann.json.lock")
    lock.mkdir()
    inbox(home).write_bytes(whole[: len(whole) // 2])
    taking = asyncio.ensure_future(mail.take("ann"))
    done, _ = await asyncio.wait([taking], timeout=0.15)
    assert not done, "its writer holds the lock: nobody can tell yet"
    inbox(home).write_bytes(whole)
    lock.rmdir()
    assert [m.text for m in await taking] == ["one"]
    assert reports == []


@pytest.mark.parametrize(
    ("broken", "rest"),
    [
        (lambda whole: whole[:-20], ["0", "1"]),
        (lambda _: b"", []),
        (lambda _: b'{"not": "an array"}', []),
        (lambda whole: whole[:-3] + b',{"from": 5}]', ["0", "1", "2"]),
        (lambda whole: b"\x00\xff" + whole, ["0", "1", "2"]),
        (lambda whole: whole + b"]]] garbage", ["0", "1", "2"]),
    ],
    ids=["cut", "empty", "no array", "a wrong entry", "not UTF-8", "too much"],
)
async def test_a_broken_file_is_set_aside_and_its_whole_entries_are_delivered(
    mail: FileMailboxes, home: Path, broken: Callable[[bytes], bytes], rest: list[str]
):
    await mail.open("ann")
    for number in range(3):
        await mail.post("ann", message(str(number)))
    content = broken(inbox(home).read_bytes())
    inbox(home).write_bytes(content)
    assert [m.text for m in await mail.take("ann")] == rest
    (aside,) = inbox(home).parent.glob("ann.json.corrupt-*")
    assert aside.read_bytes() == content
    assert len(reports) == 1
    assert str(aside) in reports[0]
    await mail.post("ann", message("after"))
    assert [m.text for m in await mail.take("ann")] == [*rest, "after"]
    assert len(json.loads(inbox(home).read_bytes())) == len(rest) + 1


async def test_a_byte_order_mark_and_half_a_surrogate_pair_are_read(mail: FileMailboxes, home: Path):
    await mail.open("ann")
    entry = {"from": "eve", "text": "half \ud83d", "timestamp": AT, "read": False, "msg_id": "x"}
    inbox(home).write_bytes(b"\xef\xbb\xbf" + json.dumps([entry]).encode())
    assert [m.text for m in await mail.take("ann")] == ["half \ud83d"]
    await mail.mark("ann", ["x"])
    assert await mail.take("ann") == ()
    assert [m.text for m in await mail.history("ann")] == ["half \ud83d"]


async def test_no_file_of_ours_is_beside_theirs(mail: FileMailboxes, home: Path):
    await mail.open("ann")
    for number in range(100):
        await mail.post("ann", message(str(number)))
    await mail.mark("ann", [m.id for m in await mail.take("ann")])
    assert [path.name for path in inbox(home).parent.iterdir()] == ["ann.json"]
    assert [path.name for path in (home / "teams" / "t").iterdir()] == ["inboxes"]
