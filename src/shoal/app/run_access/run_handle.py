"""Handle on a run from another process: its socket while it is live, otherwise its journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct

from shoal.app.model_notices import format_session_notice
from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.app.run_view.run_view import RunView
from shoal.core.agents.identity import AgentIdentity
from shoal.core.agents.subagents import (
    OTHER_MACHINE_PREFIX,
    OTHER_SESSION_PREFIX,
    AgentMessageDeliveryReceipt,
)
from shoal.core.clock import Clock
from shoal.core.errors import (
    AgentRequestRefused,
    RunUnresponsive,
    SessionNotFound,
    ShoalError,
    StateFileError,
)
from shoal.core.events import (
    Event,
    JournaledEvent,
    JournalRecord,
    PermissionModeChanged,
    SessionEnded,
    SessionStarted,
    UnknownJournalEvent,
)
from shoal.core.ids import LEAD_ID, SessionId
from shoal.core.store import QuestionStore, Store
from shoal.runs.control_client import RunControlClient
from shoal.stores.files.home.home_paths import get_run_directory
from shoal.stores.files.locks.pid_locks import is_session_running
from shoal.stores.files.sessions.file_journal import find_offset_of_last_bytes, follow_journal, read_journal
from shoal.stores.files.sessions.journal_snapshots import load_journal_state
from shoal.stores.files.sessions.question_files import QuestionFiles
from shoal.wire.control_codec import (
    EventSubscriptionGap,
    GetRunStatusControlCommand,
    RelayAgentMessageControlCommand,
    RunControlCommand,
    SubscribeToEventsControlCommand,
)

ObservedEvent: TypeAlias = Event | UnknownJournalEvent
ANSWER_TIMEOUT = 5.0
"""Seconds within which a run has to report its status."""
RECENT_SIZE = 1 << 20
"""Bytes at the end of the journal whose events are shown for a long run."""
_ID_CHARS = 8
_MAX_LISTED = 10


class TimedEvent(Struct, frozen=True, kw_only=True):
    """Event with its time, in milliseconds of Unix time."""

    at: int
    event: ObservedEvent


class RunHandle(Struct, frozen=True, kw_only=True):
    session: SessionId
    home: Path
    database: Store | None = None
    """Store of a run in a database; None if the state of the run is in files."""
    journal_home: Path | None = None
    """Home with a copy of the journal of a run in a database."""

    @property
    def directory(self) -> Path:
        return get_run_directory(self.home, self.session)

    @property
    def journal_path(self) -> Path:
        return get_run_directory(self.journal_home or self.home, self.session) / "journal.jsonl"

    @property
    def is_live(self) -> bool:
        if self.database is not None:
            return self.database.is_session_live(self.session)
        return is_session_running(self.home, self.session)

    def read_journal(self, offset: int = 0) -> Iterator[JournalRecord]:
        return read_journal(self.journal_path, offset)

    def open_questions(self) -> QuestionStore:
        if self.database is not None:
            return self.database.find_session(self.session).open_questions()
        return QuestionFiles(self.directory / "questions")


def list_all_live_runs(home: Path) -> list[RunHandle]:
    """Return the runs that a process works on now, in any directory."""
    return [
        run
        for name in _list_run_names(home)
        if (run := RunHandle(session=SessionId(name), home=home)).is_live
    ]


def list_live_runs_in_directory(home: Path, cwd: Path) -> list[RunHandle]:
    """Return the live runs of this directory, the one with the newest event first."""
    return [
        run
        for run in _sort_runs_newest_first(list_all_live_runs(home))
        if read_start_directory(run) == str(cwd)
    ]


def _list_run_names(home: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in (home / "shoal" / "runs").iterdir())
    except OSError:
        return []


def read_start_directory(run: RunHandle) -> str:
    """Return the start directory of the run; empty if its journal does not have it."""
    events = (record.event for record in run.read_journal())
    return next((event.cwd for event in events if isinstance(event, SessionStarted)), "")


class RunStartState:
    """Settings of the lead's last start."""

    snapshot_name: ClassVar[str] = "start"
    snapshot_modules: ClassVar[tuple[str, ...]] = (__name__,)

    def __init__(self) -> None:
        self.requested_model = ""
        """Model name of the last start; empty if it came from settings."""
        self.permission_mode = ""
        """Last permission mode of the lead; empty if the run never started."""

    def apply_record(self, record: JournalRecord) -> None:
        match record.event:
            case SessionStarted(mode=mode, model_named=model):
                self.permission_mode, self.requested_model = mode, model
            case PermissionModeChanged(agent=agent, mode=mode) if agent == LEAD_ID:
                self.permission_mode = mode
            case _:
                pass


