from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from store_kit import Writer

from shoal.core.entries import Compacted, Rewound
from shoal.core.errors import NoSuchSession, StoreError
from shoal.core.ids import EntryId, SessionId
from shoal.core.messages import INTERRUPTED, Message, Text, ToolResult
from shoal.core.usage import Usage
from shoal.stores.files.locks import SessionLock, is_held
from shoal.stores.files.places import transcript_path
from shoal.stores.files.sessions import (
    Loaded,
    find_session,
    fork_session,
    latest_session,
    list_sessions,
    read_session,
)
from shoal.stores.files.subagents import meta_path, recall_unspoken, remember_mode


def said(loaded: Loaded) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in loaded.messages]


@pytest.mark.spec("TRN-02")
def test_a_session_is_read_back_as_it_was(writer: Callable[..., Writer], home: Path):
    told = writer(cwd="/project", session="s-1")
    prompt = told.prompt("list the files")
    reply = told.reply("I look.", "t1", "t2", tokens=10)
    results = told.results("t1", "t2")
    end = told.reply("Two files.", tokens=5)
    loaded = read_session(transcript_path(home, "/project", SessionId("s-1")))
    assert loaded.messages == (prompt.message, reply.message, results.message, end.message)
    assert loaded.last == end.id
    assert loaded.interrupted is None
    assert loaded.usage == Usage(input_tokens=15, output_tokens=15)
    assert (loaded.turns, loaded.model, loaded.cwd, loaded.notes) == (1, "m", "/project", ())


