"""One process of the chaos: random operations on mail, board and roster, each noted before and after.

Its notes are what a transcript is to an agent: mail counts as received once it is noted, then it is marked.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import msgspec

from shoal.core.clock import SystemClock
from shoal.core.errors import RecordError
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.names import AgentName, TeamName
from shoal.core.roster import Newcomer
from shoal.core.tasks import Change, Draft
from shoal.stores.files.board import FileTaskBoard
from shoal.stores.files.mailboxes import FileMailboxes
from shoal.stores.files.rosters import FileRosters

TEAM = TeamName("chaos")
_AT = "2026-02-13T10:11:35.247Z"


class Note(msgspec.Struct, omit_defaults=True):
    """`try` is written before an operation, `done` after it; `got` when a message was received."""

    what: str
    op: str = ""
    id: str = ""
    box: str = ""


class Notes:
    """A process killed while it writes a note leaves half a line, which is ignored."""

    def __init__(self, path: Path) -> None:
        self.known = read_notes(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(self._fd, b"\n")

    def write(self, note: Note) -> None:
        os.write(self._fd, msgspec.json.encode(note) + b"\n")


def read_notes(path: Path) -> list[Note]:
    notes = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            notes.append(msgspec.json.decode(line, type=Note))
        except msgspec.DecodeError:
            continue
    return notes


def agent(index: int) -> AgentName:
    return AgentName(f"agent-{index}")


class Worker:
    def __init__(self, home: Path, notes: Path, index: int, processes: int, kinds: tuple[str, ...]) -> None:
        self.index = index
        self.processes = processes
        self.kinds = kinds
        self.notes = Notes(notes)
        self.random = random.Random()
        self.ids = Ids()
        self.received = {note.id for note in self.notes.known if note.what == "got"}
        self.joined = _standing(self.notes.known)
        clock = SystemClock()
        self.mail = FileMailboxes(home, TEAM, clock=clock, ids=self.ids)
        self.board = FileTaskBoard(home, TEAM, clock=clock, ids=self.ids)
        self.rosters = FileRosters(home, clock=clock)

    async def run(self, operations: int) -> None:
        done = sum(note.what == "done" for note in self.notes.known)
        while done < operations:
            op = self.random.choice(self.kinds)
            if await getattr(self, op)():
                done += 1

    async def post(self) -> bool:
        to = agent(self.random.randrange(self.processes))
        ident = self.ids.uuid()
        # Some are long enough that a kill can land in the middle of their write.
        text = "x" * self.random.choice((20, 200, 2_000, 20_000))
        self.notes.write(Note("try", "post", ident, to))
        await self.mail.post(to, Mail(id=ident, sender=agent(self.index), text=text, timestamp=_AT))
        self.notes.write(Note("done", "post", ident, to))
        return True

    async def take(self) -> bool:
        own = agent(self.index)
        mails = await self.mail.take(own)
        for mail in mails:
            if mail.id not in self.received:
                self.notes.write(Note("got", id=mail.id, box=own))
                self.received.add(mail.id)
        await self.mail.mark(own, [mail.id for mail in mails])
        self.notes.write(Note("done", "take"))
        return True

    async def create(self) -> bool:
        ident = self.ids.uuid()
        self.notes.write(Note("try", "create", ident))
        await self.board.create(Draft(subject=ident, description="d"))
        self.notes.write(Note("done", "create", ident))
        return True

    async def work(self) -> bool:
        """Claim and complete a task: only one completion of a task is accepted."""
        claim = await self.board.claim_next(by=agent(self.index))
        if claim is None or claim.task is None or not claim.success:
            return False
        subject = claim.task.subject
        self.notes.write(Note("try", "complete", subject))
        try:
            await self.board.update(
                claim.task.id, Change(status="completed", attempt=claim.attempt), by=agent(self.index)
            )
        except RecordError:
            return False
        self.notes.write(Note("done", "complete", subject))
        return True

    async def join(self) -> bool:
        ident = f"m{self.ids.uuid()}"
        self.notes.write(Note("try", "join", ident))
        await self.rosters.join(
            TEAM, Newcomer(name=AgentName(ident), agent_type="t", model="m", cwd="/", prompt="p")
        )
        self.notes.write(Note("done", "join", ident))
        self.joined.append(ident)
        return True

    async def leave(self) -> bool:
        if not self.joined:
            return False
        ident = self.joined.pop()
        self.notes.write(Note("try", "leave", ident))
        await self.rosters.leave(TEAM, AgentName(ident))
        self.notes.write(Note("done", "leave", ident))
        return True


def _standing(notes: list[Note]) -> list[str]:
    left = {note.id for note in notes if note.op == "leave"}
    return [note.id for note in notes if note.what == "done" and note.op == "join" and note.id not in left]


def run(home: Path, notes: Path, index: int, processes: int, operations: int, kinds: tuple[str, ...]) -> None:
    asyncio.run(Worker(home, notes, index, processes, kinds).run(operations))
