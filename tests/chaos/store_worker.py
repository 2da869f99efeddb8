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
from shoal.core.errors import TeamStoreError
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.roster import NewMember
from shoal.core.teams.tasks import TaskDraft, TaskUpdate
from shoal.stores.files.board.file_task_board import FileTaskBoard
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore
from shoal.stores.files.teams.file_roster_store import FileRosterStore

TEAM = TeamName("chaos")
_AT = "2026-02-13T10:11:35.247Z"


class OperationNote(msgspec.Struct, omit_defaults=True):
    """`try` is written before an operation, `done` after it; `got` when a message was received."""

    what: str
    op: str = ""
    id: str = ""
    box: str = ""


class OperationLog:
    """A process killed while it writes a note leaves half a line, which is ignored."""

    def __init__(self, path: Path) -> None:
        self.earlier_notes = read_notes(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(self._fd, b"\n")

    def write_note(self, note: OperationNote) -> None:
        os.write(self._fd, msgspec.json.encode(note) + b"\n")


def read_notes(path: Path) -> list[OperationNote]:
    notes = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            notes.append(msgspec.json.decode(line, type=OperationNote))
        except msgspec.DecodeError:
            continue
    return notes


def make_agent_name(index: int) -> AgentName:
    return AgentName(f"agent-{index}")


class StoreWorker:
    def __init__(self, home: Path, notes: Path, index: int, processes: int, kinds: tuple[str, ...]) -> None:
        self.index = index
        self.processes = processes
        self.kinds = kinds
        self.notes = OperationLog(notes)
        self.random = random.Random()
        self.ids = IdGenerator()
        self.received = {note.id for note in self.notes.earlier_notes if note.what == "got"}
        self.joined = _list_joined(self.notes.earlier_notes)
        clock = SystemClock()
        self.mail = FileMailboxStore(home, TEAM, clock=clock, ids=self.ids)
        self.board = FileTaskBoard(home, TEAM, clock=clock, ids=self.ids)
        self.rosters = FileRosterStore(home, clock=clock)

    async def run_operations(self, operations: int) -> None:
        done = sum(note.what == "done" for note in self.notes.earlier_notes)
        while done < operations:
            op = self.random.choice(self.kinds)
            if await getattr(self, op)():
                done += 1

    async def post(self) -> bool:
        to = make_agent_name(self.random.randrange(self.processes))
        ident = self.ids.new_uuid()
        # Some are long enough that a kill can land in the middle of their write.
        text = "x" * self.random.choice((20, 200, 2_000, 20_000))
        self.notes.write_note(OperationNote("try", "post", ident, to))
        await self.mail.post(
            to, MailMessage(id=ident, sender=make_agent_name(self.index), text=text, timestamp=_AT)
        )
        self.notes.write_note(OperationNote("done", "post", ident, to))
        return True

    async def take(self) -> bool:
        own = make_agent_name(self.index)
        mails = await self.mail.take_unread(own)
        for mail in mails:
            if mail.id not in self.received:
                self.notes.write_note(OperationNote("got", id=mail.id, box=own))
                self.received.add(mail.id)
        await self.mail.mark_read(own, [mail.id for mail in mails])
        self.notes.write_note(OperationNote("done", "take"))
        return True

    async def create(self) -> bool:
        ident = self.ids.new_uuid()
        self.notes.write_note(OperationNote("try", "create", ident))
        await self.board.create(TaskDraft(subject=ident, description="d"))
        self.notes.write_note(OperationNote("done", "create", ident))
        return True

    async def work(self) -> bool:
        """Claim and complete a task: only one completion of a task is accepted."""
        claim = await self.board.claim_next(by=make_agent_name(self.index))
        if claim is None or claim.task is None or not claim.success:
            return False
        subject = claim.task.subject
        self.notes.write_note(OperationNote("try", "complete", subject))
        try:
            await self.board.update(
                claim.task.id,
                TaskUpdate(status="completed", attempt=claim.attempt),
                by=make_agent_name(self.index),
            )
        except TeamStoreError:
            return False
        self.notes.write_note(OperationNote("done", "complete", subject))
        return True

    async def join(self) -> bool:
        ident = f"m{self.ids.new_uuid()}"
        self.notes.write_note(OperationNote("try", "join", ident))
        await self.rosters.add_member(
            TEAM, NewMember(name=AgentName(ident), agent_type="t", model="m", cwd="/", prompt="p")
        )
        self.notes.write_note(OperationNote("done", "join", ident))
        self.joined.append(ident)
        return True

    async def leave(self) -> bool:
        if not self.joined:
            return False
        ident = self.joined.pop()
        self.notes.write_note(OperationNote("try", "leave", ident))
        await self.rosters.remove_member(TEAM, AgentName(ident))
        self.notes.write_note(OperationNote("done", "leave", ident))
        return True


def _list_joined(notes: list[OperationNote]) -> list[str]:
    left = {note.id for note in notes if note.op == "leave"}
    return [note.id for note in notes if note.what == "done" and note.op == "join" and note.id not in left]


def run_worker(
    home: Path, notes: Path, index: int, processes: int, operations: int, kinds: tuple[str, ...]
) -> None:
    asyncio.run(StoreWorker(home, notes, index, processes, kinds).run_operations(operations))
