from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from store_helpers import TranscriptWriter, limit_file_size

from shoal.core.errors import StateFileError
from shoal.core.ids import AgentId, SessionId
from shoal.core.names import parse_agent_name, parse_team_name
from shoal.core.teams.roster import format_agent_id
from shoal.stores.files.home.home_paths import (
    get_journal_path,
    get_run_directory,
    get_subagent_transcript_path,
    get_subagent_transcripts_directory,
    get_transcript_path,
)
from shoal.stores.files.sessions.session_files import read_session_transcript


def get_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.spec("HOM-02")
def test_a_transcript_is_a_private_file_in_the_directory_of_its_project(
    writer: Callable[..., TranscriptWriter], home: Path
):
    written = writer(cwd="/my project/äb", session="s-1")
    assert not home.exists()
    written.append_prompt("hi")
    path = home / "projects" / "-my-project--b" / "s-1.jsonl"
    assert written.path == path
    assert get_mode(path) == 0o600
    for directory in (home, home / "projects", path.parent):
        assert get_mode(directory) == 0o700


@pytest.mark.spec("HOM-02", "HOM-04")
def test_transcripts_of_sub_agents_and_journals_have_fixed_paths(home: Path):
    session, agent = SessionId("s-1"), AgentId("a1")
    expected = home / "projects" / "-p" / "s-1" / "subagents" / "agent-a1.jsonl"
    agents = get_subagent_transcripts_directory(get_transcript_path(home, "/p", session))
    assert get_subagent_transcript_path(agents, agent) == expected
    assert get_journal_path(home, session) == home / "shoal" / "runs" / "s-1" / "journal.jsonl"
    for hostile in ("../x", "a/b", "..", ""):
        with pytest.raises(StateFileError):
            get_subagent_transcript_path(agents, AgentId(hostile))
        with pytest.raises(StateFileError):
            get_run_directory(home, SessionId(hostile))


def test_the_longest_member_and_team_names_fit_into_a_file_name(home: Path):
    member = AgentId(format_agent_id(parse_agent_name("a" * 64), parse_team_name("t" * 64)))
    assert get_subagent_transcript_path(home, member).parent == home


def test_every_entry_is_on_disk_when_append_returns(writer: Callable[..., TranscriptWriter]):
    written = writer()
    for number in range(3):
        written.append_prompt(f"prompt {number}")
        lines = written.path.read_bytes().splitlines()
        assert len(lines) == number + 1
        assert json.loads(lines[-1])["message"]["content"][0]["text"] == f"prompt {number}"


def test_a_very_long_working_directory_gets_a_short_unique_name(writer: Callable[..., TranscriptWriter]):
    one, other = writer(cwd="/x" * 400), writer(cwd="/x" * 401)
    one.append_prompt("hi")
    other.append_prompt("hi")
    assert one.path.parent != other.path.parent
    assert len(one.path.parent.name) < 256


@pytest.mark.spec("HOM-04")
@pytest.mark.parametrize("session", ["../../etc/passwd", "a/b", "", ".", "..", "-rf", "a\x00b", "x" * 300])
def test_a_session_id_that_is_a_path_is_refused(writer: Callable[..., TranscriptWriter], session: str):
    with pytest.raises(StateFileError, match="is not a valid session or agent name"):
        writer(session=session)


def test_a_home_that_cannot_be_created_is_named_with_a_remedy(
    writer: Callable[..., TranscriptWriter], home: Path
):
    home.write_text("a file is here")
    with pytest.raises(StateFileError) as caught:
        writer().append_prompt("hi")
    assert str(home / "projects") in str(caught.value)
    assert "SHOAL_HOME" in str(caught.value)


@pytest.mark.spec("TRN-01")
def test_a_torn_line_that_cannot_be_moved_aside_stays_in_the_transcript(
    writer: Callable[..., TranscriptWriter],
):
    written = writer()
    written.append_prompt("first")
    with written.path.open("ab") as file:
        file.write(b'{"torn": "' + b"x" * 500)
    before = written.path.read_bytes()
    written.transcript.close()
    with limit_file_size(100), pytest.raises(StateFileError):
        written.append_prompt("second")
    assert written.path.read_bytes() == before


