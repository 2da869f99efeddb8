"""Starts processes on one store, kills and restarts them at random, and counts what is missing at the end."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from tests.chaos import worker
from tests.chaos.worker import TEAM, Note, agent, read_notes

from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.names import LEAD_NAME
from shoal.core.roster import Newcomer
from shoal.stores.files.board import FileTaskBoard
from shoal.stores.files.mailboxes import FileMailboxes
from shoal.stores.files.rosters import FileRosters

MAIL = ("post", "post", "take")
_PUBLIC = ("teams/*/inboxes/*.json", "teams/*/*.json", "tasks/*/*.json")
ALL = (*MAIL, *MAIL, "create", "work", "join", "leave")


class Size(Struct, frozen=True, kw_only=True):
    processes: int = 50
    operations: int = 1_000
    kinds: tuple[str, ...] = ALL
    pause: float = 0.1
    """Seconds between kills."""
    patience: float = 3_600.0


class Outcome(Struct, frozen=True, kw_only=True):
    operations: int
    kills: int
    looks: int
    """Number of files the polling reader read meanwhile."""
    seconds: float
    faults: tuple[str, ...]


def run(home: Path, size: Size, say: Callable[[str], None] = lambda _: None) -> Outcome:
    notes = home.parent / "notes"
    notes.mkdir()
    since = time.monotonic()
    asyncio.run(_prepare(home, size))
    reader_end, writer_end = os.pipe()
    reader = _forked(lambda: _poll(home, writer_end))
    os.close(writer_end)
    try:
        kills, faults = _kill_and_restart(home, notes, size, say)
    finally:
        os.kill(reader, signal.SIGTERM)
        os.waitpid(reader, 0)
    looks, unreadable = _heard(reader_end)
    faults += unreadable
    faults += asyncio.run(_missing(home, notes, size))
    operations = size.processes * size.operations
    return Outcome(
        operations=operations,
        kills=kills,
        looks=looks,
        seconds=time.monotonic() - since,
        faults=tuple(faults),
    )


async def _prepare(home: Path, size: Size) -> None:
    lead = Newcomer(name=LEAD_NAME, agent_type="lead", model="m", cwd="/", prompt="")
    rosters = FileRosters(home, clock=SystemClock())
    team = await rosters.create(TEAM, lead=lead, session="s", description=None)
    assert team.name == TEAM
    boxes = FileMailboxes(home, TEAM, clock=SystemClock(), ids=Ids())
    for index in range(size.processes):
        await boxes.open(agent(index))
    await boxes.aclose()
    await rosters.aclose()


def _forked(body: Callable[[], None]) -> int:
    """Fork this process, which has neither threads nor an event loop: far cheaper than a new process."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        body()
        status = 0
    except BaseException:  # noqa: BLE001 - the outermost frame of a process
        traceback.print_exc()
    finally:
        os._exit(status)


