from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from store_helpers import TranscriptWriter

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import (
    INTERRUPTED_RESULT,
    Message,
    TextBlock,
    ToolResultBlock,
    user_message,
)
from shoal.core.conversation.transcript_entries import (
    TranscriptCompactionMarker,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.ids import AgentId, EntryId, SessionId
from shoal.stores.files.home.home_paths import get_transcript_path
from shoal.stores.files.locks.pid_locks import SessionLock, is_session_running
from shoal.stores.files.sessions.file_session_store import FileSessionStore
from shoal.stores.files.sessions.session_files import (
    find_first_prompt_or_title,
    find_latest_session,
    find_session_transcript,
    fork_session,
    list_sessions,
    read_session_transcript,
)
from shoal.stores.restored_conversation import RestoredConversation, restore_transcript
from shoal.stores.subagent_records import load_unstarted_subagent_metadata
from shoal.wire.transcript_codec import TranscriptTitleEntry


def list_texts(loaded: RestoredConversation) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in loaded.messages]


@pytest.mark.spec("TRN-02")
def test_a_session_reads_back_unchanged(writer: Callable[..., TranscriptWriter], home: Path):
    written = writer(cwd="/project", session="s-1")
    prompt = written.append_prompt("list the files")
    reply = written.append_reply("I look.", "t1", "t2", tokens=10)
    results = written.append_results("t1", "t2")
    end = written.append_reply("Two files.", tokens=5)
    loaded = read_session_transcript(get_transcript_path(home, "/project", SessionId("s-1")))
    assert loaded.messages == (prompt.message, reply.message, results.message, end.message)
    assert loaded.last == end.id
    assert loaded.interrupted is None
    assert loaded.usage == Usage(input_tokens=15, output_tokens=15)
    assert (loaded.turns, loaded.model, loaded.cwd, loaded.notes) == (1, "m", "/project", ())


def test_a_torn_last_line_is_dropped_with_a_note_and_stays_in_the_file(
    writer: Callable[..., TranscriptWriter],
):
    written = writer()
    written.append_prompt("hi")
    with written.path.open("ab") as file:
        file.write(b'{"type":"assis')
    before = written.path.read_bytes()
    loaded = read_session_transcript(written.path)
    assert list_texts(loaded) == [("user", "hi")]
    assert loaded.notes == ("The last line was incomplete (14 bytes), so it was dropped.",)
    assert written.path.read_bytes() == before


@pytest.mark.spec("TRN-02")
def test_an_unanswered_call_gets_an_interrupted_result(writer: Callable[..., TranscriptWriter]):
    written = writer()
    written.append_prompt("go")
    written.append_reply("", "t1", "t2")
    loaded = read_session_transcript(written.path)
    assert loaded.interrupted == Message(
        role="user",
        content=tuple(
            ToolResultBlock(tool_use_id=call, content=INTERRUPTED_RESULT, is_error=True)
            for call in ("t1", "t2")
        ),
    )
    again = writer(last=loaded.last, seed=2)
    again.append_message(loaded.interrupted, meta=True)
    again.append_prompt("go on")
    resumed = read_session_transcript(written.path)
    assert resumed.messages == (*loaded.messages, loaded.interrupted, resumed.messages[-1])
    assert resumed.interrupted is None
    assert resumed.turns == 2


def test_only_the_calls_without_a_result_are_interrupted(writer: Callable[..., TranscriptWriter]):
    written = writer()
    written.append_prompt("go")
    written.append_reply("", "t1", "t2")
    written.append_results("t1")
    loaded = read_session_transcript(written.path)
    assert [result.tool_use_id for result in loaded.interrupted.content] == ["t2"]


def test_after_a_compaction_the_conversation_starts_with_the_summary(writer: Callable[..., TranscriptWriter]):
    written = writer()
    written.append_prompt("old")
    old = written.append_reply("old answer", tokens=7)
    written.append_entry(
        TranscriptCompactionMarker(
            id=written.ids.new_entry_id(), before=old.id, at=0, trigger="auto", tokens_before=100
        )
    )
    written.append_prompt("in short: old", meta=True, summary=True)
    written.append_prompt("new")
    loaded = read_session_transcript(written.path)
    assert list_texts(loaded) == [("user", "in short: old"), ("user", "new")]
    assert loaded.turns == 2
    assert loaded.usage.input_tokens == 7