@pytest.mark.spec("TRN-01")
def test_a_full_disk_removes_the_torn_line_and_keeps_the_earlier_ones(
    writer: Callable[..., TranscriptWriter],
):
    written = writer()
    written.append_prompt("first")
    written.append_reply("second")
    before = written.path.read_bytes()
    with limit_file_size(len(before) + 100):
        with pytest.raises(StateFileError) as caught:
            written.append_prompt("x" * 1000)
        assert written.path.read_bytes() == before
    assert str(written.path) in str(caught.value)
    assert "--resume" in str(caught.value)
    written.append_prompt("third")
    loaded = read_session_transcript(written.path)
    assert [message.text for message in loaded.messages] == ["first", "second", "third"]
    assert loaded.notes == ()


def test_a_full_device_raises_an_error_with_the_reason(writer: Callable[..., TranscriptWriter]):
    written = writer()
    with limit_file_size(0), pytest.raises(StateFileError, match="File too large"):
        written.append_prompt("hi")


def test_a_torn_last_line_is_moved_aside_before_the_next_is_written(writer: Callable[..., TranscriptWriter]):
    written = writer()
    written.append_prompt("first")
    whole = written.path.read_bytes()
    with written.path.open("ab") as file:
        file.write(b'{"parentUuid":"x","mess')
    again = writer(last=written.last, seed=2)
    again.append_prompt("second")
    assert written.path.read_bytes().startswith(whole + b'{"parentUuid":')
    assert [m.text for m in read_session_transcript(written.path).messages] == ["first", "second"]
    (aside,) = written.path.parent.glob("*.torn-*")
    assert aside.read_bytes() == b'{"parentUuid":"x","mess'
    assert get_mode(aside) == 0o600


def test_a_last_line_that_lacks_only_its_newline_is_kept(writer: Callable[..., TranscriptWriter]):
    written = writer()
    written.append_prompt("first")
    written.append_prompt("x" * 200_000)
    written.path.write_bytes(written.path.read_bytes()[:-1])
    assert len(read_session_transcript(written.path).messages) == 2
    writer(last=written.last, seed=2).append_prompt("third")
    assert len(read_session_transcript(written.path).messages) == 3
    assert list(written.path.parent.glob("*.torn-*")) == []


WRITER_SCRIPT = """
    import os, sys
    from pathlib import Path
    from shoal.core.conversation.transcript_entries import TranscriptMessageEntry
    from shoal.core.ids import IdGenerator, SessionId
    from shoal.core.conversation.messages import user_message
    from shoal.stores.files.sessions.session_files import read_session_transcript
    from shoal.stores.files.sessions.file_transcript import FileTranscript
    from shoal.wire.transcript_codec import TranscriptEncoder

    path, seed = Path(sys.argv[1]), int(sys.argv[2])
    ids = IdGenerator(seed)
    last, number = None, 0
    if path.exists():
        loaded = read_session_transcript(path)
        last, number = loaded.last, len(loaded.messages)
    transcript = FileTranscript(path, TranscriptEncoder(session=SessionId("s"), cwd="/", version="0"))
    while True:
        # Several pages long, so that a kill can hit the middle of a write.
        message = user_message(f"{number} " + "x" * 50_000)
        entry = TranscriptMessageEntry(id=ids.new_entry_id(), parent=last, at=0, message=message)
        transcript.append(entry)
        last, number = entry.id, number + 1
        os.write(1, b"%d\\n" % number)
"""


@pytest.mark.slow
@pytest.mark.spec("TRN-01")
@pytest.mark.spec("TRN-02")
def test_a_writer_killed_at_any_instant_loses_nothing_it_acknowledged(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    acknowledged = 0
    for round_ in range(20):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER_SCRIPT), str(path), str(round_)],
            stdout=subprocess.PIPE,
            env=dict(os.environ),
        )
        with child:
            # Waits until the child writes, then kills it at another instant in each round.
            for _ in range(1 + round_ % 4):
                acknowledged = int(child.stdout.readline())
            for _ in range(round_ * 4_000):
                pass
            child.kill()
            rest = child.stdout.read().split(b"\n")
        acknowledged = max([acknowledged, *(int(line) for line in rest[:-1] if line)])
        loaded = read_session_transcript(path)
        numbers = [int(message.text.split()[0]) for message in loaded.messages]
        assert numbers == list(range(len(numbers)))
        # One more may be on disk than was acknowledged: the kill fell between the two.
        assert len(numbers) - acknowledged in (0, 1)
        acknowledged = len(numbers)
