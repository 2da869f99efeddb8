from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from store_kit import Writer

from shoal.core.errors import StoreError
from shoal.core.ids import AgentId, SessionId
from shoal.core.names import agent_name, team_name
from shoal.core.roster import agent_id
from shoal.stores.files.places import (
    journal_path,
    run_directory,
    subagent_path,
    subagents_of,
    transcript_path,
)
from shoal.stores.files.sessions import read_session


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.spec("HOM-02")
def test_a_transcript_is_a_private_file_at_the_place_of_its_directory(
    writer: Callable[..., Writer], home: Path
):
    told = writer(cwd="/my project/äb", session="s-1")
    assert not home.exists()
    told.prompt("hi")
    path = home / "projects" / "-my-project--b" / "s-1.jsonl"
    assert told.path == path
    assert mode(path) == 0o600
    for directory in (home, home / "projects", path.parent):
        assert mode(directory) == 0o700


@pytest.mark.spec("HOM-02", "HOM-04")
def test_side_chains_and_runs_have_their_places(home: Path):
    session, agent = SessionId("s-1"), AgentId("a1")
    beside = home / "projects" / "-p" / "s-1" / "subagents" / "agent-a1.jsonl"
    agents = subagents_of(transcript_path(home, "/p", session))
    assert subagent_path(agents, agent) == beside
    assert journal_path(home, session) == home / "shoal" / "runs" / "s-1" / "journal.jsonl"
    for hostile in ("../x", "a/b", "..", ""):
        with pytest.raises(StoreError):
            subagent_path(agents, AgentId(hostile))
        with pytest.raises(StoreError):
            run_directory(home, SessionId(hostile))


def test_the_longest_names_of_a_member_and_its_team_have_a_place(home: Path):
    member = AgentId(agent_id(agent_name("a" * 64), team_name("t" * 64)))
    assert subagent_path(home, member).parent == home


def test_every_entry_is_on_disk_when_append_returns(writer: Callable[..., Writer]):
    told = writer()
    for number in range(3):
        told.prompt(f"prompt {number}")
        lines = told.path.read_bytes().splitlines()
        assert len(lines) == number + 1
        assert json.loads(lines[-1])["message"]["content"][0]["text"] == f"prompt {number}"


def test_a_very_long_directory_name_still_has_a_place(writer: Callable[..., Writer]):
    one, other = writer(cwd="/x" * 400), writer(cwd="/x" * 401)
    one.prompt("hi")
    other.prompt("hi")
    assert one.path.parent != other.path.parent
    assert len(one.path.parent.name) < 256


@pytest.mark.spec("HOM-04")
@pytest.mark.parametrize("session", ["../../etc/passwd", "a/b", "", ".", "..", "-rf", "a\x00b", "x" * 300])
def test_a_session_id_that_is_a_path_is_refused(writer: Callable[..., Writer], session: str):
    with pytest.raises(StoreError, match="cannot be used as the name"):
        writer(session=session)


def test_a_home_that_cannot_be_made_is_named_with_the_way_out(writer: Callable[..., Writer], home: Path):
    home.write_text("a file stands here")
    with pytest.raises(StoreError) as caught:
        writer().prompt("hi")
    assert str(home / "projects") in str(caught.value)
    assert "SHOAL_HOME" in str(caught.value)


@pytest.mark.spec("TRN-01")
def test_a_torn_line_that_cannot_be_put_aside_whole_stays_where_it_is(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("first")
    with told.path.open("ab") as file:
        file.write(b'{"torn": "' + b"x" * 500)
    before = told.path.read_bytes()
    told.transcript.close()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        with pytest.raises(StoreError):
            told.prompt("second")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert told.path.read_bytes() == before


@pytest.mark.spec("TRN-01")
def test_a_full_disk_takes_back_the_torn_line_and_keeps_the_earlier_ones(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("first")
    told.reply("second")
    before = told.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
        with pytest.raises(StoreError) as caught:
            told.prompt("x" * 1000)
        assert told.path.read_bytes() == before
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert str(told.path) in str(caught.value)
    assert "--resume" in str(caught.value)
    told.prompt("third")
    loaded = read_session(told.path)
    assert [message.text for message in loaded.messages] == ["first", "second", "third"]
    assert loaded.notes == ()


def test_a_device_that_is_full_is_an_error_with_its_reason(writer: Callable[..., Writer]):
    told = writer()
    told.path.parent.mkdir(parents=True)
    told.path.symlink_to("/dev/full")
    with pytest.raises(StoreError, match="No space left on device"):
        told.prompt("hi")


def test_a_torn_last_line_is_kept_aside_before_the_next_is_written(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("first")
    whole = told.path.read_bytes()
    with told.path.open("ab") as file:
        file.write(b'{"parentUuid":"x","mess')
    again = writer(last=told.last, seed=2)
    again.prompt("second")
    assert told.path.read_bytes().startswith(whole + b'{"parentUuid":')
    assert [m.text for m in read_session(told.path).messages] == ["first", "second"]
    (aside,) = told.path.parent.glob("*.torn-*")
    assert aside.read_bytes() == b'{"parentUuid":"x","mess'
    assert mode(aside) == 0o600


def test_a_last_line_that_lacks_only_its_newline_is_kept(writer: Callable[..., Writer]):
    told = writer()
    told.prompt("first")
    told.prompt("x" * 200_000)
    told.path.write_bytes(told.path.read_bytes()[:-1])
    assert len(read_session(told.path).messages) == 2
    writer(last=told.last, seed=2).prompt("third")
    assert len(read_session(told.path).messages) == 3
    assert list(told.path.parent.glob("*.torn-*")) == []


CHILD = """
    import os, sys
    from pathlib import Path
    from shoal.core.entries import Said
    from shoal.core.ids import Ids, SessionId
    from shoal.core.messages import user
    from shoal.stores.files.sessions import read_session
    from shoal.stores.files.transcripts import FileTranscript
    from shoal.wire.transcript import Lines

    path, seed = Path(sys.argv[1]), int(sys.argv[2])
    ids = Ids(seed)
    last, number = None, 0
    if path.exists():
        loaded = read_session(path)
        last, number = loaded.last, len(loaded.messages)
    transcript = FileTranscript(path, Lines(session=SessionId("s"), cwd="/", version="0"))
    while True:
        # Several pages long, so that a kill can fall into the middle of a write.
        entry = Said(id=ids.entry(), parent=last, at=0, message=user(f"{number} " + "x" * 50_000))
        transcript.append(entry)
        last, number = entry.id, number + 1
        os.write(1, b"%d\\n" % number)
"""


@pytest.mark.spec("TRN-01")
@pytest.mark.spec("TRN-02")
def test_a_writer_killed_at_any_instant_loses_nothing_it_acknowledged(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    acknowledged = 0
    for round_ in range(20):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CHILD), str(path), str(round_)],
            stdout=subprocess.PIPE,
            env=dict(os.environ),
        )
        with child:
            # Meets the child in its loop, then kills it a little later in a different place each time.
            for _ in range(1 + round_ % 4):
                acknowledged = int(child.stdout.readline())
            for _ in range(round_ * 4_000):
                pass
            child.kill()
            rest = child.stdout.read().split(b"\n")
        acknowledged = max([acknowledged, *(int(line) for line in rest[:-1] if line)])
        loaded = read_session(path)
        numbers = [int(message.text.split()[0]) for message in loaded.messages]
        assert numbers == list(range(len(numbers)))
        # One more may be on disk than was acknowledged: the kill fell between the two.
        assert len(numbers) - acknowledged in (0, 1)
        acknowledged = len(numbers)
