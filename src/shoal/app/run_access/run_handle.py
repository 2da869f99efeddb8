"""Handle on a run from another process: its socket while it is live, otherwise its journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from msgspec import Struct

from shoal.app.model_notices import format_session_notice
from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.app.run_view.run_view import RunView
from shoal.app.settings.configured_store import open_given_store
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
from shoal.stores.files.locks.pid_locks import find_session_pid, is_session_running
from shoal.stores.files.sessions.file_journal import find_offset_of_last_bytes, follow_journal, read_journal
from shoal.stores.files.sessions.journal_snapshots import load_journal_state
from shoal.wire.control_codec import (
    EventSubscriptionGap,
    GetRunStatusControlCommand,
    RelayAgentMessageControlCommand,
    RunControlCommand,
    SubscribeToEventsControlCommand,
)

if TYPE_CHECKING:
    from shoal.stores.postgres.run_copies import RunCopies

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
    store: Store | None = None
    """Store of the run; None for the files of the home."""
    copies: RunCopies | None = None
    """Copies of the journal and transcripts of a run in a database; None if they are files."""

    @property
    def directory(self) -> Path:
        return get_run_directory(self.home, self.session)

    @property
    def journal_path(self) -> Path:
        home = self.home if self.copies is None else self.copies.home
        return get_run_directory(home, self.session) / "journal.jsonl"

    @property
    def is_live(self) -> bool:
        if self.copies is not None:
            return self.copies.find_holder(self.session) is not None
        return is_session_running(self.home, self.session)

    @property
    def pid(self) -> int | None:
        """Process that works on the run; None if there is none or it is not visible from here."""
        if self.copies is None:
            return find_session_pid(self.home, self.session)
        holder = self.copies.find_holder(self.session)
        return holder.pid if holder is not None and holder.is_local else None

    @property
    def is_on_other_machine(self) -> bool:
        """True if a process of another machine works on the run."""
        holder = None if self.copies is None else self.copies.find_holder(self.session)
        return holder is not None and not holder.is_local

    def refresh(self) -> None:
        """Bring the copy of a journal in a database up to date."""
        if self.copies is not None:
            self.copies.refresh()

    def read_journal(self, offset: int = 0) -> Iterator[JournalRecord]:
        return read_journal(self.journal_path, offset)

    def get_store(self) -> Store:
        """Return the store that contains the run and its teams."""
        return self.store or open_given_store(self.home, durable=True)

    def open_questions(self) -> QuestionStore:
        return self.get_store().open_questions(self.session)

    def check_controllable(self) -> None:
        """Raise `StateFileError` if the run has ended, or if no socket of it is reachable from here."""
        holder = None if self.copies is None else self.copies.find_holder(self.session)
        if holder is None and (self.copies is not None or not self.is_live):
            raise StateFileError(
                f"Session {self.session} has ended, so it cannot respond. "
                f"Resume it: shoal --resume {self.session}",
                path=self.directory,
            )
        if holder is None or (holder.is_local and self.directory.is_dir()):
            return
        place = (
            f"in process {holder.pid} on {holder.host}, with another home directory"
            if holder.is_local
            else f"on the machine {holder.host}, in process {holder.pid}"
        )
        raise StateFileError(
            f"Session {self.session} runs {place}. Messages and commands reach it only there. You can "
            f"answer its questions from anywhere: shoal ask",
            path=self.directory,
        )


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
        self.budget_usd: float | None = None
        """Dollar limit of the last start, whether it came from a flag, a template or settings."""
        self.budget_tokens: int | None = None

    def apply_record(self, record: JournalRecord) -> None:
        match record.event:
            case SessionStarted(mode=mode, model_named=model) as started:
                self.permission_mode, self.requested_model = mode, model
                self.budget_usd, self.budget_tokens = started.budget_usd, started.budget_tokens
            case PermissionModeChanged(agent=agent, mode=mode) if agent == LEAD_ID:
                self.permission_mode = mode
            case _:
                pass


def read_start_state(run: RunHandle) -> RunStartState:
    return load_journal_state(run.journal_path, RunStartState)[0]


async def send_control_command(
    run: RunHandle, command: RunControlCommand, *, patience: float | None = ANSWER_TIMEOUT
) -> Any:
    """Return the live run's answer; raises a `ShoalError` if it is not live or refuses.

    After `patience` seconds the run is asked for its status. Raises `RunUnresponsive` if that gets no answer.
    """
    run.check_controllable()
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
        await asyncio.to_thread(run.refresh)
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
        await asyncio.to_thread(run.refresh)
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

    def __init__(self, list_live_runs: Callable[[], list[RunHandle]]) -> None:
        self._list_live_runs = list_live_runs

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
        live = [run for run in self._list_live_runs() if run.session != sender.session]
        found = [run for run in live if name and run.session.startswith(name)]
        if len(found) == 1:
            return found[0]
        listed = ", ".join(run.session for run in live[:_MAX_LISTED]) or "no other"
        raise AgentRequestRefused(
            format_session_notice(
                "several_sessions" if found else "no_session", name=repr(name), sessions=listed
            )
        )
