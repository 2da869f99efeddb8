"""Task files: both forms read, what we do not know kept, wrong shapes named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import few_examples, make_unknown_fields, texts, values
from msgspec.structs import replace

from shoal.core.teams.tasks import ATTEMPT_KEY, Task
from shoal.wire.foreign_json import InvalidFileContent
from shoal.wire.task_codec import ParsedTaskFile, encode_new_task, parse_task

KNOWN = (
    "id",
    "subject",
    "description",
    "activeForm",
    "status",
    "owner",
    "blocks",
    "blockedBy",
    "metadata",
)
FULL = {
    "id": "7",
    "subject": "Mend the roof",
    "description": "before the rain",
    "activeForm": "Mending the roof",
    "status": "in_progress",
    "owner": "ann",
    "blocks": ["9", "10"],
    "blockedBy": ["3"],
    "metadata": {"area": "roof"},
}

ids = st.integers(1, 10**6).map(str)
tasks = st.builds(
    Task,
    id=ids,
    subject=texts,
    description=texts,
    active_form=texts,
    status=st.sampled_from(["pending", "in_progress", "completed"]),
    owner=st.none() | st.sampled_from(["ann", "bob"]),
    blocks=st.lists(ids, unique=True, max_size=3).map(tuple),
    blocked_by=st.lists(ids, unique=True, max_size=3).map(tuple),
    metadata=st.dictionaries(texts, values, max_size=3),
)


def parse_task_file(content) -> ParsedTaskFile:
    found = parse_task(content if isinstance(content, bytes) else json.dumps(content).encode())
    assert isinstance(found, ParsedTaskFile), found
    return found


@pytest.mark.spec("TSK-01")
def test_a_task_file_has_the_fields_of_the_protocol():
    task = parse_task_file(FULL).task
    assert (task.id, task.status, task.owner, task.blocks, task.blocked_by) == (
        "7",
        "in_progress",
        "ann",
        ("9", "10"),
        ("3",),
    )
    assert (task.subject, task.active_form, task.metadata) == (
        FULL["subject"],
        FULL["activeForm"],
        {"area": "roof"},
    )
    assert json.loads(encode_new_task(task)) == FULL


@pytest.mark.spec("TSK-01")
def test_a_new_task_has_neither_owner_nor_metadata():
    assert json.loads(encode_new_task(Task(id="1", subject="s", description="d"))) == {
        "id": "1",
        "subject": "s",
        "description": "d",
        "activeForm": "",
        "status": "pending",
        "blocks": [],
        "blockedBy": [],
    }


@few_examples
@given(tasks)
def test_a_written_task_reads_back_unchanged(task):
    assert parse_task_file(encode_new_task(task)).task == task


@pytest.mark.spec("TSK-12", "HOM-05")
@few_examples
@given(before=tasks, after=tasks, unknown=make_unknown_fields(*KNOWN), ascii_only=st.booleans())
def test_a_rewrite_keeps_every_unknown_field(before, after, unknown, ascii_only):
    content = json.dumps(
        {**unknown, **json.loads(encode_new_task(before))}, ensure_ascii=ascii_only, indent=2
    ).encode(errors="surrogatepass")
    after = replace(after, id=before.id)
    rewritten = parse_task_file(content).encode_task(after)
    found = json.loads(rewritten)
    assert {name: value for name, value in found.items() if name not in KNOWN} == unknown
    assert parse_task_file(rewritten).task == after


@pytest.mark.spec("TSK-12")
def test_a_rewrite_keeps_even_the_spelling_of_foreign_numbers():
    numbers = b'{"createdAt":1.50,"n":123456789012345678901234567890,'
    content = numbers + b'"id":"1","subject":"s","status":"pending"}'
    file = parse_task_file(content)
    rewritten = file.encode_task(replace(file.task, status="completed"))
    assert rewritten.startswith(numbers)
    assert parse_task_file(rewritten).task.status == "completed"


def test_a_released_task_has_neither_owner_nor_attempt_in_the_file():
    file = parse_task_file({**FULL, "metadata": {ATTEMPT_KEY: "a1"}})
    assert file.task.claim_attempt == "a1"
    found = json.loads(file.encode_task(replace(file.task, status="pending", owner=None, metadata={})))
    assert "owner" not in found
    assert "metadata" not in found


@pytest.mark.spec("TSK-02")
def test_a_task_stored_as_deleted_is_absent():
    assert parse_task(json.dumps({**FULL, "status": "deleted"}).encode()) is None


@pytest.mark.parametrize("absent", ["description", "activeForm", "owner", "blocks", "blockedBy", "metadata"])
def test_missing_and_null_fields_read_as_empty(absent):
    without = {name: value for name, value in FULL.items() if name != absent}
    assert parse_task_file(without).task == parse_task_file({**FULL, absent: None}).task


def test_a_byte_order_mark_and_half_a_surrogate_pair_are_read():
    task = {**FULL, "subject": "half \ud83d"}
    content = b"\xef\xbb\xbf" + json.dumps(task).encode()
    file = parse_task_file(content)
    assert file.task.subject == "half \ud83d"
    assert json.loads(file.encode_task(file.task))["subject"] == "half \ud83d"
    raw_bytes = json.dumps(task, ensure_ascii=False).encode(errors="surrogatepass")
    assert parse_task_file(raw_bytes).task.subject == "half \ud83d"


def test_references_that_are_not_ids_are_skipped():
    assert parse_task_file({**FULL, "blocks": ["../../etc", "4", "04", "4"]}).task.blocks == ("4",)


@pytest.mark.spec("TSK-12")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"  \n",
        b"{",
        b'{"id":"7","subj',
        b"\xff\xfe\xfa",
        b"null",
        b"[]",
        b'"7"',
        b"[" * 100_000,
        b"\xef\xbb\xbf" + b"[" * 100_000,
        json.dumps({**FULL, "id": 7}).encode(),
        json.dumps({**FULL, "id": "../7"}).encode(),
        json.dumps({**FULL, "status": "done"}).encode(),
        json.dumps({**FULL, "subject": None}).encode(),
        json.dumps({**FULL, "blocks": "9"}).encode(),
        json.dumps({**FULL, "metadata": []}).encode(),
        json.dumps({**FULL, "owner": {}}).encode(),
        json.dumps({name: value for name, value in FULL.items() if name != "status"}).encode(),
    ],
    ids=lambda content: repr(content[:40]),
)
def test_invalid_content_is_refused_with_a_reason(content):
    found = parse_task(content)
    assert isinstance(found, InvalidFileContent)
    assert found.reason


@few_examples
@given(st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()))
def test_no_content_crashes_the_parser(content):
    assert parse_task(content) is None or isinstance(parse_task(content), ParsedTaskFile | InvalidFileContent)


@pytest.mark.spec("TSK-12")
def test_a_file_whose_task_id_differs_from_its_name_is_invalid():
    content = json.dumps(FULL).encode()
    assert isinstance(parse_task(content, "7"), ParsedTaskFile)
    found = parse_task(content, "8")
    assert isinstance(found, InvalidFileContent)
    assert "'7'" in found.reason
