"""Runs of a home as other processes find, read and lock them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shoal.app.run_access.event_index import (
    LATEST_EVENTS,
    load_event_index,
    read_events_of_kinds,
    read_records_at,
)
from shoal.app.run_access.run_handle import (
    CrossSessionMessenger,
    RunHandle,
    load_agent_statuses,
    load_recent_events,
    read_start_directory,
    read_start_state,
    send_control_command,
)
from shoal.app.run_access.run_termination import stop_or_kill_run
from shoal.app.run_access.stored_runs import (
    StoredRuns,
    list_reachable_runs,
    lock_run,
    open_session_run,
    open_stored_runs,
    run_with_current_copies,
)
from shoal.core.agents.identity import AgentIdentity
from shoal.core.clock import SystemClock
from shoal.core.errors import AgentRequestRefused, SessionNotFound, StateFileError
from shoal.core.events import (
    AgentStarted,
    Event,
    JournaledEvent,
    NoteAdded,
    PermissionDenied,
    PermissionModeChanged,
    SessionStarted,
    TurnStarted,
)
from shoal.core.ids import LEAD_ID, AgentId, SessionId
from shoal.stores.files.file_store import FileStore
from shoal.stores.files.locks.pid_locks import SessionLock
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.stores.memory.memory_store import MemoryStore
from shoal.wire.control_codec import GetRunStatusControlCommand

ANN, BOB = AgentId("ann"), AgentId("bob")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def start_session(cwd: Path | str = "/", model: str = "", mode: str = "default") -> SessionStarted:
    return SessionStarted(
        agent=LEAD_ID,
        session=SessionId("s"),
        cwd=str(cwd),
        model="m",
        mode=mode,
        tools=(),
        resumed=False,
        model_named=model,
    )


def add_run(home: Path, name: str, *events: JournaledEvent, time: int = 0) -> RunHandle:
    run = RunHandle(session=SessionId(name), home=home)
    journal = FileJournal(run.journal_path, SystemClock())
    for event in events or (start_session(),):
        journal.append(event)
    journal.close()
    os.utime(run.journal_path, (time, time))
    return run


def add_notes(agent: AgentId, *texts: str) -> list[NoteAdded]:
    return [NoteAdded(agent=agent, text=text) for text in texts]


def list_names(runs: list[RunHandle]) -> list[str]:
    return [run.session for run in runs]


@pytest.fixture
def runs(home: Path) -> StoredRuns:
    for number, name in enumerate(("b", "a", "ab", "abc", "c1", "c2")):
        cwd = "/x" if name in {"ab", "c1"} else "/y"
        add_run(home, name, start_session(cwd), time=1000 + number)
    (home / "shoal" / "runs" / "empty").mkdir()
    return open_stored_runs(home)


@pytest.fixture
def live(home: Path, runs: StoredRuns) -> Iterator[None]:
    with ExitStack() as locks:
        for name in ("a", "ab", "c2", "empty"):
            locks.callback(SessionLock(home, SessionId(name)).release)
        yield


@pytest.mark.parametrize(
    ("start", "found"),
    [("b", "b"), ("a", "a"), ("ab", "ab"), ("abc", "abc"), ("c1", "c1"), ("e", "empty"), ("empty", "empty")],
)
def test_a_run_is_found_by_its_id_or_a_unique_beginning(runs: StoredRuns, start: str, found: str) -> None:
    assert runs.find_run(start).session == found
    assert runs.find_named_or_latest_run(Path("/x"), start) == runs.find_run(start)


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("x", "no run id starts with it."),
        ("abcd", "no run id starts with it."),
        ("c", "2 run ids start with it: c1, c2."),
        ("", "7 run ids start with it: a, ab, abc, b, c1."),
    ],
)
def test_a_beginning_that_names_no_or_several_runs_is_refused(
    runs: StoredRuns, home: Path, start: str, reason: str
) -> None:
    with pytest.raises(SessionNotFound) as refused:
        runs.find_run(start)
    assert str(refused.value).endswith(f"{start!r} does not identify a run in {home}: {reason}")
    assert refused.value.path == home


def test_runs_are_listed_newest_first_and_those_of_a_directory_are_found(
    runs: StoredRuns, live: None, tmp_path: Path, home: Path
) -> None:
    assert list_names(runs.list_runs_newest_first()) == ["c2", "c1", "abc", "ab", "a", "b"]
    assert list_names(runs.list_live_runs()) == ["a", "ab", "c2", "empty"]
    assert list_names(runs.list_live_runs_in_directory(Path("/x"))) == ["ab"]
    assert list_names(runs.list_live_runs_in_directory(Path("/y"))) == ["c2", "a"]
    latest = runs.find_named_or_latest_run(Path("/x"))
    assert latest is not None
    assert latest.session == "c1"
    assert runs.find_named_or_latest_run(tmp_path) is None
    assert StoredRuns(home=tmp_path / "missing").list_runs_newest_first() == []
    assert runs.journals_home == home
    assert runs.open_run(SessionId("a")) == RunHandle(session=SessionId("a"), home=home)


def test_runs_of_a_store_are_in_its_home_and_others_in_that_of_the_user(
    runs: StoredRuns, live: None, home: Path, tmp_path: Path
) -> None:
    files, memory = FileStore(home), MemoryStore()
    assert open_session_run(files, SessionId("a"), tmp_path).home == home
    assert open_session_run(files, SessionId("a"), tmp_path).store is files
    assert open_session_run(memory, SessionId("a"), tmp_path).home == tmp_path
    assert list_names(list_reachable_runs(files, tmp_path)) == ["a", "ab", "c2", "empty"]
    assert list_names(list_reachable_runs(memory, home)) == ["a", "ab", "c2", "empty"]
    assert list_reachable_runs(memory, tmp_path) == []
    assert RunHandle(session=SessionId("a"), home=home).get_store().list_session_questions() == ()
    assert RunHandle(session=SessionId("a"), home=home, store=memory).get_store() is memory
    assert StoredRuns(home=home, store=memory).get_store() is memory


def test_a_live_run_cannot_be_locked_and_a_locked_run_is_live(
    runs: StoredRuns, live: None, home: Path
) -> None:
    with pytest.raises(StateFileError, match=f"process {os.getpid()}"), lock_run(runs.find_run("ab")):
        raise AssertionError
    run = runs.find_run("b")
    assert (run.is_live, run.pid) == (False, None)
    with lock_run(run):
        assert (run.is_live, run.pid) == (True, os.getpid())
        run.check_controllable()
    with pytest.raises(ZeroDivisionError), lock_run(run):
        raise ZeroDivisionError
    assert run.is_live is False
    assert run.journal_path.exists()
    new = runs.open_run(SessionId("new"))
    with lock_run(new):
        assert new.directory.exists()
    assert not new.directory.exists(), "the lock of a run that is not there leaves nothing"


async def test_an_ended_run_is_not_controllable_and_says_how_to_resume_it(runs: StoredRuns) -> None:
    run = runs.find_run("b")
    for attempt in (send_control_command(run, GetRunStatusControlCommand()), stop_or_kill_run(run)):
        with pytest.raises(StateFileError, match="shoal --resume b") as refused:
            await attempt
        assert refused.value.path == run.directory


async def test_work_on_runs_in_files_needs_no_copies() -> None:
    async def work() -> int:
        return 5

    assert await run_with_current_copies(None, work()) == 5


@pytest.mark.parametrize(
    ("events", "directory", "model", "mode"),
    [
        ((), "", "", ""),
        ((start_session("/x", "opus", "plan"),), "/x", "opus", "plan"),
        ((start_session("/x", "opus", "plan"), start_session("/y")), "/x", "", "default"),
        ((start_session(), PermissionModeChanged(agent=LEAD_ID, mode="plan")), "/", "", "plan"),
        ((start_session(), PermissionModeChanged(agent=ANN, mode="plan")), "/", "", "default"),
    ],
)
def test_the_settings_of_the_last_start_are_those_of_the_lead(
    home: Path, events: tuple[JournaledEvent, ...], directory: str, model: str, mode: str
) -> None:
    run = add_run(home, "s", *add_notes(LEAD_ID, "first"), *events)
    assert read_start_directory(run) == directory
    state = read_start_state(run)
    assert (state.requested_model, state.permission_mode) == (model, mode)


def test_recent_events_are_those_at_the_end_when_they_were_loaded(home: Path) -> None:
    run = add_run(
        home, "s", start_session(), *add_notes(LEAD_ID, *(f"note {number}" for number in range(50)))
    )
    size = run.journal_path.stat().st_size
    everything, few = load_recent_events(run), load_recent_events(run, size // 5)
    journal = FileJournal(run.journal_path, SystemClock())
    journal.append(NoteAdded(agent=LEAD_ID, text="later"))
    journal.close()
    assert (everything.start, everything.offset, few.offset) == (0, size, size)
    assert 0 < size - few.start <= size // 5
    assert len(list(everything.iter_records())) == 51
    texts = [record.event.text for record in few.iter_records() if isinstance(record.event, NoteAdded)]
    assert texts == [f"note {number}" for number in range(50 - len(texts), 50)]
    assert 5 <= len(texts) <= 11


def test_the_index_has_every_event_of_its_kinds_and_the_latest_of_each_agent(home: Path) -> None:
    counts = {ANN: 2 * LATEST_EVENTS + 50, BOB: 3, LEAD_ID: LATEST_EVENTS}
    notes = [note for agent, count in counts.items() for note in add_notes(agent, *map(str, range(count)))]
    denied = [PermissionDenied(agent=agent, call="c", tool="Bash", reason="r") for agent in (BOB, ANN)]
    run = add_run(home, "s", *notes, denied[0], start_session(), denied[1])
    index, end = load_event_index(run)
    assert end == run.journal_path.stat().st_size
    for agent, count in counts.items():
        assert index.has_agent(agent)
        found = [record.event for record in read_records_at(run, index.get_latest_offsets(agent))]
        expected = [event for event in (*notes, *denied, start_session()) if event.agent == agent]
        if agent == ANN:
            expected = [*notes[: counts[ANN]], denied[1]]
        assert found == expected[-LATEST_EVENTS:]
        assert len(found) == min(LATEST_EVENTS, count + 1)
    assert {agent: len(offsets) for agent, offsets in index._by_agent.items()} == {
        ANN: LATEST_EVENTS + 51,
        BOB: 4,
        LEAD_ID: LATEST_EVENTS + 1,
    }, "it does not grow with the history"
    assert not index.has_agent("carl")
    assert list(index.get_latest_offsets("carl")) == []
    kinds: tuple[type[Event], ...] = (PermissionDenied, SessionStarted)
    assert [event for _, event in read_events_of_kinds(run, *kinds)] == [
        denied[0],
        start_session(),
        denied[1],
    ]
    assert [event for _, event in read_events_of_kinds(run, SessionStarted)] == [start_session()]
    assert list(read_events_of_kinds(run, AgentStarted)) == []
    with pytest.raises(ValueError, match="NoteAdded, TurnStarted"):
        list(read_events_of_kinds(run, NoteAdded, SessionStarted, TurnStarted))


def test_a_run_without_a_journal_has_no_events(home: Path) -> None:
    run = RunHandle(session=SessionId("s"), home=home)
    assert list(read_events_of_kinds(run, PermissionDenied)) == []


def test_agents_of_a_run_are_lost_unless_a_process_works_on_it(home: Path) -> None:
    run = add_run(home, "s", start_session(), TurnStarted(agent=LEAD_ID, turn=1, prompt="p"))
    states = []
    for is_live in (True, False):
        with ExitStack() as locks:
            if is_live:
                locks.callback(SessionLock(home, run.session).release)
            states.append(load_agent_statuses(run).all[LEAD_ID].state)
    assert states == ["working", "idle"]


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("uds:me", "That is your own session"),
        ("uds:m", "That is your own session"),
        ("uds:", "no live session ''. Live sessions: a, ab, c2, empty"),
        ("uds:x", "no live session 'x'. Live sessions: a, ab, c2, empty"),
        ("uds:a", "more than one live session starts with 'a'. Live sessions: a, ab, c2, empty"),
        ("bridge:there", "another machine"),
    ],
)
async def test_a_message_to_no_or_several_sessions_is_refused_with_the_live_ones(
    runs: StoredRuns, live: None, to: str, message: str
) -> None:
    sender = AgentIdentity(session=SessionId("me"), agent=LEAD_ID, name="lead")
    with pytest.raises(AgentRequestRefused, match=message):
        await CrossSessionMessenger(runs.list_live_runs).send(to, "text", "summary", sender)
