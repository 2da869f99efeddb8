"""Inbox files: both forms read, entries carried as bytes, wrong ones set aside."""

from __future__ import annotations

import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import few_examples, make_unknown_fields, texts, values

from shoal.core.teams.mail import MailMessage
from shoal.wire.foreign_json import InvalidFileContent, RejectedFileEntry
from shoal.wire.mail_codec import (
    MailInboxFileEntry,
    ParsedMailInboxFile,
    derive_mail_id,
    encode_inbox,
    encode_inbox_entry,
    encode_updated_inbox_entry,
    parse_inbox,
    parse_inbox_entry,
)

KNOWN = ("from", "text", "timestamp", "read", "summary", "color", "msg_id", "shoal_sig")
AT = "2026-02-13T10:11:35.247Z"
LEAST = {"from": "ann", "text": "hello", "timestamp": AT, "read": False}

mails = st.builds(
    MailMessage,
    id=st.uuids().map(str),
    sender=texts,
    text=texts,
    timestamp=st.just(AT),
    read=st.booleans(),
    summary=st.none() | texts,
    color=st.none() | st.sampled_from(["blue", "red"]),
    signature=st.none() | texts,
)


def parse_content(content) -> ParsedMailInboxFile:
    found = parse_inbox(content if isinstance(content, bytes) else json.dumps(content).encode())
    assert isinstance(found, ParsedMailInboxFile), found
    return found


def parse_mail(content) -> list[MailMessage]:
    return [entry.mail for entry in parse_content(content).entries]


@pytest.mark.spec("BOX-01")
def test_an_inbox_is_an_array_of_early_entries_and_our_id():
    mail = MailMessage(id="m1", sender="ann", text="hello", timestamp=AT, summary="greets", color="blue")
    least = MailMessage(id="m2", sender="team-lead", text="go", timestamp=AT)
    content = encode_inbox([encode_inbox_entry(mail), encode_inbox_entry(least)])
    assert json.loads(content) == [
        {**LEAST, "summary": "greets", "color": "blue", "msg_id": "m1"},
        {"from": "team-lead", "text": "go", "timestamp": AT, "read": False, "msg_id": "m2"},
    ]
    assert parse_mail(content) == [mail, least]


def test_an_inbox_without_entries_is_an_empty_array():
    assert json.loads(encode_inbox([])) == []
    assert parse_mail(encode_inbox([])) == []


@few_examples
@given(st.lists(mails, max_size=5))
def test_written_mail_reads_back_unchanged(mails):
    assert parse_mail(encode_inbox(map(encode_inbox_entry, mails))) == mails
    assert [parse_inbox_entry(encode_inbox_entry(mail)).mail for mail in mails] == mails


@pytest.mark.spec("HOM-05")
@few_examples
@given(st.lists(st.tuples(mails, make_unknown_fields(*KNOWN)), max_size=4), st.booleans())
def test_entries_keep_every_unknown_field(pairs, read_now):
    content = json.dumps(
        [{**unknown, **json.loads(encode_inbox_entry(mail))} for mail, unknown in pairs]
    ).encode()
    entries = parse_content(content).entries
    again = encode_inbox([encode_updated_inbox_entry(entry, read=read_now) for entry in entries])
    for (_, unknown), entry, found in zip(pairs, entries, json.loads(again), strict=True):
        assert {name: value for name, value in found.items() if name not in KNOWN} == unknown
        assert json.loads(entry.raw).items() >= unknown.items()
    assert [mail.read for mail in parse_mail(again)] == [read_now] * len(pairs)


def test_an_entry_of_the_late_form_is_read_and_kept():
    late = {**LEAST, "msgV": 1, "msg_id": "0b7c", "type": "message", "lead_sig": "s1"}
    (entry,) = parse_content([late]).entries
    assert entry.mail == MailMessage(id="0b7c", sender="ann", text="hello", timestamp=AT)
    assert json.loads(encode_updated_inbox_entry(entry, read=True)) == {**late, "read": True}


def test_entries_without_an_id_are_distinguished_by_content_and_occurrence():
    other = {**LEAST, "text": "other"}
    ids = [mail.id for mail in parse_mail([LEAST, other, LEAST])]
    assert len(set(ids)) == 3
    assert ids == [mail.id for mail in parse_mail([LEAST, other, {**LEAST, "read": True}])]
    assert ids[2] == derive_mail_id("ann", AT, "hello", 1)


def test_a_derived_id_stays_when_an_earlier_occurrence_is_removed():
    first, second = parse_content([LEAST, LEAST]).entries
    (left,) = parse_content(encode_inbox([encode_updated_inbox_entry(second, read=False)])).entries
    assert left.mail.id == second.mail.id != first.mail.id


def test_invalid_entries_are_separated_and_the_others_are_delivered():
    wrong = [
        {"from": "ann"},
        "hello",
        None,
        {**LEAST, "text": 7},
    ]
    odd_fields = [{**LEAST, "read": "yes"}, {**LEAST, "summary": []}]
    found = parse_content([*wrong, *odd_fields, LEAST])
    assert [entry.mail.text for entry in found.entries] == ["hello", "hello", "hello"]
    assert [json.loads(rejected.raw) for rejected in found.rejected] == wrong
    assert all(rejected.reason for rejected in found.rejected)


def test_a_byte_order_mark_and_half_a_surrogate_pair_are_read():
    content = b"\xef\xbb\xbf" + json.dumps([{**LEAST, "text": "half \ud83d"}, LEAST]).encode()
    found = parse_content(content).entries
    assert [entry.mail.text for entry in found] == ["half \ud83d", "hello"]
    again = encode_inbox([encode_updated_inbox_entry(entry, read=False) for entry in found])
    assert [mail.text for mail in parse_mail(again)] == ["half \ud83d", "hello"]


@pytest.mark.parametrize(
    "content",
    [b"", b"[", b'[{"from":"ann"', b"{}", b"null", b"\xff", b"[" * 100_000],
    ids=lambda c: repr(c[:20]),
)
def test_invalid_content_is_refused_with_a_reason(content):
    found = parse_inbox(content)
    assert isinstance(found, InvalidFileContent)
    assert found.reason


@few_examples
@given(st.binary(max_size=60) | st.lists(values, max_size=3).map(lambda value: json.dumps(value).encode()))
def test_no_content_crashes_the_parser(content):
    assert isinstance(parse_inbox(content), ParsedMailInboxFile | InvalidFileContent)
    assert isinstance(parse_inbox_entry(content), MailInboxFileEntry | RejectedFileEntry)


def test_an_entry_is_one_line():
    mail = MailMessage(id="m", sender="ann", text="two\nlines \u2028 \ud83d", timestamp=AT)
    assert b"\n" not in encode_inbox_entry(mail)
    assert parse_inbox_entry(encode_inbox_entry(mail)).mail == mail


def test_a_megabyte_of_mail_is_read_with_one_parse():
    text = "x" * 400
    mails = (
        MailMessage(id=f"{n:036d}", sender="ann", text=text, timestamp=AT, summary="s") for n in range(1900)
    )
    content = encode_inbox(map(encode_inbox_entry, mails))
    assert len(content) > 1_000_000
    times = {parse_inbox: [1.0], msgspec.json.decode: [1.0]}
    for _ in range(40):
        for parse, spent in times.items():
            start = time.thread_time()
            parse(content)
            spent.append(time.thread_time() - start)
    # About twice as much as plain JSON, on any machine; a second parse would double that.
    assert min(times[parse_inbox]) < 3.2 * min(times[msgspec.json.decode])
