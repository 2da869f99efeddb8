"""The debug log on disk."""

from __future__ import annotations

import fcntl
import stat
from pathlib import Path

import pytest

from shoal.core.errors import StateFileError
from shoal.core.events import (
    HookRan,
    ModelRequestSent,
    NoteAdded,
    PermissionModeChanged,
    SessionEnded,
    ToolStarted,
)
from shoal.core.ids import LEAD_ID, RequestId, SessionId
from shoal.stores.files.sessions.debug_log import DebugLog
from shoal.wire.json_codec import encode_json


def test_a_debug_log_that_cannot_be_written_is_named_in_the_error(home, clock):
    (home / "debug" / "s-1.txt").mkdir(parents=True)
    with pytest.raises(StateFileError, match=r"Cannot write .*s-1\.txt"):
        DebugLog(home / "debug", SessionId("s-1"), clock)


NOTE, ENDED = NoteAdded(agent=LEAD_ID, text="one"), SessionEnded(agent=LEAD_ID)
SUBJECT_EVENTS = {
    "api": ModelRequestSent(agent=LEAD_ID, request=RequestId("r"), model="m"),
    "hooks": HookRan(agent=LEAD_ID, event="Stop", hook="h", origin="o", duration_ms=1, verdict="went on"),
    "tools": ToolStarted(agent=LEAD_ID, call="c", tool="Read", preview=""),
    "permissions": PermissionModeChanged(agent=LEAD_ID, mode="plan"),
}


@pytest.mark.parametrize(
    ("event_filter", "expected"),
    [
        ("", "both"),
        (" , ", "both"),
        ("note", "note"),
        ("NOTE , nothing", "note"),
        ("note,session", "both"),
        ("!note", "end"),
        ("!session", "note"),
        ("note,!note", "none"),
        ("!note,!session", "none"),
        ("hooks", "none"),
    ],
)
def test_the_words_of_the_filter_choose_the_events(home, clock, event_filter, expected):
    log = DebugLog(home / "debug", SessionId("s-1"), clock, event_filter=event_filter)
    log.write_event(NOTE)
    log.write_event(ENDED)
    log.close()
    lines = (home / "debug" / "s-1.txt").read_text().splitlines()
    assert ['"noted"' in line for line in lines] == {
        "both": [True, False],
        "note": [True],
        "end": [False],
        "none": [],
    }[expected]


@pytest.mark.parametrize("word", ["api", "hooks", "tools", "permissions"])
def test_words_of_another_program_name_the_events_of_their_subject(home, clock, word):
    log = DebugLog(home / "debug", SessionId("s-1"), clock, event_filter=word)
    for event in (NOTE, *SUBJECT_EVENTS.values()):
        log.write_event(event)
    log.close()
    (line,) = (home / "debug" / "s-1.txt").read_text().splitlines()
    assert encode_json(SUBJECT_EVENTS[word]).decode() in line


def test_a_debug_log_is_private_locked_and_has_a_link(home, clock, tmp_path):
    directory = home / "debug"
    first = DebugLog(directory, SessionId("s-1"), clock)
    first.write_text("Key sk-ant-api03-" + "a" * 60)
    path = directory / "s-1.txt"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (directory / "latest").readlink() == Path("s-1.txt")
    assert "Key " in path.read_text()
    assert "a" * 60 not in path.read_text()
    with path.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # Two sessions may write to one file.
    own = tmp_path / "own.txt"
    own.write_text("earlier\n")
    logs = [DebugLog(directory, SessionId(name), clock, path=own) for name in ("s-2", "s-3")]
    for log in (first, *logs):
        log.write_event(NOTE)
        log.close()
    assert (directory / "latest").readlink() == own
    assert own.read_text().startswith("earlier\n")
    assert len(own.read_text().splitlines()) == 3
    assert not (directory / "s-2.txt").exists()
