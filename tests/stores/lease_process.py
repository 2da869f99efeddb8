"""A process that holds a session and a task of a store in PostgreSQL, and writes when it is told to."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from postgres_helpers import make_services, open_postgres_store

from shoal.core.errors import ShoalError
from shoal.core.events import NoteAdded
from shoal.core.ids import LEAD_ID
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.tasks import TaskUpdate
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR
from shoal.testing.contracts.session_contract import FIRST, create_used_session, make_entry


def tell(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


async def main(address: str, home: str) -> None:
    store = open_postgres_store(address, Path(home), lease=1.0)
    services = make_services()
    session = create_used_session(store, FIRST)
    session.acquire_lock()
    board = store.open_board("roof", **services)
    mailboxes = store.open_mailboxes("roof", **services)
    claim = await board.claim_next(by="ann")
    transcript = session.open_transcript(LEAD_ID, cwd="/project", version="0")
    journal = session.open_journal(services["clock"], secrets=KEY_SHAPE_REDACTOR)
    tell(claim.task.id)
    await asyncio.to_thread(sys.stdin.readline)
    mail = MailMessage(id="m1", sender="ann", text="late", timestamp="2026-01-01T00:00:00Z")

    async def append_entry():
        transcript.append(make_entry("late"))

    async def append_entry_with_title():
        transcript.set_title("late")
        transcript.append(make_entry("late"))

    async def append_event():
        journal.append(NoteAdded(agent=LEAD_ID, text="late"))

    for name, write in (
        ("update", board.update(claim.task.id, TaskUpdate(subject="late"), by="ann")),
        ("claim", board.claim_next(by="ann")),
        ("post", mailboxes.post("bob", mail)),
        ("read", mailboxes.mark_read("bob", ["m0"])),
        ("transcript", append_entry()),
        ("title", append_entry_with_title()),
        ("journal", append_event()),
    ):
        try:
            await write
        except ShoalError as error:
            tell(name, type(error).__name__)
        else:
            tell(name, "written")


asyncio.run(main(*sys.argv[1:]))
