"""Inbox files: both forms read, entries carried as bytes, wrong ones set aside."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import few, texts, unknown_fields, values

from shoal.core.mail import Mail
from shoal.wire.foreign import Invalid, Rejected
from shoal.wire.mail import Entry, Inbox, entry_bytes, inbox_bytes, made_id, read_entry, read_inbox, settled

KNOWN = ("from", "text", "timestamp", "read", "summary", "color", "msg_id", "shoal_sig")
AT = "2026-02-13T10:11:35.247Z"
LEAST = {"from": "ann", "text": "hello", "timestamp": AT, "read": False}

mails = st.builds(
    Mail,
    id=st.uuids().map(str),
    sender=texts,
    text=texts,
    timestamp=st.just(AT),
    read=st.booleans(),
    summary=st.none() | texts,
    color=st.none() | st.sampled_from(["blue", "red"]),
    signature=st.none() | texts,
)


def read(content) -> Inbox:
    found = read_inbox(content if isinstance(content, bytes) else json.dumps(content).encode())
    assert isinstance(found, Inbox), found
    return found


def mail_in(content) -> list[Mail]:
    return [entry.mail for entry in read(content).entries]


@pytest.mark.spec("BOX-01")
def test_an_inbox_is_an_array_of_early_entries_and_our_id():
    mail = Mail(id="m1", sender="ann", text="hello", timestamp=AT, summary="greets", color="blue")
    least = Mail(id="m2", sender="team-lead", text="go", timestamp=AT)
    content = inbox_bytes([entry_bytes(mail), entry_bytes(least)])
    assert json.loads(content) == [
        {**LEAST, "summary": "greets", "color": "blue", "msg_id": "m1"},
        {"from": "team-lead", "text": "go", "timestamp": AT, "read": False, "msg_id": "m2"},
    ]
    assert mail_in(content) == [mail, least]


def test_an_inbox_without_entries_is_an_empty_array():
    assert json.loads(inbox_bytes([])) == []
    assert mail_in(inbox_bytes([])) == []


@few
@given(st.lists(mails, max_size=5))
def test_written_mail_reads_as_it_was(mails):
    assert mail_in(inbox_bytes(map(entry_bytes, mails))) == mails
    assert [read_entry(entry_bytes(mail)).mail for mail in mails] == mails


@pytest.mark.spec("HOM-05")
@few
@given(st.lists(st.tuples(mails, unknown_fields(*KNOWN)), max_size=4), st.booleans())
def test_entries_keep_every_field_we_do_not_know(pairs, read_now):
    content = json.dumps([{**unknown, **json.loads(entry_bytes(mail))} for mail, unknown in pairs]).encode()
    entries = read(content).entries
    again = inbox_bytes([settled(entry, read=read_now) for entry in entries])
    for (_, unknown), entry, found in zip(pairs, entries, json.loads(again), strict=True):
        assert {name: value for name, value in found.items() if name not in KNOWN} == unknown
        assert json.loads(entry.raw).items() >= unknown.items()
    assert [mail.read for mail in mail_in(again)] == [read_now] * len(pairs)


def test_an_entry_of_the_late_form_is_read_and_kept():
    late = {**LEAST, "msgV": 1, "msg_id": "0b7c", "type": "message", "lead_sig": "s1"}
    (entry,) = read([late]).entries
    assert entry.mail == Mail(id="0b7c", sender="ann", text="hello", timestamp=AT)
    assert json.loads(settled(entry, read=True)) == {**late, "read": True}


def test_entries_without_an_id_are_told_apart_by_content_and_occurrence():
    other = {**LEAST, "text": "other"}
    ids = [mail.id for mail in mail_in([LEAST, other, LEAST])]
    assert len(set(ids)) == 3
    assert ids == [mail.id for mail in mail_in([LEAST, other, {**LEAST, "read": True}])]
    assert ids[2] == made_id("ann", AT, "hello", 1)


def test_a_made_id_stays_when_the_occurrence_before_it_goes():
    first, second = read([LEAST, LEAST]).entries
    (left,) = read(inbox_bytes([settled(second, read=False)])).entries
    assert left.mail.id == second.mail.id != first.mail.id


def test_entries_of_a_wrong_shape_are_set_aside_and_the_rest_is_delivered():
    wrong = [
        {"from": "ann"},
        "hello",
        None,
        {**LEAST, "text": 7},
        {**LEAST, "read": "yes"},
        {**LEAST, "summary": []},
    ]
    found = read([*wrong, LEAST])
    assert [entry.mail.text for entry in found.entries] == ["hello"]
    assert [json.loads(rejected.raw) for rejected in found.rejected] == wrong
    assert all(rejected.reason for rejected in found.rejected)


def test_a_byte_order_mark_and_half_a_surrogate_pair_are_read():
    content = b"\xef\xbb\xbf" + json.dumps([{**LEAST, "text": "half \ud83d"}, LEAST]).encode()
    found = read(content).entries
    assert [entry.mail.text for entry in found] == ["half \ud83d", "hello"]
    again = inbox_bytes([settled(entry, read=False) for entry in found])
    assert [mail.text for mail in mail_in(again)] == ["half \ud83d", "hello"]


@pytest.mark.parametrize(
    "content",
    [b"", b"[", b'[{"from":"ann"', b"{}", b"null", b"\xff", b"[" * 100_000],
    ids=lambda c: repr(c[:20]),
)
def test_what_is_no_inbox_is_invalid_with_a_reason(content):
    found = read_inbox(content)
    assert isinstance(found, Invalid)
    assert found.reason


@few
@given(st.binary(max_size=60) | st.lists(values, max_size=3).map(lambda value: json.dumps(value).encode()))
def test_no_file_makes_the_reader_fall_over(content):
    assert isinstance(read_inbox(content), Inbox | Invalid)
    assert isinstance(read_entry(content), Entry | Rejected)


def test_an_entry_stands_on_one_line():
    mail = Mail(id="m", sender="ann", text="two\nlines \u2028 \ud83d", timestamp=AT)
    assert b"\n" not in entry_bytes(mail)
    assert read_entry(entry_bytes(mail)).mail == mail


def test_a_megabyte_of_mail_is_read_in_a_few_milliseconds():
    text = "x" * 400
    mails = (Mail(id=f"{n:036d}", sender="ann", text=text, timestamp=AT, summary="s") for n in range(1900))
    content = inbox_bytes(map(entry_bytes, mails))
    assert len(content) > 1_000_000
    times = []
    for _ in range(10):
        start = time.thread_time()
        read_inbox(content)
        times.append(time.thread_time() - start)
    # 1.5 ms on a quiet machine; the bound leaves room for a busy one and still catches a second parse.
    assert min(times) < 0.006
