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
from tests.chaos import store_worker
from tests.chaos.store_worker import TEAM, OperationNote, make_agent_name, read_notes

from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.names import LEAD_NAME
from shoal.core.teams.roster import NewMember
from shoal.stores.files.board.file_task_board import FileTaskBoard
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore
from shoal.stores.files.teams.file_roster_store import FileRosterStore

MAIL_OPERATIONS = ("post", "post", "take")
_PUBLIC_FILES = ("teams/*/inboxes/*.json", "teams/*/*.json", "tasks/*/*.json")
ALL_OPERATIONS = (*MAIL_OPERATIONS, *MAIL_OPERATIONS, "create", "work", "join", "leave")


class StoreChaosSize(Struct, frozen=True, kw_only=True):
    processes: int = 50
    operations: int = 1_000
    kinds: tuple[str, ...] = ALL_OPERATIONS
    pause: float = 0.1
    """Seconds between kills."""
    timeout: float = 3_600.0


class StoreChaosResult(Struct, frozen=True, kw_only=True):
    operations: int
    posts: int
    """Number of messages whose posting was acknowledged; others were posted by processes killed meanwhile."""
    kills: int
    reads: int
    """Number of files the polling reader read meanwhile."""
    seconds: float
    faults: tuple[str, ...]


def run_store_chaos(
    home: Path, size: StoreChaosSize, print_line: Callable[[str], None] = lambda _: None
) -> StoreChaosResult:
    notes = home.parent / "notes"
    notes.mkdir()
    since = time.monotonic()
    asyncio.run(_prepare_stores(home, size))
    reader_end, writer_end = os.pipe()
    reader = _run_in_fork(lambda: _poll_files(home, writer_end))
    os.close(writer_end)
    try:
        kills, faults = _kill_and_restart(home, notes, size, print_line)
    finally:
        os.kill(reader, signal.SIGTERM)
        os.waitpid(reader, 0)
    looks, unreadable = _read_poll_result(reader_end)
    faults += unreadable
    told = [note for index in range(size.processes) for note in read_notes(notes / f"{index}.jsonl")]
    faults += asyncio.run(_find_faults(home, told, size))
    operations = size.processes * size.operations
    return StoreChaosResult(
        operations=operations,
        posts=len(_list_ids(told, "done", "post")),
        kills=kills,
        reads=looks,
        seconds=time.monotonic() - since,
        faults=tuple(faults),
    )


async def _prepare_stores(home: Path, size: StoreChaosSize) -> None:
    lead = NewMember(name=LEAD_NAME, agent_type="lead", model="m", cwd="/", prompt="")
    rosters = FileRosterStore(home, clock=SystemClock())
    team = await rosters.create_team(TEAM, lead=lead, session="s", description=None)
    assert team.name == TEAM
    boxes = FileMailboxStore(home, TEAM, clock=SystemClock(), ids=IdGenerator())
    for index in range(size.processes):
        await boxes.open_inbox(make_agent_name(index))
    await boxes.aclose()
    await rosters.aclose()


def _run_in_fork(body: Callable[[], None]) -> int:
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