def test_after_a_rewind_the_conversation_continues_from_that_entry(writer: Callable[..., TranscriptWriter]):
    written = writer()
    written.append_prompt("one")
    first_reply = written.append_reply("first")
    written.append_prompt("two")
    written.append_reply("second")
    rewound = written.append_entry(
        TranscriptRewindMarker(id=written.ids.new_entry_id(), parent=first_reply.id, at=0, turn=2)
    )
    assert list_texts(read_session_transcript(written.path)) == [("user", "one"), ("assistant", "first")]
    written.append_prompt("three")
    loaded = read_session_transcript(written.path)
    assert list_texts(loaded) == [("user", "one"), ("assistant", "first"), ("user", "three")]
    assert loaded.turns == 3
    assert [(p.turn, p.parent, p.text) for p in loaded.prompts] == [
        (1, None, "one"),
        (3, rewound.id, "three"),
    ]
    written.append_entry(TranscriptRewindMarker(id=written.ids.new_entry_id(), parent=None, at=0, turn=1))
    assert read_session_transcript(written.path).messages == ()


def test_a_reply_written_as_several_lines_is_one_message(
    writer: Callable[..., TranscriptWriter],
):
    written = writer()
    written.append_prompt("go")
    text = written.append_reply("I look.", message_id="msg_9", request="req_9", tokens=3)
    first = written.append_reply("", "t1", message_id="msg_9", request="req_9", tokens=3)
    second = written.append_reply("", "t2", message_id="msg_9", request="req_9", tokens=4)
    written.append_results("t1", parent=first.id)
    written.append_results("t2", parent=second.id)
    end = written.append_reply("Done.")
    loaded = read_session_transcript(written.path)
    assert [m.role for m in loaded.messages] == ["user", "assistant", "user", "assistant"]
    assert loaded.messages[1].content == (
        text.message.content + first.message.content + second.message.content
    )
    assert [result.tool_use_id for result in loaded.messages[2].content] == ["t1", "t2"]
    assert loaded.messages[3] == end.message
    assert loaded.interrupted is None
    assert loaded.usage.input_tokens == 4 + 1


def test_replies_with_a_repeated_message_id_stay_separate(writer: Callable[..., TranscriptWriter]):
    written = writer()
    written.append_prompt("go")
    written.append_reply("", "t1", message_id="same")
    written.append_results("t1")
    written.append_reply("Done.", message_id="same")
    assert [m.role for m in read_session_transcript(written.path).messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]


def test_unknown_lines_are_skipped_and_counted_and_do_not_break_the_chain(
    writer: Callable[..., TranscriptWriter],
):
    written = writer()
    first = written.append_prompt("hi")
    with written.path.open("a") as file:
        file.write(json.dumps({"type": "attachment", "uuid": "u-1", "parentUuid": first.id}) + "\n")
        file.write(json.dumps({"type": "file-history-snapshot", "snapshot": {}}) + "\n")
        file.write("garbage\n\n")
        file.write(json.dumps({"type": "user", "isSidechain": True, "uuid": "z"}) + "\n")
    written.append_reply("hello", parent=EntryId("u-1"))
    loaded = read_session_transcript(written.path)
    assert list_texts(loaded) == [("user", "hi"), ("assistant", "hello")]
    notes = " ".join(loaded.notes)
    assert "attachment (1)" in notes
    assert "file-history-snapshot (1)" in notes
    assert "Skipped invalid lines: 1" in notes


def write_conversation(writer: Callable[..., TranscriptWriter]) -> list[bytes]:
    """Return the lines of a conversation with a few texts that look like the fields of a line."""
    written = writer()
    written.append_prompt('say "type":"user","message":{"role":"user","content":"hi"}')
    written.append_reply("Certainly, and at length.", "t1")
    written.append_results("t1")
    written.append_reply("The answer is long enough to be cut anywhere.")
    written.append_prompt("thanks, and good night")
    return written.path.read_bytes().splitlines()