def read_start_state(run: RunHandle) -> RunStartState:
    return load_journal_state(run.journal_path, RunStartState)[0]


def find_run(home: Path, name: str) -> RunHandle:
    """Return the run with this session id or unique id prefix."""
    names = _list_run_names(home)
    found = [each for each in names if each == name] or [each for each in names if each.startswith(name)]
    if len(found) != 1:
        reason = (
            f"{len(found)} run ids start with it: {', '.join(found[:5])}"
            if found
            else "no run id starts with it"
        )
        raise SessionNotFound(f"{name!r} does not identify a run in {home}: {reason}.", path=home)
    return RunHandle(session=SessionId(found[0]), home=home)


def find_named_or_latest_run(home: Path, cwd: Path, name: str | None = None) -> RunHandle | None:
    """Return the run with that name, or the latest one started in this directory; None if there is none."""
    if name is not None:
        return find_run(home, name)
    directory = str(cwd.resolve())
    return next((run for run in list_runs_newest_first(home) if read_start_directory(run) == directory), None)


def list_runs_newest_first(home: Path) -> list[RunHandle]:
    """Return all runs that have a journal, the one with the newest event first."""
    return _sort_runs_newest_first(
        RunHandle(session=SessionId(each), home=home) for each in _list_run_names(home)
    )


def _sort_runs_newest_first(runs: Iterable[RunHandle]) -> list[RunHandle]:
    """Sort by the newest event; omit runs without a journal and runs that are being removed."""
    with_times: list[tuple[int, RunHandle]] = []
    for run in runs:
        with suppress(OSError):
            with_times.append((run.journal_path.stat().st_mtime_ns, run))
    return [run for _, run in sorted(with_times, key=lambda each: each[0], reverse=True)]


async def send_control_command(
    run: RunHandle, command: RunControlCommand, *, patience: float | None = ANSWER_TIMEOUT
) -> Any:
    """Return the live run's answer; raises a `ShoalError` if it is not live or refuses.

    After `patience` seconds the run is asked for its status. Raises `RunUnresponsive` if that gets no answer.
    """
    if not run.is_live:
        raise StateFileError(
            f"Session {run.session} has ended, so it cannot respond. Resume it: shoal --resume {run.session}",
            path=run.directory,
        )
    async with asyncio.TaskGroup() as group:
        answer = group.create_task(_request_command_answer(run, command))
        try:
            while not (await asyncio.wait([answer], timeout=patience))[0]:
                if await _is_hanging(run):
                    break
        finally:
            answer.cancel()
    if answer.cancelled() or isinstance(answer.result(), RunUnresponsive):
        raise RunUnresponsive(
            f"The run {run.session} does not respond because its process is suspended or hung. It may still "
            f"carry out your request if it recovers. Stop it: shoal stop {run.session}",
            path=run.directory,
        )
    result = answer.result()
    if isinstance(result, ShoalError):
        raise result
    return result


async def _request_command_answer(run: RunHandle, command: RunControlCommand) -> Any:
    """Return the answer, or the error: a task group would wrap a raised one."""
    try:
        async with await RunControlClient.open(run.directory / "control.sock") as client:
            return await client.send_command(command)
    except ShoalError as error:
        return error


async def _is_hanging(run: RunHandle) -> bool:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            answer = await _request_command_answer(run, GetRunStatusControlCommand())
    except TimeoutError:
        return run.is_live
    return isinstance(answer, RunUnresponsive)


class RecentRunEvents(Struct, frozen=True, kw_only=True):
    """Last events of a run, and the state of its agents after them."""

    statuses: RunViewAgentsState
    offset: int
    """Offset after the last event."""
    start: int
    """Offset of the first one; greater than 0 if there are earlier events."""
    run: RunHandle

    def iter_records(self) -> Iterator[JournalRecord]:
        for record in self.run.read_journal(self.start):
            if record.offset >= self.offset:
                return
            yield record


def load_recent_events(run: RunHandle, size: int = RECENT_SIZE) -> RecentRunEvents:
    """Load the events in the last `size` bytes of the journal: their number does not grow with history."""
    statuses, offset = load_journal_state(run.journal_path, RunViewAgentsState)
    start = find_offset_of_last_bytes(run.journal_path, size, offset)
    return RecentRunEvents(statuses=statuses, offset=offset, start=start, run=run)