class _Processes:
    """The running processes, by id. A killed one is restarted, an ended one is not."""

    def __init__(self, home: Path, notes: Path, size: Size) -> None:
        self._home, self._notes, self._size = home, notes, size
        self.running: dict[int, int] = {}
        self.kills = 0
        self.faults: list[str] = []
        for index in range(size.processes):
            self._start(index)

    def _start(self, index: int) -> None:
        size, path = self._size, self._notes / f"{index}.jsonl"
        pid = _forked(
            lambda: worker.run(self._home, path, index, size.processes, size.operations, size.kinds)
        )
        self.running[pid] = index

    def look(self) -> None:
        while self.running and (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            index = self.running.pop(ended[0], None)
            if index is None:
                continue
            if os.WIFSIGNALED(ended[1]):
                self._start(index)
            elif ended[1]:
                self.faults.append(f"process {index} failed with {os.waitstatus_to_exitcode(ended[1])}")

    def kill_one(self) -> None:
        # Chosen from all of them: when most have ended, the last ones are not killed more often.
        chosen = random.randrange(self._size.processes)
        for pid in [pid for pid, index in self.running.items() if index == chosen]:
            os.kill(pid, signal.SIGKILL)
            self.kills += 1

    def end(self) -> None:
        for pid in self.running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _kill_and_restart(
    home: Path, notes: Path, size: Size, say: Callable[[str], None]
) -> tuple[int, list[str]]:
    processes = _Processes(home, notes, size)
    deadline = time.monotonic() + size.patience
    told = time.monotonic()
    try:
        while processes.running:
            time.sleep(size.pause)
            if time.monotonic() > deadline:
                processes.faults.append(f"{len(processes.running)} processes did not end in time")
                break
            if time.monotonic() - told > 10:
                told = time.monotonic()
                say(f"{len(processes.running)} processes run, {processes.kills} were killed")
            processes.look()
            processes.kill_one()
    finally:
        processes.end()
    return processes.kills, processes.faults


def _poll(home: Path, told: int) -> None:
    """Read every public file all the time, without any lock."""
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    looks, broken = 0, list[str]()
    while not stopped:
        for path in (path for pattern in _PUBLIC for path in home.glob(pattern)):
            try:
                json.loads(path.read_bytes())
            except FileNotFoundError:
                if path.parent.name == "inboxes":
                    broken.append(f"{path} was missing for a moment")
            except ValueError as error:
                broken.append(f"{path} was unreadable: {error}")
            looks += 1
    os.write(told, json.dumps([looks, broken[:20]]).encode())


def _heard(fd: int) -> tuple[int, list[str]]:
    with os.fdopen(fd, "rb") as pipe:
        looks, broken = json.loads(pipe.read())
    return looks, broken


async def _missing(home: Path, notes: Path, size: Size) -> list[str]:
    """Find acknowledged changes that are lost or doubled. Nothing is cleaned up before this check."""
    told = [note for index in range(size.processes) for note in read_notes(notes / f"{index}.jsonl")]
    faults = await _mail_faults(home, told, size)
    faults += await _board_faults(home, told)
    faults += await _roster_faults(home, told)
    faults += [f"left behind: {path}" for path in home.rglob("*.corrupt-*")]
    return faults


def _ids(notes: list[Note], what: str, op: str) -> list[str]:
    return [note.id for note in notes if note.what == what and note.op == op]


async def _mail_faults(home: Path, told: list[Note], size: Size) -> list[str]:
    boxes = FileMailboxes(home, TEAM, clock=SystemClock(), ids=Ids())
    got = Counter((note.box, note.id) for note in told if note.what == "got")
    faults = [f"{key} was received {count} times" for key, count in got.items() if count > 1]
    for index in range(size.processes):
        own = agent(index)
        history = Counter(mail.id for mail in await boxes.history(own))
        faults += [
            f"{ident} is {count} times in the history" for ident, count in history.items() if count > 1
        ]
        while batch := await boxes.take(own):
            for mail in batch:
                got[own, mail.id] += (own, mail.id) not in got
            await boxes.mark(own, [mail.id for mail in batch])
        if lost := {ident for box, ident in got if box == own} - set(history):
            faults.append(f"{len(lost)} received messages of {own} are not in its history")
    await boxes.aclose()
    acknowledged = {(note.box, note.id) for note in told if note.what == "done" and note.op == "post"}
    tried = {(note.box, note.id) for note in told if note.what == "try" and note.op == "post"}
    faults += [f"{key} was acknowledged and is lost" for key in acknowledged - set(got)]
    faults += [f"{key} was never posted" for key in set(got) - tried]
    return faults


async def _board_faults(home: Path, told: list[Note]) -> list[str]:
    board = FileTaskBoard(home, TEAM, clock=SystemClock(), ids=Ids())
    tasks = await board.list()
    await board.aclose()
    subjects = Counter(task.subject for task in tasks)
    completed = {task.subject for task in tasks if task.status == "completed"}
    done = Counter(_ids(told, "done", "complete"))
    created = set(_ids(told, "done", "create"))
    return [
        *(f"task {subject} is there {count} times" for subject, count in subjects.items() if count > 1),
        *(f"task {subject} was created and is lost" for subject in created - set(subjects)),
        *(f"task {subject} was completed {count} times" for subject, count in done.items() if count > 1),
        *(f"the completion of {subject} is lost" for subject in set(done) - completed),
    ]


async def _roster_faults(home: Path, told: list[Note]) -> list[str]:
    rosters = FileRosters(home, clock=SystemClock())
    team = await rosters.read(TEAM)
    await rosters.aclose()
    if team is None:
        return ["the roster is gone"]
    names = Counter(member.name for member in team.members if member.name != LEAD_NAME)
    joined, left = set(_ids(told, "done", "join")), set(_ids(told, "try", "leave"))
    return [
        *(f"member {name} is there {count} times" for name, count in names.items() if count > 1),
        *(f"member {name} joined and is lost" for name in joined - left - set(names)),
        *(f"member {name} left and is there" for name in set(_ids(told, "done", "leave")) & set(names)),
        *(f"member {name} never joined" for name in set(names) - set(_ids(told, "try", "join"))),
    ]


def report(outcome: Outcome) -> None:
    sys.stdout.write(
        f"{outcome.operations:,} operations in {outcome.seconds:.0f} s, {outcome.kills:,} kills, "
        f"{outcome.looks:,} looks at files: {len(outcome.faults)} faults\n"
    )
    for fault in outcome.faults[:40]:
        sys.stdout.write(f"  {fault}\n")
