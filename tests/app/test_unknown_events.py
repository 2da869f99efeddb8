"""Events of unknown types are skipped with a note."""

from __future__ import annotations

from pathlib import Path

import shoal
from old_home import WORK, OldHome
from shoal.app.run_view.run_view import build_run_view
from shoal.core.ids import SessionId
from shoal.models.scripted_model import ScriptedModel
from shoal.stores.files.home.home_paths import get_journal_path
from shoal.stores.files.sessions.file_journal import read_journal
from shoal.testing import FakeClock

LINE = '{"at":"2030-01-01T00:00:00.000Z","type":"%s","agent":"lead"}\n'


def append_unknown_events(old_home: OldHome, *types: str) -> Path:
    journal = get_journal_path(old_home.home, SessionId(WORK))
    with journal.open("a") as file:
        file.writelines(LINE % each for each in types)
    return journal


def test_the_run_view_notes_each_unknown_event_type_once(old_home: OldHome) -> None:
    journal = append_unknown_events(old_home, "teleported", "teleported", "cloned")
    view = build_run_view(read_journal(journal))
    notes = [row for row in view.get_delta_since(0).notes if row.kind == "unknown"]
    assert ["'teleported'" in notes[0].text, "'cloned'" in notes[1].text, len(notes)] == [True, True, 2]
    assert view.offset == journal.stat().st_size
    assert view.run.ended


async def test_a_resumed_session_reports_unknown_events(old_home: OldHome) -> None:
    journal = append_unknown_events(old_home, "teleported", "cloned", "teleported")
    clock = FakeClock(start=build_run_view(read_journal(journal)).run.last)
    async with shoal.open(cwd=old_home.project, model=ScriptedModel([]), resume=WORK, clock=clock) as session:
        unread_notes = [note for note in session.notes if "Cannot read" in note]
    assert len(unread_notes) == 1
    assert "(teleported, cloned)" in unread_notes[0]


async def test_known_events_cause_no_note(old_home: OldHome) -> None:
    journal = append_unknown_events(old_home)
    clock = FakeClock(start=build_run_view(read_journal(journal)).run.last)
    async with shoal.open(cwd=old_home.project, model=ScriptedModel([]), resume=WORK, clock=clock) as session:
        assert not [note for note in session.notes if "Cannot read" in note]