async def watch_run_events(run: RunHandle, clock: Clock, offset: int = 0) -> AsyncIterator[TimedEvent]:
    """Yield the past events from an offset on, then all new ones, until the run ends."""
    while run.is_live:
        try:
            client = await RunControlClient.open(run.directory / "control.sock")
        except StateFileError:
            break
        async with client:
            subscription = _RunEventSubscription(offset, clock)
            async for event in subscription.iter_events(client, run):
                yield event
        if subscription.ended:
            return
        offset = subscription.offset
        if subscription.is_silent:
            break
    async for recorded in follow_journal(run.journal_path, offset, is_running=lambda: run.is_live):
        yield TimedEvent(at=recorded.at, event=recorded.event)


class _RunEventSubscription:
    """Events received over one connection, and the journal offset after them."""

    def __init__(self, offset: int, clock: Clock) -> None:
        self.offset = offset
        self._clock = clock
        self.ended = False
        self.is_silent = False
        """True if the run does not answer, so that only its journal can be read."""

    async def iter_events(self, client: RunControlClient, run: RunHandle) -> AsyncIterator[TimedEvent]:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                start = int((await client.send_command(SubscribeToEventsControlCommand()))["offset"])
        except TimeoutError:
            self.is_silent = True
            return
        except ShoalError:
            return
        for recorded in run.read_journal(self.offset):
            if recorded.offset >= start:
                break
            self.offset = recorded.next
            yield TimedEvent(at=recorded.at, event=recorded.event)
        self.offset, journaled = start, 0
        async for event in client.read_events():
            if isinstance(event, EventSubscriptionGap):
                self.offset = event.offset
                return
            self.ended = isinstance(event, SessionEnded)
            journaled += isinstance(event, JournaledEvent)
            yield TimedEvent(at=self._clock.now(), event=event)
        # The run's process may have died after journaling an event and before sending it.
        for recorded in islice(run.read_journal(start), journaled):
            self.offset = recorded.next


def load_run_view(run: RunHandle) -> tuple[RunView, int]:
    """Return the view of its journal, and the offset after the last event."""
    return load_journal_state(run.journal_path, RunView)


def load_agent_statuses(run: RunHandle) -> RunViewAgentsState:
    """Return the status of its agents according to its journal."""
    # Read first, so that the last events of a run that ends meanwhile are included.
    is_live = run.is_live
    statuses, _ = load_journal_state(run.journal_path, RunViewAgentsState)
    if not is_live:
        statuses.mark_agents_lost()
    return statuses


class CrossSessionMessenger:
    """Sends messages of agents to the leads of other sessions on this machine."""

    def __init__(self, home: Path) -> None:
        self._home = home

    async def send(
        self, to: str, text: str, summary: str, sender: AgentIdentity
    ) -> AgentMessageDeliveryReceipt:
        """Send to another session's lead. Raises `AgentRequestRefused`, naming the live sessions."""
        if to.startswith(OTHER_MACHINE_PREFIX):
            raise AgentRequestRefused(format_session_notice("no_bridge"))
        run = self._find_recipient_session(to.removeprefix(OTHER_SESSION_PREFIX), sender)
        relay = RelayAgentMessageControlCommand(
            sender=f"{sender.name}@{sender.session[:_ID_CHARS]}", text=text, summary=summary
        )
        try:
            await send_control_command(run, relay)
        except ShoalError as error:
            raise AgentRequestRefused(
                format_session_notice("session_unreachable", session=run.session, error=error)
            ) from error
        return AgentMessageDeliveryReceipt(
            to=LEAD_ID, name=f"The lead of session {run.session}", how="queued"
        )

    def _find_recipient_session(self, name: str, sender: AgentIdentity) -> RunHandle:
        if name and sender.session.startswith(name):
            raise AgentRequestRefused(format_session_notice("own_session"))
        live = [run for run in list_all_live_runs(self._home) if run.session != sender.session]
        found = [run for run in live if name and run.session.startswith(name)]
        if len(found) == 1:
            return found[0]
        listed = ", ".join(run.session for run in live[:_MAX_LISTED]) or "no other"
        raise AgentRequestRefused(
            format_session_notice(
                "several_sessions" if found else "no_session", name=repr(name), sessions=listed
            )
        )