@pytest.mark.spec("LIM-15")
def test_two_lines_joined_at_any_place_are_damage(writer: Callable[..., TranscriptWriter]):
    lines = write_conversation(writer)
    silent = []
    for first, second in ((0, 2), (1, 3), (0, 3), (1, 2), (2, 3)):
        for cut in range(1, len(lines[first])):
            for kept in {cut, len(lines[second]) // 2}:
                joined = lines[first][:cut] + lines[second][kept:]
                content = b"\n".join([*lines[:first], joined, *lines[second + 1 :]]) + b"\n"
                if not restore_transcript(content).describe_damage("x"):
                    silent.append((first, second, cut, kept))
    whole = [(first, second, cut, kept) for first, second, cut, kept in silent if cut != kept]
    assert not whole
    # A cut inside the id of the entry leaves the id of the second line, whose link is that of the first.
    assert all(cut <= lines[first].index(b'"isSidechain"') for first, _, cut, _ in silent)


@pytest.mark.spec("LIM-15")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", None),
        ("type", "usr"),
        ("type", "assistant"),
        ("type", 7),
        ("message", None),
        ("message", "hello"),
        ("message", {"role": "user"}),
        ("message", {"role": "user", "content": 5}),
        ("uuid", None),
        ("uuid", 5),
        ("timestamp", None),
        ("timestamp", 5),
        ("timestamp", "yesterday"),
        ("isSidechain", True),
        ("parentUuid", "nobody"),
    ],
)
def test_a_line_of_shoal_with_other_fields_is_damage(
    writer: Callable[..., TranscriptWriter], field: str, value: object
):
    lines = write_conversation(writer)
    raw = json.loads(lines[2]) | {field: value}
    if value is None:
        del raw[field]
    lines[2] = json.dumps(raw).encode()
    loaded = restore_transcript(b"\n".join(lines) + b"\n")
    assert "damaged" in loaded.describe_damage("x")
    # Everything before and after the line is used.
    assert loaded.messages[0].text.startswith("say")
    assert loaded.messages[-1].text == "thanks, and good night"


