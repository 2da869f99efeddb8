"""Delivered mail that stays unread for a while, such as the idle notices of a large team."""

from __future__ import annotations

import asyncio

from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.stores.memory.memory_store import MemoryStore
from shoal.team.mail.mail_pump import MailPump
from shoal.testing.fake_clock import FakeClock

ANN = AgentName("ann")
HELD = 2_000


def make_mail(number: int) -> MailMessage:
    return MailMessage(id=f"mail-{number}", sender=AgentName("bob"), text="idle", timestamp="")


async def test_an_inbox_with_much_held_mail_is_read_less_often() -> None:
    clock, delivered = FakeClock(), []
    mailboxes = MemoryStore().open_mailboxes(TeamName("crew"), clock=clock, ids=IdGenerator(1), report=str)
    await mailboxes.open_inbox(ANN)
    for number in range(HELD):
        await mailboxes.post(ANN, make_mail(number))
    has_all = asyncio.Event()

    async def hold(mail: MailMessage) -> bool:
        delivered.append(mail.id)
        if len(delivered) == HELD:
            has_all.set()
        return False

    async def pump() -> None:
        await MailPump(mailboxes, clock, print).pump_inbox(ANN, hold)

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        pumping = tasks.create_task(pump())
        while not has_all.is_set():
            await clock.advance(1)
        await mailboxes.post(ANN, make_mail(HELD))
        while not clock.sleepers:
            await asyncio.sleep(0)
        await mailboxes.post(ANN, make_mail(HELD + 1))
        assert len(delivered) == HELD  # it waits for more, so that both are one read
        await clock.advance(0.05)
        assert delivered[HELD:] == [f"mail-{HELD}", f"mail-{HELD + 1}"]
        pumping.cancel()
