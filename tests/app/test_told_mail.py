"""What a process remembers of mail that it posts."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import aclosing

from shoal.app.teams.told_mail import ToldMailboxes
from shoal.core.clock import SystemClock
from shoal.core.events import Journaled, MailPosted, MailTaken
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.names import AgentName, TeamName
from shoal.stores.files.mailboxes import FileMailboxes
from troupe import home

ANN, BOB = AgentName("ann"), AgentName("bob")


def mail(number: int) -> Mail:
    text = f"{number}: " + "all is well. " * 60
    return Mail(id=f"mail-{number:040}", sender=ANN, text=text, timestamp="2026-01-01T00:00:00.000Z")


def mailboxes() -> FileMailboxes:
    return FileMailboxes(home(), "crew", clock=SystemClock(), ids=Ids(1))


async def test_mail_that_is_taken_elsewhere_is_not_remembered_here() -> None:
    posted = 0

    def count(_: Journaled) -> None:
        nonlocal posted
        posted += 1

    async with aclosing(ToldMailboxes(mailboxes(), TeamName("crew"), count)) as boxes:
        await boxes.open(BOB)
        for number in range(100):
            await boxes.post(BOB, mail(number))
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(100, 400):
                await boxes.post(BOB, mail(number))
            gc.collect()
            used = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
    assert posted == 400
    assert used / 300 < 250


async def test_what_is_posted_and_taken_is_told_in_the_same_words() -> None:
    told: list[Journaled] = []
    async with aclosing(ToldMailboxes(mailboxes(), TeamName("crew"), told.append)) as boxes:
        for owner in (ANN, BOB):
            await boxes.open(owner)
        await boxes.post(BOB, mail(1))
        await boxes.wait(BOB)
        await boxes.post(BOB, mail(2))
        taken = await boxes.take(BOB)
        await boxes.mark(BOB, [each.id for each in taken])
    posted = [(event.mail, event.kind, event.preview) for event in told if isinstance(event, MailPosted)]
    assert len(posted) == 2
    assert posted == [
        (event.mail, event.kind, event.preview) for event in told if isinstance(event, MailTaken)
    ]
