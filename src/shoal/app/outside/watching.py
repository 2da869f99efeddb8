"""Handle on a run from another process: its socket while it is live, otherwise its journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from shoal.app.picture.standing import Standings
from shoal.core.clock import Clock
from shoal.core.errors import NoSuchSession, RunHangs, ShoalError, StoreError
from shoal.core.events import Event, Journaled, ModeChanged, SessionEnded, SessionStarted
from shoal.core.ids import LEAD, SessionId
from shoal.runs.client import ControlClient
from shoal.stores.files.journal import follow_journal, read_journal
from shoal.stores.files.locks import is_held
from shoal.stores.files.places import run_directory
from shoal.wire.control import Command, Gap, Status, Subscribe
from shoal.wire.journal import Unknown

Seen: TypeAlias = Event | Unknown
ANSWERING = 5.0
"""Seconds in which a run has to report its status."""


class Sighting(Struct, frozen=True, kw_only=True):
    """Event with its time, in milliseconds of Unix time."""

    at: int
    event: Seen


class Run(Struct, frozen=True, kw_only=True):
    session: SessionId
    home: Path

    @property
    def directory(self) -> Path:
        return run_directory(self.home, self.session)

    @property
    def journal(self) -> Path:
        return self.directory / "journal.jsonl"

    @property
    def is_live(self) -> bool:
        return is_held(self.home, self.session)


def live_sessions(home: Path) -> list[Run]:
    """Return the runs that a process works on now, in any directory."""
    return [run for name in _names(home) if (run := Run(session=SessionId(name), home=home)).is_live]


def live_runs(home: Path, cwd: Path) -> list[Run]:
    """Return the live runs of this directory, the one with the newest event first."""
    return [run for run in _newest_first(live_sessions(home)) if began_in(run) == str(cwd)]


def _names(home: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in (home / "shoal" / "runs").iterdir())
    except OSError:
        return []


def began_in(run: Run) -> str:
    """Return the start directory of the run; empty if its journal does not have it."""
    started = (recorded.event for recorded in read_journal(run.journal))
    return next((event.cwd for event in started if isinstance(event, SessionStarted)), "")


def model_named(run: Run) -> str:
    """Return the model name of the last start; empty if it came from settings."""
    events = (recorded.event for recorded in read_journal(run.journal))
    started = [event for event in events if isinstance(event, SessionStarted)]
    return started[-1].model_named if started else ""


def last_mode(run: Run) -> str:
    """Return the last permission mode of the lead; empty if the run never started."""
    mode = ""
    for recorded in read_journal(run.journal):
        match recorded.event:
            case SessionStarted(mode=begun):
                mode = begun
            case ModeChanged(agent=agent, mode=new) if agent == LEAD:
                mode = new
    return mode


def find_run(home: Path, name: str) -> Run:
    """Return the run with this session id or unique id prefix."""
    names = _names(home)
    found = [each for each in names if each == name] or [each for each in names if each.startswith(name)]
    if len(found) != 1:
        why = f"{len(found)} runs start with it: {', '.join(found[:5])}" if found else "no run starts with it"
        raise NoSuchSession(f"{name!r} names no run in {home}: {why}.", path=home)
    return Run(session=SessionId(found[0]), home=home)


def latest_run(home: Path, cwd: Path, name: str | None = None) -> Run | None:
    """Return the run of that name, or the latest one started in this directory; None if there is none."""
    if name is not None:
        return find_run(home, name)
    runs = [Run(session=SessionId(each), home=home) for each in _names(home)]
    wanted = str(cwd.resolve())
    return next((run for run in _newest_first(runs) if began_in(run) == wanted), None)


def _newest_first(runs: Iterable[Run]) -> list[Run]:
    """Sort by the newest event; omit runs without a journal and runs that are being removed."""
    dated: list[tuple[int, Run]] = []
    for run in runs:
        with suppress(OSError):
            dated.append((run.journal.stat().st_mtime_ns, run))
    return [run for _, run in sorted(dated, key=lambda each: each[0], reverse=True)]


async def demand(run: Run, command: Command, *, patience: float | None = ANSWERING) -> Any:
    """Return the live run's answer; raises a `ShoalError` if it is not live or refuses.

    After `patience` seconds the run is asked for its status. Raises `RunUnresponsive` if that gets no answer.
    """
    if not run.is_live:
        raise StoreError(
            f"No live run answers: session {run.session} has ended. "
            f"Go on with it: shoal --resume {run.session}",
            path=run.directory,
        )
    async with asyncio.TaskGroup() as asking:
        answer = asking.create_task(_answered(run, command))
        try:
            while not (await asyncio.wait([answer], timeout=patience))[0]:
                if await _hangs(run):
                    break
        finally:
            answer.cancel()
    if answer.cancelled() or isinstance(answer.result(), RunHangs):
        raise RunHangs(
            f"The run {run.session} does not answer: its process was stopped, or hangs. What was asked may "
            f"still be done if it goes on. End it: shoal stop {run.session}",
            path=run.directory,
        )
    told = answer.result()
    if isinstance(told, ShoalError):
        raise told
    return told


async def _answered(run: Run, command: Command) -> Any:
    """Return the answer, or the error: a task group would wrap a raised one."""
    try:
        async with await ControlClient.open(run.directory / "control.sock") as client:
            return await client.request(command)
    except ShoalError as error:
        return error


async def _hangs(run: Run) -> bool:
    try:
        async with asyncio.timeout(ANSWERING):
            told = await _answered(run, Status())
    except TimeoutError:
        return run.is_live
    return isinstance(told, RunHangs)


async def watch(run: Run, clock: Clock) -> AsyncIterator[Sighting]:
    """Yield all past events, then all new ones, until the run ends."""
    offset = 0
    while run.is_live:
        try:
            client = await ControlClient.open(run.directory / "control.sock")
        except StoreError:
            break
        async with client:
            told = _Told(offset, clock)
            async for seen in told.through(client, run):
                yield seen
        if told.ended:
            return
        offset = told.offset
        if told.unheard:
            break
    async for recorded in follow_journal(run.journal, offset, alive=lambda: run.is_live):
        yield Sighting(at=recorded.at, event=recorded.event)


class _Told:
    """Events received over one connection, and the journal offset after them."""

    def __init__(self, offset: int, clock: Clock) -> None:
        self.offset = offset
        self._clock = clock
        self.ended = False
        self.unheard = False
        """True if the run does not answer, so that only its journal can be read."""

    async def through(self, client: ControlClient, run: Run) -> AsyncIterator[Sighting]:
        try:
            async with asyncio.timeout(ANSWERING):
                start = int((await client.request(Subscribe()))["offset"])
        except TimeoutError:
            self.unheard = True
            return
        except ShoalError:
            return
        for recorded in read_journal(run.journal, self.offset):
            if recorded.offset >= start:
                break
            self.offset = recorded.next
            yield Sighting(at=recorded.at, event=recorded.event)
        self.offset, journaled = start, 0
        async for event in client.events():
            if isinstance(event, Gap):
                self.offset = event.offset
                return
            self.ended = isinstance(event, SessionEnded)
            journaled += isinstance(event, Journaled)
            yield Sighting(at=self._clock.now(), event=event)
        # The run's process may have died after journaling an event and before sending it.
        for recorded in islice(read_journal(run.journal, start), journaled):
            self.offset = recorded.next


def standings_of(run: Run) -> Standings:
    """Return the status of its agents according to its journal."""
    # Read first, so that the last events of a run that ends meanwhile are included.
    live, standings = run.is_live, Standings()
    for recorded in read_journal(run.journal):
        if isinstance(recorded.event, Event):
            standings.hear(recorded.event, recorded.at / 1000)
    if not live:
        standings.lost()
    return standings