def encode_lines(lines: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


@pytest.mark.spec("LIM-15")
def test_lines_of_other_programs_and_newer_versions_are_not_damage(writer: Callable[..., TranscriptWriter]):
    lines = write_conversation(writer)
    last = json.loads(lines[-1])
    foreign = [
        {"type": "progress", "uuid": "p-1", "parentUuid": last["uuid"], "version": "2.1.0"},
        {"type": "user", "uuid": "p-2", "parentUuid": "p-1", "message": {"role": "user"}, "timestamp": 5},
        {"type": "queue-operation", "operation": "enqueue"},
        {"parentUuid": "p-2", "uuid": "p-3", "type": "system", "subtype": "shoal_later", "timestamp": 5},
    ]
    loaded = restore_transcript(b"\n".join(lines) + b"\n" + encode_lines(foreign))
    assert not loaded.describe_damage("x")
    assert loaded.last == "p-3"
    untyped = [{key: value for key, value in each.items() if key != "type"} for each in foreign[:3]]
    assert not restore_transcript(encode_lines([foreign[0], *untyped])).unreadable
    # A file without any line that somebody writes into a conversation is none.
    assert restore_transcript(encode_lines(untyped)).unreadable == len(untyped)


def test_missing_results_are_added_so_that_a_provider_accepts_the_history(
    writer: Callable[..., TranscriptWriter],
):
    written = writer()
    written.append_prompt("go")
    written.append_reply("", "t1", "t2")
    written.append_results("t1", "stray")
    written.append_prompt("and then?")
    written.append_reply("", "t3")
    written.append_reply("I forgot.")
    loaded = read_session_transcript(written.path)
    answered = [
        [(block.tool_use_id, block.is_error) for block in m.content if isinstance(block, ToolResultBlock)]
        for m in loaded.messages
    ]
    assert answered == [[], [], [("t2", True), ("t1", False)], [], [], [("t3", True)], []]
    assert "Results without a call were left out: 1." in loaded.notes
    assert "Calls without a result were marked as interrupted: 2." in loaded.notes


def test_a_chain_with_a_missing_parent_is_read_from_its_first_known_entry(
    writer: Callable[..., TranscriptWriter],
):
    written = writer()
    written.append_prompt("lost", parent=EntryId("gone"))
    loaded = read_session_transcript(written.path)
    assert list_texts(loaded) == [("user", "lost")]
    assert any("missing" in note for note in loaded.notes)


def test_a_cycle_in_the_chain_ends_the_read(writer: Callable[..., TranscriptWriter]):
    written = writer()
    written.append_prompt("a", parent=EntryId("x"))
    with written.path.open("r+") as file:
        raw = json.loads(file.read())
        file.seek(0)
        file.write(json.dumps(raw | {"parentUuid": raw["uuid"]}) + "\n")
    assert len(read_session_transcript(written.path).messages) == 1


def test_the_latest_session_of_a_directory_is_the_one_written_last(
    writer: Callable[..., TranscriptWriter], home: Path
):
    assert find_latest_session(home, "/project") is None
    for number, name in enumerate(["s-1", "s-2", "s-3"]):
        written = writer(session=name)
        written.append_prompt("hi")
        os.utime(written.path, ns=(0, [5, 9, 7][number] * 10**9))
    writer(cwd="/elsewhere", session="s-4").append_prompt("hi")
    (written.path.parent / "agent-a1.jsonl").write_text("{}\n")
    (written.path.parent / "s-5.jsonl").write_text('{"type":"summary","summary":"nothing was said"}\n')
    assert find_latest_session(home, "/project") == "s-2"


def test_a_session_is_found_by_its_id_or_a_unique_prefix(writer: Callable[..., TranscriptWriter], home: Path):
    one = writer(session="aaaa-1111", cwd="/one")
    other = writer(session="aaab-2222", cwd="/two")
    for written in (one, other):
        written.append_prompt("hi")
    assert find_session_transcript(home, "aaaa-1111") == one.path
    assert find_session_transcript(home, "aaab") == other.path
    with pytest.raises(SessionNotFound, match="2 sessions start with 'aaa': aaaa-1111, aaab-2222"):
        find_session_transcript(home, "aaa")
    with pytest.raises(SessionNotFound, match="Similar ids: aaaa-1111"):
        find_session_transcript(home, "aaaa-1112")
    with pytest.raises(SessionNotFound, match="--continue"):
        find_session_transcript(home, "zzzz")
    with pytest.raises(SessionNotFound):
        find_session_transcript(home, "../one/aaaa-1111")
    with pytest.raises(SessionNotFound):
        read_session_transcript(get_transcript_path(home, "/nowhere", SessionId("aaaa-1111")))


def test_sessions_are_listed_newest_first_with_their_first_prompt(
    writer: Callable[..., TranscriptWriter], home: Path
):
    for number, name in enumerate(["s-1", "s-2"]):
        written = writer(session=name, cwd=f"/{name}")
        written.append_prompt("you are in a directory", meta=True)
        written.append_prompt(f"prompt of {name}")
        written.append_reply("x")
        os.utime(written.path, ns=(0, (number + 1) * 10**9))
    summaries = list_sessions(home)
    assert [(g.session, g.prompt, g.at) for g in summaries] == [
        ("s-2", "prompt of s-2", 2000),
        ("s-1", "prompt of s-1", 1000),
    ]
    assert summaries[0].size == summaries[0].path.stat().st_size
    assert [g.session for g in list_sessions(home, "/s-1")] == ["s-1"]
    assert len(list_sessions(home, limit=1)) == 1


def test_a_session_is_listed_with_the_title_that_a_person_gave_or_its_first_prompt():
    prompt = TranscriptMessageEntry(id=EntryId("e"), parent=None, at=1, message=user_message("mend the roof"))
    meta = replace(prompt, message=user_message("caveat"), meta=True)
    generated, empty = TranscriptTitleEntry(text="generated"), TranscriptTitleEntry(text="", is_custom=True)
    given = TranscriptTitleEntry(text="The roof", is_custom=True)
    assert find_first_prompt_or_title([generated, given, prompt]) == "The roof"
    assert find_first_prompt_or_title([generated, empty, meta, prompt]) == "mend the roof"
    assert find_first_prompt_or_title([generated, TranscriptTitleEntry(text="later")]) == "generated"
    assert find_first_prompt_or_title([]) == ""


@pytest.mark.spec("HOM-05")
def test_a_fork_is_a_copy_under_a_new_id_with_all_unknown_fields(
    writer: Callable[..., TranscriptWriter], home: Path
):
    written = writer(session="s-1")
    written.append_prompt("hi")
    foreign = {
        "sessionId": "s-1",
        "type": "novelty",
        "deep": {"sessionId": "s-1", "n": 2**70, "s": "\ud800é"},
    }
    with written.path.open("ab") as file:
        file.write(json.dumps(foreign).encode() + b'\n{"type":"summary","summary":"t"}\n{"torn')
    before = written.path.read_bytes()
    forked = fork_session(written.path, SessionId("s-2"), home=home, cwd="/project")
    assert written.path.read_bytes() == before
    lines = [json.loads(line) for line in forked.read_bytes().splitlines()]
    assert [line.get("sessionId") for line in lines] == ["s-2", "s-2", None]
    assert lines[1] == foreign | {"sessionId": "s-2"}
    loaded = read_session_transcript(forked)
    assert (forked.stem, list_texts(loaded)) == ("s-2", [("user", "hi")])
    assert forked.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StateFileError, match="already exists"):
        fork_session(written.path, SessionId("s-2"), home=home, cwd="/project")


