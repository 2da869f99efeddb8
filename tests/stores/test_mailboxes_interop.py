"""Other programs on the same inboxes at the same time: they know the files and the lock, nothing of Shoal."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from mail_helpers import TIMESTAMP, create_mailboxes, get_inbox_path, make_mail, take_all_mail

from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore

FOREIGN_SCRIPT = Path(__file__).with_name("foreign_program.py")


@pytest.fixture
async def mail(home: Path) -> AsyncIterator[FileMailboxStore]:
    boxes = create_mailboxes(home, report_problem=reports.append)
    reports.clear()
    yield boxes
    await boxes.aclose()


reports: list[str] = []


def start_foreign_program(
    home: Path, behaviour: str, count: int, owner: str = "ann"
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, FOREIGN_SCRIPT, get_inbox_path(home, owner), behaviour, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def wait_for_output(process: subprocess.Popen[str]) -> str:
    out, errors = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 0, errors
    return out


@pytest.mark.spec("BOX-04", "HOM-05")
async def test_foreign_and_own_entries_arrive_once_and_in_the_order_of_each_writer(
    mail: FileMailboxStore, home: Path
):
    each = 60
    await mail.open_inbox("ann")
    writers = [start_foreign_program(home, "early", each), start_foreign_program(home, "late", each)]
    got: list[tuple[str, str]] = []

    async def post_own():
        for number in range(each):
            await mail.post("ann", make_mail(f"ours {number}"))

    async def receive_all():
        while len(got) < 3 * each:
            await mail.wait_for_mail("ann")
            batch = await mail.take_unread("ann")
            got.extend((each.id, each.text) for each in batch)
            await mail.mark_read("ann", [each.id for each in batch])

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(post_own())
        group.create_task(receive_all())
        for writer in writers:
            group.create_task(wait_for_output(writer))
    texts = [text for _, text in got]
    assert len(set(texts)) == len(texts) == 3 * each
    assert len({ident for ident, _ in got}) == 3 * each
    for behaviour in ("early", "late", "ours"):
        assert [t for t in texts if t.startswith(behaviour)] == [f"{behaviour} {n}" for n in range(each)]
    assert sorted(m.text for m in await mail.read_history("ann")) == sorted(texts)
    assert reports == []
    assert not list(home.rglob("*.corrupt-*"))


async def test_a_foreign_owner_gets_all_mail_in_its_inbox_file(mail: FileMailboxStore, home: Path):
    await mail.open_inbox("ann", foreign=True)
    reader = start_foreign_program(home, "reader", 200)
    for number in range(200):
        assert (await mail.post("ann", make_mail(str(number)))).standing == "delivered"
    assert json.loads(await wait_for_output(reader)) == [str(number) for number in range(200)]


async def test_an_owner_that_becomes_foreign_gets_the_overflow_in_its_inbox_file(
    mail: FileMailboxStore, home: Path
):
    await mail.open_inbox("ann")
    for number in range(100):
        await mail.post("ann", make_mail(str(number)))
    assert len(json.loads(get_inbox_path(home).read_bytes())) == 64
    await mail.open_inbox("ann", foreign=True)
    entries = json.loads(get_inbox_path(home).read_bytes())
    assert [entry["text"] for entry in entries] == [str(number) for number in range(100)]


@pytest.mark.spec("HOM-05")
async def test_unknown_fields_survive_a_rewrite_of_the_inbox(mail: FileMailboxStore, home: Path):
    await mail.open_inbox("ann")
    entry = {
        "from": "eve",
        "text": "hi",
        "timestamp": TIMESTAMP,
        "read": False,
        "msg_id": "e1",
        "later": {"a": [1, None]},
    }
    get_inbox_path(home).write_text(json.dumps([entry]))
    await mail.post("ann", make_mail("ours"))
    assert json.loads(get_inbox_path(home).read_bytes())[0] == entry
    await mail.mark_read("ann", ["e1"])
    assert json.loads(get_inbox_path(home).read_bytes())[0] == entry | {"read": True}


@pytest.mark.parametrize("name", [b"\xff", b"caf\xe9"])
async def test_a_message_with_a_field_whose_name_is_not_utf8_is_not_lost(
    mail: FileMailboxStore, home: Path, name: bytes
):
    await mail.open_inbox("ann")
    get_inbox_path(home).write_bytes(
        b'[{"from":"bob","text":"hi","timestamp":"%b","%b":7}]' % (TIMESTAMP.encode(), name)
    )
    (taken,) = await mail.take_unread("ann")
    assert taken.text == "hi"
    await mail.mark_read("ann", [taken.id])
    assert [stored.text for stored in await mail.read_history("ann")] == ["hi"]
    (entry,) = json.loads(get_inbox_path(home).read_bytes())
    assert entry[name.decode(errors="surrogateescape")] == 7


async def test_a_repeated_entry_without_an_id_is_another_message(mail: FileMailboxStore, home: Path):
    entry = {"from": "eve", "text": "ping", "timestamp": TIMESTAMP, "read": False}
    await mail.open_inbox("ann")
    got = set()
    for _ in range(20):
        entries = json.loads(get_inbox_path(home).read_bytes())
        get_inbox_path(home).write_text(json.dumps([*entries, entry, entry]))
        batch = await mail.take_unread("ann")
        assert len(batch) == 2
        assert {m.id for m in batch} == {m.id for m in await mail.take_unread("ann")}, "the id is stable"
        got |= {m.id for m in batch}
        await mail.mark_read("ann", [m.id for m in batch])
    assert len(got) == 40
    assert len(await mail.read_history("ann")) == 40


async def test_when_another_program_empties_the_inbox_the_overflow_moves_up(
    mail: FileMailboxStore, home: Path
):
    await mail.open_inbox("ann")
    for number in range(80):
        await mail.post("ann", make_mail(str(number)))
    get_inbox_path(home).write_text("[]")
    await asyncio.wait_for(mail.wait_for_mail("ann"), 30)
    assert [m.text for m in await mail.take_unread("ann")] == [str(number) for number in range(64, 80)]


async def test_a_half_written_inbox_is_read_again_and_not_moved_aside(mail: FileMailboxStore, home: Path):
    await mail.open_inbox("ann")
    await mail.post("ann", make_mail("one"))
    whole = get_inbox_path(home).read_bytes()
    lock = get_inbox_path(home).with_name("ann.json.lock")
    lock.mkdir()
    get_inbox_path(home).write_bytes(whole[: len(whole) // 2])
    taking = asyncio.ensure_future(mail.take_unread("ann"))
    done, _ = await asyncio.wait([taking], timeout=0.15)
    assert not done, "its writer holds the lock: it may still be incomplete"
    get_inbox_path(home).write_bytes(whole)
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
async def test_a_corrupt_inbox_is_moved_aside_and_its_valid_entries_are_delivered(
    mail: FileMailboxStore, home: Path, broken: Callable[[bytes], bytes], rest: list[str]
):
    await mail.open_inbox("ann")
    for number in range(3):
        await mail.post("ann", make_mail(str(number)))
    content = broken(get_inbox_path(home).read_bytes())
    get_inbox_path(home).write_bytes(content)
    assert [m.text for m in await mail.take_unread("ann")] == rest
    (aside,) = get_inbox_path(home).parent.glob("ann.json.corrupt-*")
    assert aside.read_bytes() == content
    assert len(reports) == 1
    assert str(aside) in reports[0]
    await mail.post("ann", make_mail("after"))
    assert [m.text for m in await mail.take_unread("ann")] == [*rest, "after"]
    assert len(json.loads(get_inbox_path(home).read_bytes())) == len(rest) + 1


async def test_a_byte_order_mark_and_half_a_surrogate_pair_are_read(mail: FileMailboxStore, home: Path):
    await mail.open_inbox("ann")
    entry = {"from": "eve", "text": "half \ud83d", "timestamp": TIMESTAMP, "read": False, "msg_id": "x"}
    get_inbox_path(home).write_bytes(b"\xef\xbb\xbf" + json.dumps([entry]).encode())
    assert [m.text for m in await mail.take_unread("ann")] == ["half \ud83d"]
    await mail.mark_read("ann", ["x"])
    assert await mail.take_unread("ann") == ()
    assert [m.text for m in await mail.read_history("ann")] == ["half \ud83d"]


async def test_only_the_shared_lock_file_is_created_next_to_the_inboxes(mail: FileMailboxStore, home: Path):
    await mail.open_inbox("ann")
    for number in range(100):
        await mail.post("ann", make_mail(str(number)))
    await mail.mark_read("ann", [m.id for m in await mail.take_unread("ann")])
    assert {path.name for path in get_inbox_path(home).parent.iterdir()} == {".lock", "ann.json"}
    assert [path.name for path in (home / "teams" / "t").iterdir()] == ["inboxes"]


@pytest.mark.spec("LIM-09")
async def test_entries_with_few_fields_or_a_numeric_time_are_delivered(mail: FileMailboxStore, home: Path):
    await mail.open_inbox("ann")
    entries = [
        {"from": "bob", "text": "bare"},
        {"from": "bob", "text": "seconds", "timestamp": 1_770_976_295},
        {"from": "bob", "text": "milliseconds", "timestamp": 1_770_976_295_247},
        {"from": "bob", "text": "fraction", "timestamp": 1_770_976_295.5},
        {"from": "bob", "text": "null", "timestamp": None},
        {"from": "bob", "text": "bare"},
    ]
    get_inbox_path(home).write_text(json.dumps(entries))
    taken = await take_all_mail(mail)
    assert [each.text for each in taken] == [each["text"] for each in entries]
    assert len({each.id for each in taken}) == len(entries)
    assert [each.timestamp for each in taken] == [
        "",
        "2026-02-13T09:51:35.000Z",
        "2026-02-13T09:51:35.247Z",
        "2026-02-13T09:51:35.500Z",
        "",
        "",
    ]
    assert await take_all_mail(mail) == []
    assert not list(home.rglob("*corrupt*"))


@pytest.mark.spec("LIM-09")
async def test_entries_with_optional_fields_of_a_wrong_type_are_delivered(mail: FileMailboxStore, home: Path):
    await mail.open_inbox("ann")
    entries = [
        {"from": "bob", "text": "time", "timestamp": {"seconds": 5}},
        {"from": "bob", "text": "no time", "timestamp": True},
        {"from": "bob", "text": "color", "color": 5, "summary": ["s"]},
        {"from": "bob", "text": "id", "msg_id": 17},
        {"from": "bob", "text": "id", "msg_id": 17},
        {"from": "bob", "text": "unread", "read": 0},
        {"from": "bob", "text": "unclear", "read": "no"},
        {"from": "bob", "text": "read", "read": 1},
    ]
    get_inbox_path(home).write_text(json.dumps(entries))
    taken = await take_all_mail(mail)
    assert [each.text for each in taken] == [each["text"] for each in entries[:-1]]
    assert len({each.id for each in taken}) == len(entries) - 1
    assert await take_all_mail(mail) == []
    assert not list(home.rglob("*corrupt*"))
    stored = json.loads(get_inbox_path(home).read_text())
    assert [each["color"] for each in stored if "color" in each] == [5]


@pytest.mark.spec("LIM-09")
@pytest.mark.parametrize(
    "entry",
    [
        {"from": "bob", "text": 5},
        {"from": 5, "text": "hi"},
        {"from": "bob", "text": "forged", "color": 5, "shoal_sig": "x"},
    ],
)
async def test_an_entry_without_usable_sender_or_text_is_set_aside(
    mail: FileMailboxStore, home: Path, entry: dict[str, object]
):
    await mail.open_inbox("ann")
    get_inbox_path(home).write_text(json.dumps([entry]))
    assert await take_all_mail(mail) == []
    (backup,) = home.rglob("*corrupt*")
    assert json.loads(backup.read_text()) == [entry]


@pytest.mark.spec("LIM-09")
async def test_a_file_that_is_complete_a_moment_later_is_not_set_aside_under_the_lock(
    mail: FileMailboxStore, home: Path
):
    """The writer takes no lock at all, and is in the middle of its write when we post."""
    await mail.open_inbox("ann")
    path = get_inbox_path(home)
    whole = json.dumps([{"from": "bob", "text": "slow", "timestamp": TIMESTAMP, "read": False}])
    path.write_text(whole[:30])
    finish = threading.Timer(0.005, path.write_text, (whole,))
    finish.start()
    await mail.post("ann", make_mail("ours"))
    finish.join()
    assert {each.text for each in await take_all_mail(mail)} == {"slow", "ours"}
    assert not list(home.rglob("*corrupt*"))


def write_foreign_entries(home: Path, count: int) -> list[str]:
    texts = [f"message {number}" for number in range(count)]
    entries = [{"from": "eve", "text": text, "timestamp": TIMESTAMP, "read": False} for text in texts]
    get_inbox_path(home).write_text(json.dumps(entries))
    return texts


async def take_all_texts(mail: FileMailboxStore) -> list[str]:
    texts: list[str] = []
    while batch := await mail.take_unread("ann"):
        texts += [each.text for each in batch]
        await mail.mark_read("ann", [each.id for each in batch])
    return texts


@pytest.mark.spec("BOX-04")
async def test_unread_foreign_mail_is_not_rewritten_with_each_batch(mail: FileMailboxStore, home: Path):
    await mail.open_inbox("ann")
    texts = write_foreign_entries(home, 2_000)
    assert [each.text for each in await mail.take_unread("ann", limit=5)] == texts[:5]
    assert len(json.loads(get_inbox_path(home).read_text())) == 64
    # Written meanwhile, so it comes after the mail that waits, although the inbox has room for it.
    entries = json.loads(get_inbox_path(home).read_text())
    for entry in entries[:5]:
        entry["read"] = True
    entries.append({"from": "eve", "text": "later", "timestamp": TIMESTAMP, "read": False})
    get_inbox_path(home).write_text(json.dumps(entries))
    assert await take_all_texts(mail) == [*texts[5:], "later"]
    assert reports == []


async def test_an_id_that_another_program_gave_stays_the_same_whatever_it_is(
    mail: FileMailboxStore, home: Path
):
    await mail.open_inbox("ann")
    fields = {"from": "eve", "timestamp": TIMESTAMP, "read": False}
    entries = [fields | {"text": "named", "msg_id": "made-1"}, fields | {"text": "unnamed"}]
    get_inbox_path(home).write_text(json.dumps(entries))
    await mail.post("ann", make_mail("ours"))
    found = {each.text: each.id for each in await mail.take_unread("ann")}
    assert found["named"] == "made-1"
    assert found["unnamed"] == json.loads(get_inbox_path(home).read_text())[1]["msg_id"]


@pytest.mark.exhaustive
async def test_twenty_thousand_foreign_entries_take_two_seconds(mail: FileMailboxStore, home: Path):
    await mail.open_inbox("ann")
    texts = write_foreign_entries(home, 20_000)
    started = time.process_time()
    assert await take_all_texts(mail) == texts
    assert time.process_time() - started < 2


@pytest.mark.exhaustive
async def test_a_hundred_thousand_unread_messages_are_taken_in_order_within_a_minute(
    mail: FileMailboxStore, home: Path
):
    await mail.open_inbox("ann")
    for start in range(0, 100_000, 1_000):
        await asyncio.gather(
            *(mail.post("ann", make_mail(f"m{number}")) for number in range(start, start + 1_000))
        )
    started = time.monotonic()
    assert await take_all_texts(mail) == [f"m{number}" for number in range(100_000)]
    assert time.monotonic() - started < 60