def test_a_torn_last_line_is_dropped_with_a_note_and_the_file_left_alone(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("hi")
    with told.path.open("ab") as file:
        file.write(b'{"type":"assis')
    before = told.path.read_bytes()
    loaded = read_session(told.path)
    assert said(loaded) == [("user", "hi")]
    assert loaded.notes == ("The last line was torn (14 bytes) and is dropped.",)
    assert told.path.read_bytes() == before


@pytest.mark.spec("TRN-02")
def test_an_unanswered_call_gets_an_interrupted_result(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("go")
    told.reply("", "t1", "t2")
    loaded = read_session(told.path)
    assert loaded.interrupted == Message(
        role="user",
        content=tuple(
            ToolResult(tool_use_id=call, content=INTERRUPTED, is_error=True) for call in ("t1", "t2")
        ),
    )
    again = writer(last=loaded.last, seed=2)
    again.says(loaded.interrupted, meta=True)
    again.prompt("go on")
    resumed = read_session(told.path)
    assert resumed.messages == (*loaded.messages, loaded.interrupted, resumed.messages[-1])
    assert resumed.interrupted is None
    assert resumed.turns == 2


def test_only_the_calls_without_a_result_are_interrupted(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("go")
    told.reply("", "t1", "t2")
    told.results("t1")
    loaded = read_session(told.path)
    assert [result.tool_use_id for result in loaded.interrupted.content] == ["t2"]


def test_after_a_compaction_the_conversation_starts_with_the_summary(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("old")
    old = told.reply("old answer", tokens=7)
    told.add(Compacted(id=told.ids.entry(), before=old.id, at=0, trigger="auto", tokens_before=100))
    told.prompt("in short: old", meta=True, summary=True)
    told.prompt("new")
    loaded = read_session(told.path)
    assert said(loaded) == [("user", "in short: old"), ("user", "new")]
    assert loaded.turns == 2
    assert loaded.usage.input_tokens == 7


def test_after_a_rewind_the_conversation_goes_on_from_there(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("one")
    kept = told.reply("first")
    told.prompt("two")
    told.reply("second")
    rewound = told.add(Rewound(id=told.ids.entry(), parent=kept.id, at=0, turn=2))
    assert said(read_session(told.path)) == [("user", "one"), ("assistant", "first")]
    told.prompt("three")
    loaded = read_session(told.path)
    assert said(loaded) == [("user", "one"), ("assistant", "first"), ("user", "three")]
    assert loaded.turns == 3
    assert [(p.turn, p.parent, p.text) for p in loaded.prompts] == [
        (1, None, "one"),
        (3, rewound.id, "three"),
    ]
    told.add(Rewound(id=told.ids.entry(), parent=None, at=0, turn=1))
    assert read_session(told.path).messages == ()


def test_a_reply_that_another_program_wrote_as_several_lines_is_one_message(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("go")
    text = told.reply("I look.", message_id="msg_9", request="req_9", tokens=3)
    first = told.reply("", "t1", message_id="msg_9", request="req_9", tokens=3)
    second = told.reply("", "t2", message_id="msg_9", request="req_9", tokens=4)
    told.results("t1", parent=first.id)
    told.results("t2", parent=second.id)
    end = told.reply("Done.")
    loaded = read_session(told.path)
    assert [m.role for m in loaded.messages] == ["user", "assistant", "user", "assistant"]
    assert loaded.messages[1].content == (
        text.message.content + first.message.content + second.message.content
    )
    assert [result.tool_use_id for result in loaded.messages[2].content] == ["t1", "t2"]
    assert loaded.messages[3] == end.message
    assert loaded.interrupted is None
    assert loaded.usage.input_tokens == 4 + 1


def test_replies_of_a_model_that_repeats_its_message_id_stay_apart(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("go")
    told.reply("", "t1", message_id="same")
    told.results("t1")
    told.reply("Done.", message_id="same")
    assert [m.role for m in read_session(told.path).messages] == ["user", "assistant", "user", "assistant"]


def test_unknown_lines_are_skipped_and_counted_and_the_chain_goes_through_them(writer: Callable[..., Writer]):
    told = writer()
    first = told.prompt("hi")
    with told.path.open("a") as file:
        file.write(json.dumps({"type": "attachment", "uuid": "u-1", "parentUuid": first.id}) + "\n")
        file.write(json.dumps({"type": "file-history-snapshot", "snapshot": {}}) + "\n")
        file.write("garbage\n\n")
        file.write(json.dumps({"type": "user", "isSidechain": True, "uuid": "z"}) + "\n")
    told.reply("hello", parent=EntryId("u-1"))
    loaded = read_session(told.path)
    assert said(loaded) == [("user", "hi"), ("assistant", "hello")]
    notes = " ".join(loaded.notes)
    assert "attachment (1)" in notes
    assert "file-history-snapshot (1)" in notes
    assert "not JSON were skipped: 1" in notes


def test_a_history_with_holes_is_mended_so_that_a_provider_takes_it(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("go")
    told.reply("", "t1", "t2")
    told.results("t1", "stray")
    told.prompt("and then?")
    told.reply("", "t3")
    told.reply("I forgot.")
    loaded = read_session(told.path)
    answered = [
        [(block.tool_use_id, block.is_error) for block in m.content if isinstance(block, ToolResult)]
        for m in loaded.messages
    ]
    assert answered == [[], [], [("t2", True), ("t1", False)], [], [], [("t3", True)], []]
    assert "Results without a call were left out: 1." in loaded.notes
    assert "Calls without a result were marked as interrupted: 2." in loaded.notes


def test_a_broken_chain_is_read_from_where_it_holds(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("lost", parent=EntryId("gone"))
    loaded = read_session(told.path)
    assert said(loaded) == [("user", "lost")]
    assert any("missing" in note for note in loaded.notes)


def test_a_circle_in_the_chain_ends(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("a", parent=EntryId("x"))
    with told.path.open("r+") as file:
        raw = json.loads(file.read())
        file.seek(0)
        file.write(json.dumps(raw | {"parentUuid": raw["uuid"]}) + "\n")
    assert len(read_session(told.path).messages) == 1


def test_the_latest_session_of_a_directory_is_the_one_written_last(writer: Callable[..., Writer], home: Path):
    assert latest_session(home, "/project") is None
    for number, name in enumerate(["s-1", "s-2", "s-3"]):
        told = writer(session=name)
        told.prompt("hi")
        os.utime(told.path, ns=(0, [5, 9, 7][number] * 10**9))
    writer(cwd="/elsewhere", session="s-4").prompt("hi")
    (told.path.parent / "agent-a1.jsonl").write_text("{}\n")
    (told.path.parent / "s-5.jsonl").write_text('{"type":"summary","summary":"nothing was said"}\n')
    assert latest_session(home, "/project") == "s-2"


def test_a_session_is_found_by_its_id_or_the_unique_start_of_it(writer: Callable[..., Writer], home: Path):
    one = writer(session="aaaa-1111", cwd="/one")
    other = writer(session="aaab-2222", cwd="/two")
    for told in (one, other):
        told.prompt("hi")
    assert find_session(home, "aaaa-1111") == one.path
    assert find_session(home, "aaab") == other.path
    with pytest.raises(NoSuchSession, match="start of 2 sessions: aaaa-1111, aaab-2222"):
        find_session(home, "aaa")
    with pytest.raises(NoSuchSession, match="Close to it: aaaa-1111"):
        find_session(home, "aaaa-1112")
    with pytest.raises(NoSuchSession, match="--continue"):
        find_session(home, "zzzz")
    with pytest.raises(NoSuchSession):
        find_session(home, "../one/aaaa-1111")
    with pytest.raises(NoSuchSession):
        read_session(transcript_path(home, "/nowhere", SessionId("aaaa-1111")))


def test_sessions_are_listed_newest_first_with_their_first_prompt(writer: Callable[..., Writer], home: Path):
    for number, name in enumerate(["s-1", "s-2"]):
        told = writer(session=name, cwd=f"/{name}")
        told.prompt("you are in a directory", meta=True)
        told.prompt(f"prompt of {name}")
        told.reply("x")
        os.utime(told.path, ns=(0, (number + 1) * 10**9))
    glances = list_sessions(home)
    assert [(g.session, g.prompt, g.at) for g in glances] == [
        ("s-2", "prompt of s-2", 2000),
        ("s-1", "prompt of s-1", 1000),
    ]
    assert glances[0].size == glances[0].path.stat().st_size
    assert [g.session for g in list_sessions(home, "/s-1")] == ["s-1"]
    assert len(list_sessions(home, limit=1)) == 1


@pytest.mark.spec("HOM-05")
def test_a_fork_is_a_copy_under_a_new_id_that_keeps_what_we_do_not_know(
    writer: Callable[..., Writer], home: Path
):
    told = writer(session="s-1")
    told.prompt("hi")
    foreign = {
        "sessionId": "s-1",
        "type": "novelty",
        "deep": {"sessionId": "s-1", "n": 2**70, "s": "\ud800é"},
    }
    with told.path.open("ab") as file:
        file.write(json.dumps(foreign).encode() + b'\n{"type":"summary","summary":"t"}\n{"torn')
    before = told.path.read_bytes()
    forked = fork_session(told.path, SessionId("s-2"), home=home, cwd="/project")
    assert told.path.read_bytes() == before
    lines = [json.loads(line) for line in forked.read_bytes().splitlines()]
    assert [line.get("sessionId") for line in lines] == ["s-2", "s-2", None]
    assert lines[1] == foreign | {"sessionId": "s-2"}
    loaded = read_session(forked)
    assert (loaded.session, said(loaded)) == ("s-2", [("user", "hi")])
    assert forked.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StoreError, match="already a session"):
        fork_session(told.path, SessionId("s-2"), home=home, cwd="/project")


HOLDER = """
import sys
from pathlib import Path
from shoal.stores.files.locks import SessionLock
lock = SessionLock(Path(sys.argv[1]), "s-1")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.spec("HOM-05")
def test_a_new_mode_leaves_the_other_facts_of_an_agent_as_they_are(home: Path):
    transcript = home / "agent-a1.jsonl"
    facts = {"agentType": "Explore", "theirs": {"a": [1, None]}, "mode": "plan", "depth": 2}
    home.mkdir()
    meta_path(transcript).write_text(json.dumps(facts))
    remember_mode(transcript, "default")
    assert json.loads(meta_path(transcript).read_bytes()) == facts | {"mode": "default"}
    assert recall_unspoken(transcript).mode == "default"


@pytest.mark.spec("TRN-02")
def test_a_session_in_use_is_refused_until_its_process_is_dead(home: Path):
    session = SessionId("s-1")
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline() == b"held\n"
        assert is_held(home, session)
        with pytest.raises(StoreError, match=rf"process {child.pid}.*--fork-session"):
            SessionLock(home, session)
        child.kill()
    assert not is_held(home, session)
    lock = SessionLock(home, session)
    assert is_held(home, session)
    lock.release()
    assert not is_held(home, session)


def test_messages_of_text_alone_are_not_joined(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("one")
    told.prompt("two")
    assert said(read_session(told.path)) == [("user", "one"), ("user", "two")]
    assert read_session(told.path).messages[0].content == (Text(text="one"),)


LISTS_WHILE_ONE_GOES = """
import os, sys
from pathlib import Path
from shoal.stores.files.sessions import list_sessions

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
print(*(glance.session for glance in list_sessions(home) if glance.path.exists()))
"""


def test_a_session_that_is_removed_while_all_are_listed_is_not_among_them(
    home: Path, writer: Callable[..., Writer]
):
    for number in (1, 2):
        writer(session=f"s-{number}", cwd=f"/project-{number}").prompt("Mend the roof.")
    told = subprocess.run(
        [sys.executable, "-c", LISTS_WHILE_ONE_GOES, str(home)], capture_output=True, text=True, check=False
    )
    assert told.stderr == ""
    (left,) = (home / "projects").glob("*/*.jsonl")
    assert told.stdout.split() == [left.stem]
