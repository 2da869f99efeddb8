"""Removes old sessions in the background when a session starts, once a day."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from threading import Event
from typing import TYPE_CHECKING

from shoal.core.events import Noted
from shoal.core.ids import LEAD

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.stores.files.sweeping import Swept

SECONDS = 10.0
"""Seconds after which the rest is left to the next session."""


def attach(session: Session, tasks: asyncio.TaskGroup, leave: AsyncExitStack) -> None:
    """Start the clean-up in the background until the session ends; its result goes to the debug log."""
    ended = Event()
    leave.callback(ended.set)
    tasks.create_task(_tidy(session, ended))


async def _tidy(session: Session, ended: Event) -> None:
    settings, clock, debug = session.parts.settings, session.agent.clock, session.parts.debug
    until = clock.monotonic() + SECONDS

    def work() -> Swept | None:
        from shoal.stores.files.sweeping import is_due, mark, sweep

        now = clock.now()
        if settings.cleanup_period_days and not is_due(settings.home, now=now):
            return None
        swept = sweep(
            settings.home,
            days=settings.cleanup_period_days,
            now=now,
            go_on=lambda: not ended.is_set() and clock.monotonic() < until,
        )
        if swept.finished:
            mark(settings.home, now=now)
        return swept

    try:
        swept = await asyncio.to_thread(work)
        if swept is None:
            return
        told = _told(swept, settings.cleanup_period_days)
    except Exception as error:  # noqa: BLE001 - the wall around tidying up: no session ends over it
        told = f"Old sessions could not be removed: {type(error).__name__}: {error}"
    if debug is not None:
        debug.note(Noted(agent=LEAD, text=told))


def _told(swept: Swept, days: int) -> str:
    parts = [
        f"Kept for {days} days (cleanupPeriodDays). Removed: sessions {len(swept.sessions)}, "
        f"debug logs {swept.logs}, snapshots of the shell {swept.snapshots}.",
        *swept.sessions,
        *swept.troubles,
    ]
    if not swept.finished:
        parts.append("It was stopped before everything was looked at; the next session goes on.")
    return "\n".join(parts)
