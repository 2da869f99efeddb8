"""What other processes read of a run, and which runs they can reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.app.run_access.run_handle import (
    CrossSessionMessenger,
    RunHandle,
    load_recent_events,
    read_start_directory,
    read_start_state,
)
from shoal.core.agents.identity import AgentIdentity
from shoal.core.clock import SystemClock
from shoal.core.errors import AgentRequestRefused, StateFileError
from shoal.core.events import JournaledEvent, NoteAdded, PermissionModeChanged, SessionStarted
from shoal.core.ids import LEAD_ID, AgentId, SessionId
from shoal.stores.files.home.home_paths import get_journal_path
from shoal.stores.files.locks.pid_locks import SessionLock
from shoal.stores.files.sessions.file_journal import FileJournal

SENDER = SessionId("aaaa0000-0000-4000-8000-000000000000")
ONE = SessionId("bbbb1111-0000-4000-8000-000000000000")
TWO = SessionId("bbbb2222-0000-4000-8000-000000000000")


def make_run(home: Path, session: SessionId, *events: JournaledEvent) -> RunHandle:
    journal = FileJournal(get_journal_path(home, session), SystemClock())
    for event in events:
        journal.append(event)
    return RunHandle(session=session, home=home)


def make_start(**more: object) -> SessionStarted:
    fields = {"cwd": "/project", "model": "m", "mode": "default", "tools": (), **more}
    return SessionStarted(agent=LEAD_ID, session=ONE, **fields)  # type: ignore[arg-type]


def change_mode(mode: str, agent: AgentId = LEAD_ID) -> PermissionModeChanged:
    return PermissionModeChanged(agent=agent, mode=mode)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], ("", "", None, None)),
        ([make_start()], ("default", "", None, None)),
        (
            [make_start(mode="plan", model_named="best", budget_usd=1.5, budget_tokens=9)],
            ("plan", "best", 1.5, 9),
        ),
        ([make_start(budget_usd=1.5), make_start(mode="plan")], ("plan", "", None, None)),
        ([make_start(), change_mode("acceptEdits")], ("acceptEdits", "", None, None)),
        ([make_start(), change_mode("plan", AgentId("a1"))], ("default", "", None, None)),
    ],
)
def test_the_start_of_a_run_is_that_of_its_last_start_and_the_mode_the_latest(
    tmp_path: Path, events: list[JournaledEvent], expected: tuple[object, ...]
) -> None:
    run = make_run(tmp_path, ONE, *events)
    state = read_start_state(run)
    found = (state.permission_mode, state.requested_model, state.budget_usd, state.budget_tokens)
    assert found == expected
    assert read_start_directory(run) == ("/project" if events else "")


@pytest.mark.parametrize("size", [0, 1, 500, 1_000_000])
def test_the_recent_events_are_those_in_the_last_bytes_of_the_journal(tmp_path: Path, size: int) -> None:
    run = make_run(tmp_path, ONE, *(NoteAdded(agent=LEAD_ID, text=f"note {number}") for number in range(50)))
    whole = run.journal_path.stat().st_size
    recent = load_recent_events(run, size)
    # Those that are written later come from the offset on.
    make_run(tmp_path, ONE, NoteAdded(agent=LEAD_ID, text="later"))
    records = list(recent.iter_records())
    assert recent.offset == whole
    assert (recent.start == 0) is (size > whole)
    texts = [record.event.text for record in records if isinstance(record.event, NoteAdded)]
    assert texts == [f"note {number}" for number in range(50 - len(texts), 50)]
    shown = whole - (records[0].offset if records else whole)
    assert shown <= size or len(records) == 1
    assert len(texts) == 50 or size < whole
    assert len(texts) >= min(50, size // (whole // 50) - 1)


async def send(messenger: CrossSessionMessenger, to: str) -> str:
    sender = AgentIdentity(session=SENDER, agent=LEAD_ID, name="lead")
    with pytest.raises(AgentRequestRefused) as refused:
        await messenger.send(to, "Hello.", "a greeting", sender)
    return str(refused.value)


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("bridge:elsewhere", "no bridge is configured"),
        ("aaaa", "That is your own session"),
        ("uds:aaaa0000", "That is your own session"),
        ("cccc", f"there is no live session 'cccc'. Live sessions: {ONE}, {TWO}."),
        ("uds:", f"there is no live session ''. Live sessions: {ONE}, {TWO}."),
        ("bbbb", f"more than one live session starts with 'bbbb'. Live sessions: {ONE}, {TWO}."),
        ("uds:bbbb1", f"the session {ONE} cannot be reached."),
    ],
)
async def test_a_message_to_another_session_needs_the_start_of_one_live_id(
    tmp_path: Path, to: str, expected: str
) -> None:
    runs = [RunHandle(session=each, home=tmp_path) for each in (SENDER, ONE, TWO)]
    assert expected in await send(CrossSessionMessenger(lambda: runs), to)


async def test_a_sender_alone_on_the_machine_is_told_so(tmp_path: Path) -> None:
    runs = [RunHandle(session=SENDER, home=tmp_path)]
    assert "Live sessions: no other." in await send(CrossSessionMessenger(lambda: runs), "bbbb")


def test_only_a_live_run_can_be_controlled(tmp_path: Path) -> None:
    run = make_run(tmp_path, ONE, make_start())
    assert not run.is_live
    assert run.pid is None
    with pytest.raises(StateFileError, match="has ended, so it cannot respond") as error:
        run.check_controllable()
    assert error.value.path == run.directory
    lock = SessionLock(tmp_path, ONE)
    assert run.is_live
    run.check_controllable()
    lock.release()
    assert not run.is_live
