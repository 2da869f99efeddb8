"""Events for posted and taken mail, and the memory they use."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import aclosing

from shoal.app.teams.journaled_mailboxes import JournaledMailboxes
from shoal.core.clock import SystemClock
from shoal.core.events import JournaledEvent, MailPosted, MailTaken
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore
from team_scripts import get_home

ANN, BOB = AgentName("ann"), AgentName("bob")


def make_mail(number: int) -> MailMessage:
    text = f"{number}: " + "all is well. " * 60
    return MailMessage(id=f"mail-{number:040}", sender=ANN, text=text, timestamp="2026-01-01T00:00:00.000Z")


def open_mailboxes() -> FileMailboxStore:
    return FileMailboxStore(get_home(), "crew", clock=SystemClock(), ids=IdGenerator(1))


async def test_mail_taken_by_another_process_is_not_remembered_here() -> None:
    posted = 0

    def count(_: JournaledEvent) -> None:
        nonlocal posted
        posted += 1

    async with aclosing(JournaledMailboxes(open_mailboxes(), TeamName("crew"), count)) as boxes:
        await boxes.open_inbox(BOB)
        for number in range(100):
            await boxes.post(BOB, make_mail(number))
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(100, 400):
                await boxes.post(BOB, make_mail(number))
            gc.collect()
            used = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
    assert posted == 400
    assert used / 300 < 250


async def test_posted_and_taken_mail_events_have_equal_fields() -> None:
    events: list[JournaledEvent] = []
    async with aclosing(JournaledMailboxes(open_mailboxes(), TeamName("crew"), events.extend)) as boxes:
        for owner in (ANN, BOB):
            await boxes.open_inbox(owner)
        await boxes.post(BOB, make_mail(1))
        await boxes.wait_for_mail(BOB)
        await boxes.post(BOB, make_mail(2))
        taken = await boxes.take_unread(BOB)
        await boxes.mark_read(BOB, [each.id for each in taken])
    posted = [(event.mail, event.kind, event.preview) for event in events if isinstance(event, MailPosted)]
    assert len(posted) == 2
    assert posted == [
        (event.mail, event.kind, event.preview) for event in events if isinstance(event, MailTaken)
    ]
