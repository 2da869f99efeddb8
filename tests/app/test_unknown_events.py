"""Events of a type that this version does not know are passed over, and a person is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import shoal
from old_home import WORK, OldHome, unpack_home
from shoal.app.picture.picture import drawn
from shoal.core.ids import SessionId
from shoal.models.scripted import ScriptedModel
from shoal.stores.files.journal import read_journal
from shoal.stores.files.places import journal_path
from shoal.testing import FakeClock

LINE = '{"at":"2030-01-01T00:00:00.000Z","type":"%s","agent":"lead"}\n'


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldHome:
    found = unpack_home(tmp_path)
    monkeypatch.setenv("SHOAL_HOME", str(found.home))
    return found


def add_unknown(old: OldHome, *types: str) -> Path:
    journal = journal_path(old.home, SessionId(WORK))
    with journal.open("a") as file:
        file.writelines(LINE % each for each in types)
    return journal


def test_the_picture_notes_each_unknown_type_once(old: OldHome) -> None:
    journal = add_unknown(old, "teleported", "teleported", "cloned")
    picture = drawn(read_journal(journal))
    notes = [row for row in picture.since(0).notes if row.kind == "unknown"]
    assert ["'teleported'" in notes[0].text, "'cloned'" in notes[1].text, len(notes)] == [True, True, 2]
    assert picture.offset == journal.stat().st_size
    assert picture.run.ended


async def test_a_resumed_session_says_what_it_could_not_read(old: OldHome) -> None:
    journal = add_unknown(old, "teleported", "cloned", "teleported")
    clock = FakeClock(start=drawn(read_journal(journal)).run.last)
    async with shoal.open(cwd=old.project, model=ScriptedModel([]), resume=WORK, clock=clock) as session:
        told = [note for note in session.notes if "Cannot read" in note]
    assert len(told) == 1
    assert "(teleported, cloned)" in told[0]


async def test_nothing_is_said_where_every_event_is_known(old: OldHome) -> None:
    journal = add_unknown(old)
    clock = FakeClock(start=drawn(read_journal(journal)).run.last)
    async with shoal.open(cwd=old.project, model=ScriptedModel([]), resume=WORK, clock=clock) as session:
        assert not [note for note in session.notes if "Cannot read" in note]
