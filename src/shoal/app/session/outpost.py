"""Entry point of a teammate's process: a session that runs one member of its lead's team."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from msgspec import Raw

from shoal.app.agents.brief import Brief, unsealed
from shoal.app.session.session import Session
from shoal.backends.heap import Freed
from shoal.backends.line import SocketLine
from shoal.core.clock import SystemClock
from shoal.core.errors import ShoalError
from shoal.core.events import Event, Journaled, MemberRested
from shoal.team.lead_link import LeadLink
from shoal.team.outpost import Outpost
from shoal.wire.journal import journal_line
from shoal.wire.outpost import Refused, Told

TERMINATED = "its process was asked to end"


def main(fd: int) -> None:
    """Run a forked process; `fd` is its channel to the lead."""
    asyncio.run(_work(fd))


async def _work(fd: int) -> None:
    line = SocketLine.inherited(fd)
    first = await line.receive()
    if first is None:
        return
    brief, clock = unsealed(first), SystemClock()
    link = LeadLink(line, brief.rules, clock)
    try:
        async with Session(brief.options(brief.membership(link), clock)) as session:
            await _serve(session, brief, link)
    except ShoalError as error:
        link.send(Refused(why=str(error)))
    await line.sent()
    line.close()


async def _serve(session: Session, brief: Brief, link: LeadLink) -> None:
    outpost, answers = session.parts.teams, session.parts.permissions.answers
    assert isinstance(outpost, Outpost)

    def tell(event: Event) -> None:
        if isinstance(event, Journaled):
            link.send(Told(line=Raw(journal_line(event, clock.now()))))

    clock = session.agent.clock
    for update in brief.answered:
        with suppress(ShoalError):
            answers.add(update)
    session.watch(tell)
    leave_at(outpost, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    stay_small(session)
    await outpost.serve()


def stay_small(session: Session) -> None:
    freed, clock = Freed(), session.agent.clock

    def hear(event: Event) -> None:
        if isinstance(event, MemberRested):
            freed.rests(clock.monotonic())

    session.watch(hear)


def leave_at(outpost: Outpost, *signals: signal.Signals) -> None:
    """End the member so that it can be resumed when the process receives one of the signals."""
    loop = asyncio.get_running_loop()
    for number in signals:
        loop.add_signal_handler(number, lambda: outpost.leave(TERMINATED, stays=True))
