"""What other processes read of a run, and which runs they can reach."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shoal.app.run_access import run_handle
from shoal.app.run_access.run_handle import (
    CrossSessionMessenger,
    RunHandle,
    load_recent_events,
    read_start_directory,
    read_start_state,
    send_control_command,
    watch_run_events,
)
from shoal.app.run_access.run_termination import stop_or_kill_run
from shoal.core.agents.identity import AgentIdentity
from shoal.core.clock import SystemClock
from shoal.core.errors import AgentRequestRefused, RunUnresponsive, ShoalError, StateFileError
from shoal.core.events import JournaledEvent, NoteAdded, PermissionModeChanged, SessionEnded, SessionStarted
from shoal.core.ids import LEAD_ID, AgentId, SessionId
from shoal.runs.control_server import RunControlServer
from shoal.stores.files.home.home_paths import get_journal_path
from shoal.stores.files.locks.pid_locks import SessionLock
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.stores.postgres.run_copies import RunCopies, RunHolder
from shoal.wire.control_codec import (
    GetRunStatusControlCommand,
    InterruptTurnControlCommand,
    RunControlCommand,
    SetModelControlCommand,
)

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


class AnsweringRun:
    """A live run that answers some commands, refuses others and lets the rest wait."""

    def __init__(self, home: Path, *, answers_status: bool) -> None:
        self.handle = RunHandle(session=ONE, home=home)
        self._answers_status = answers_status
        self.is_waiting, self.can_answer = asyncio.Event(), asyncio.Event()
        self.status_requests = 0
        self._lock = SessionLock(home, ONE)
        self.server = RunControlServer(
            self.handle.directory / "control.sock",
            handle=self._answer,
            steer=lambda _: None,
            position=lambda: 0,
        )

    async def _answer(self, command: RunControlCommand) -> Any:
        match command:
            case GetRunStatusControlCommand():
                self.status_requests += 1
                if not self._answers_status:
                    await self.can_answer.wait()
                return {"turn": 3}
            case SetModelControlCommand(model=model):
                raise ShoalError(f"{model} is not offered")
            case _:
                self.is_waiting.set()
                await self.can_answer.wait()
                return "interrupted"

    def end(self) -> None:
        self._lock.release()


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_handle, "ANSWER_TIMEOUT", 0.05)


async def test_a_command_returns_the_answer_of_the_run_or_raises_its_refusal(tmp_path: Path) -> None:
    run = AnsweringRun(tmp_path, answers_status=True)
    async with run.server:
        run.server.start_serving()
        assert await send_control_command(run.handle, GetRunStatusControlCommand()) == {"turn": 3}
        with pytest.raises(ShoalError, match="best is not offered"):
            await send_control_command(run.handle, SetModelControlCommand(model="best"))
    assert run.status_requests == 1
    run.end()


async def test_a_slow_answer_is_awaited_as_long_as_the_run_tells_its_status(tmp_path: Path) -> None:
    run = AnsweringRun(tmp_path, answers_status=True)
    async with asyncio.timeout(30), run.server:
        run.server.start_serving()
        answer = asyncio.ensure_future(
            send_control_command(run.handle, InterruptTurnControlCommand(), patience=0.01)
        )
        while run.status_requests < 3:
            await asyncio.sleep(0)
        assert not answer.done()
        run.can_answer.set()
        assert await answer == "interrupted"
    run.end()


@pytest.mark.usefixtures("short_timeouts")
async def test_a_run_that_does_not_tell_its_status_either_does_not_respond(tmp_path: Path) -> None:
    run = AnsweringRun(tmp_path, answers_status=False)
    async with asyncio.timeout(30), run.server:
        run.server.start_serving()
        with pytest.raises(RunUnresponsive, match=f"Stop it: shoal stop {ONE}") as error:
            await send_control_command(run.handle, InterruptTurnControlCommand(), patience=0.01)
        assert error.value.path == run.handle.directory
        run.can_answer.set()
    run.end()


@pytest.mark.usefixtures("short_timeouts")
async def test_a_run_that_ends_before_it_answers_is_no_unresponsive_one(tmp_path: Path) -> None:
    run = AnsweringRun(tmp_path, answers_status=False)
    async with asyncio.timeout(30):
        async with run.server:
            run.server.start_serving()
            answer = asyncio.ensure_future(
                send_control_command(run.handle, InterruptTurnControlCommand(), patience=0.01)
            )
            await run.is_waiting.wait()
            run.end()
            while not run.status_requests:
                await asyncio.sleep(0)
        with pytest.raises(ShoalError) as error:
            await answer
    assert not isinstance(error.value, RunUnresponsive)


async def test_an_observer_that_cannot_connect_reads_the_journal_to_its_end(tmp_path: Path) -> None:
    run = make_run(tmp_path, ONE, make_start(), SessionEnded(agent=LEAD_ID))
    async with asyncio.timeout(30):
        events = [each.event async for each in watch_run_events(run, SystemClock())]
        assert [type(event) for event in events] == [SessionStarted, SessionEnded]
        start = next(iter(run.read_journal())).next
        later = [each.event async for each in watch_run_events(run, SystemClock(), start)]
        assert later == events[1:]


class CopiedRuns(RunCopies):
    """Copies of runs in a database, of which one process works on each run, or none."""

    def __init__(self, home: Path, holder: RunHolder | None) -> None:
        super().__init__("postgresql://nowhere", home)
        self._holder = holder

    def find_holder(self, session: SessionId) -> RunHolder | None:
        return self._holder


@pytest.mark.parametrize(
    ("holder", "has_directory", "pid", "problem"),
    [
        (None, True, None, "has ended, so it cannot respond"),
        (RunHolder(host="here", pid=7, is_local=True), True, 7, None),
        (RunHolder(host="here", pid=7, is_local=True), False, 7, "in process 7 on here, with another home"),
        (RunHolder(host="there", pid=7, is_local=False), True, None, "on the machine there, in process 7"),
    ],
)
def test_a_run_in_a_database_is_controlled_only_from_its_machine_and_home(
    tmp_path: Path, holder: RunHolder | None, has_directory: bool, pid: int | None, problem: str | None
) -> None:
    copies = CopiedRuns(tmp_path, holder)
    run = RunHandle(session=ONE, home=tmp_path, copies=copies)
    if has_directory:
        run.directory.mkdir(parents=True)
    assert (run.is_live, run.pid) == (holder is not None, pid)
    assert run.journal_path == get_journal_path(copies.home, ONE)
    if problem is None:
        run.check_controllable()
        return
    with pytest.raises(StateFileError, match=problem) as error:
        run.check_controllable()
    assert error.value.path == run.directory


async def test_a_run_on_another_machine_is_not_waited_for_when_it_is_to_be_stopped(tmp_path: Path) -> None:
    holder = RunHolder(host="there", pid=7, is_local=False)
    run = RunHandle(session=ONE, home=tmp_path, copies=CopiedRuns(tmp_path, holder))
    async with asyncio.timeout(5):  # less than the time in which a run may end on its own
        with pytest.raises(StateFileError, match="on the machine there, in process 7"):
            await stop_or_kill_run(run)