LOCK_SCRIPT = """
import sys
from pathlib import Path
from shoal.stores.files.locks.pid_locks import SessionLock
lock = SessionLock(Path(sys.argv[1]), "s-1")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.spec("HOM-05")
def test_storing_a_permission_mode_keeps_the_other_metadata_of_an_agent(home: Path):
    store, agent = FileSessionStore(home, SessionId("s-1"), home / "s-1.jsonl"), AgentId("a1")
    facts = {"agentType": "Explore", "theirs": {"a": [1, None]}, "mode": "plan", "depth": 2}
    path = home / "s-1" / "subagents" / "agent-a1.meta.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(facts))
    store.save_agent_mode(agent, "default")
    assert json.loads(path.read_bytes()) == facts | {"mode": "default"}
    assert load_unstarted_subagent_metadata(store, agent).mode == "default"


@pytest.mark.spec("TRN-02")
def test_a_session_in_use_is_refused_until_its_process_dies(home: Path):
    session = SessionId("s-1")
    child = subprocess.Popen(
        [sys.executable, "-c", LOCK_SCRIPT, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline() == b"held\n"
        assert is_session_running(home, session)
        with pytest.raises(StateFileError, match=rf"process {child.pid}.*--fork-session"):
            SessionLock(home, session)
        child.kill()
    assert not is_session_running(home, session)
    lock = SessionLock(home, session)
    assert is_session_running(home, session)
    lock.release()
    assert not is_session_running(home, session)


def test_text_messages_in_a_row_are_not_joined(writer: Callable[..., TranscriptWriter]):
    written = writer()
    written.append_prompt("one")
    written.append_prompt("two")
    assert list_texts(read_session_transcript(written.path)) == [("user", "one"), ("user", "two")]
    assert read_session_transcript(written.path).messages[0].content == (TextBlock(text="one"),)


LIST_WHILE_REMOVING_SCRIPT = """
import os, sys
from pathlib import Path
from shoal.stores.files.sessions.session_files import list_sessions

home = Path(sys.argv[1])
going = sorted((home / "projects").glob("*/*.jsonl"))
listed = []

def remove_what_was_listed(event, args):
    if event == "os.scandir" and args[0] is not None and Path(args[0]).parent.name == "projects":
        for path in going:
            if path.parent in listed:
                path.unlink(missing_ok=True)
        listed.append(Path(args[0]))

sys.addaudithook(remove_what_was_listed)
print(*(summary.session for summary in list_sessions(home) if summary.path.exists()))
"""


def test_a_session_removed_during_listing_is_not_listed(home: Path, writer: Callable[..., TranscriptWriter]):
    for number in (1, 2):
        writer(session=f"s-{number}", cwd=f"/project-{number}").append_prompt("Mend the roof.")
    written = subprocess.run(
        [sys.executable, "-c", LIST_WHILE_REMOVING_SCRIPT, str(home)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert written.stderr == ""
    (left,) = (home / "projects").glob("*/*.jsonl")
    assert written.stdout.split() == [left.stem]