class _WorkerPool:
    """The running processes, by id. A killed one is restarted, an ended one is not."""

    def __init__(self, home: Path, notes: Path, size: StoreChaosSize) -> None:
        self._home, self._notes, self._size = home, notes, size
        self.running: dict[int, int] = {}
        self.kills = 0
        self.faults: list[str] = []
        for index in range(size.processes):
            self._start_worker(index)

    def _start_worker(self, index: int) -> None:
        size, path = self._size, self._notes / f"{index}.jsonl"
        pid = _run_in_fork(
            lambda: store_worker.run_worker(
                self._home, path, index, size.processes, size.operations, size.kinds
            )
        )
        self.running[pid] = index

    def restart_killed(self) -> None:
        while self.running and (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            index = self.running.pop(ended[0], None)
            if index is None:
                continue
            if os.WIFSIGNALED(ended[1]):
                self._start_worker(index)
            elif ended[1]:
                self.faults.append(f"process {index} failed with {os.waitstatus_to_exitcode(ended[1])}")

    def kill_random(self) -> None:
        # Chosen from all of them: when most have ended, the last ones are not killed more often.
        chosen = random.randrange(self._size.processes)
        for pid in [pid for pid, index in self.running.items() if index == chosen]:
            os.kill(pid, signal.SIGKILL)
            self.kills += 1

    def kill_all(self) -> None:
        for pid in self.running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _kill_and_restart(
    home: Path, notes: Path, size: StoreChaosSize, print_line: Callable[[str], None]
) -> tuple[int, list[str]]:
    processes = _WorkerPool(home, notes, size)
    deadline = time.monotonic() + size.timeout
    told = time.monotonic()
    try:
        while processes.running:
            time.sleep(size.pause)
            if time.monotonic() > deadline:
                processes.faults.append(f"{len(processes.running)} processes did not end in time")
                break
            if time.monotonic() - told > 10:
                told = time.monotonic()
                print_line(f"{len(processes.running)} processes run, {processes.kills} were killed")
            processes.restart_killed()
            processes.kill_random()
    finally:
        processes.kill_all()
    return processes.kills, processes.faults


def _poll_files(home: Path, result_fd: int) -> None:
    """Read every public file all the time, without any lock."""
    stopped = False

    def stop_polling(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop_polling)
    looks, broken = 0, list[str]()
    while not stopped:
        for path in (path for pattern in _PUBLIC_FILES for path in home.glob(pattern)):
            try:
                json.loads(path.read_bytes())
            except FileNotFoundError:
                if path.parent.name == "inboxes":
                    broken.append(f"{path} was missing for a moment")
            except ValueError as error:
                broken.append(f"{path} was unreadable: {error}")
            looks += 1
    os.write(result_fd, json.dumps([looks, broken[:20]]).encode())


def _read_poll_result(fd: int) -> tuple[int, list[str]]:
    with os.fdopen(fd, "rb") as pipe:
        looks, broken = json.loads(pipe.read())
    return looks, broken


async def _find_faults(home: Path, told: list[OperationNote], size: StoreChaosSize) -> list[str]:
    """Find acknowledged changes that are lost or doubled. Nothing is cleaned up before this check."""
    faults = await _find_mail_faults(home, told, size)
    faults += await _find_board_faults(home, told)
    faults += await _find_roster_faults(home, told)
    faults += [f"left behind: {path}" for path in home.rglob("*.corrupt-*")]
    return faults


def _list_ids(notes: list[OperationNote], what: str, op: str) -> list[str]:
    return [note.id for note in notes if note.what == what and note.op == op]


async def _find_mail_faults(home: Path, notes: list[OperationNote], size: StoreChaosSize) -> list[str]:
    boxes = FileMailboxStore(home, TEAM, clock=SystemClock(), ids=IdGenerator())
    got = Counter((note.box, note.id) for note in notes if note.what == "got")
    faults = [f"{key} was received {count} times" for key, count in got.items() if count > 1]
    for index in range(size.processes):
        own = make_agent_name(index)
        history = Counter(mail.id for mail in await boxes.read_history(own))
        faults += [
            f"{ident} is {count} times in the history" for ident, count in history.items() if count > 1
        ]
        while batch := await boxes.take_unread(own):
            for mail in batch:
                got[own, mail.id] += (own, mail.id) not in got
            await boxes.mark_read(own, [mail.id for mail in batch])
        if lost := {ident for box, ident in got if box == own} - set(history):
            faults.append(f"{len(lost)} received messages of {own} are not in its history")
    await boxes.aclose()
    acknowledged = {(note.box, note.id) for note in notes if note.what == "done" and note.op == "post"}
    tried = {(note.box, note.id) for note in notes if note.what == "try" and note.op == "post"}
    faults += [f"{key} was acknowledged and is lost" for key in acknowledged - set(got)]
    faults += [f"{key} was never posted" for key in set(got) - tried]
    return faults


async def _find_board_faults(home: Path, notes: list[OperationNote]) -> list[str]:
    board = FileTaskBoard(home, TEAM, clock=SystemClock(), ids=IdGenerator())
    tasks = await board.list_tasks()
    await board.aclose()
    subjects = Counter(task.subject for task in tasks)
    completed = {task.subject for task in tasks if task.status == "completed"}
    done = Counter(_list_ids(notes, "done", "complete"))
    created = set(_list_ids(notes, "done", "create"))
    return [
        *(f"task {subject} is there {count} times" for subject, count in subjects.items() if count > 1),
        *(f"task {subject} was created and is lost" for subject in created - set(subjects)),
        *(f"task {subject} was completed {count} times" for subject, count in done.items() if count > 1),
        *(f"the completion of {subject} is lost" for subject in set(done) - completed),
    ]


async def _find_roster_faults(home: Path, notes: list[OperationNote]) -> list[str]:
    rosters = FileRosterStore(home, clock=SystemClock())
    team = await rosters.read_team_roster(TEAM)
    await rosters.aclose()
    if team is None:
        return ["the roster is gone"]
    names = Counter(member.name for member in team.members if member.name != LEAD_NAME)
    joined, left = set(_list_ids(notes, "done", "join")), set(_list_ids(notes, "try", "leave"))
    return [
        *(f"member {name} is there {count} times" for name, count in names.items() if count > 1),
        *(f"member {name} joined and is lost" for name in joined - left - set(names)),
        *(f"member {name} left and is there" for name in set(_list_ids(notes, "done", "leave")) & set(names)),
        *(f"member {name} never joined" for name in set(names) - set(_list_ids(notes, "try", "join"))),
    ]


def print_result(result: StoreChaosResult) -> None:
    sys.stdout.write(
        f"{result.operations:,} operations in {result.seconds:.0f} s, {result.posts:,} messages posted, "
        f"{result.kills:,} kills, {result.reads:,} looks at files: {len(result.faults)} faults\n"
    )
    for fault in result.faults[:40]:
        sys.stdout.write(f"  {fault}\n")
