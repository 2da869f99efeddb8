"""Queue of a session and its sources besides people and agents: commands, hooks and schedules."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from shoal.app.hooks.hooking import SessionHooks
from shoal.core.clock import Clock
from shoal.core.ids import Ids
from shoal.runs.hook_news import QueuedHookNews
from shoal.runs.queue import Queue
from shoal.runs.shell_news import QueuedShellNews
from shoal.runs.timetable import ClockedTimetable
from shoal.tools.shells import Shells

if TYPE_CHECKING:
    from shoal.app.session.session import Session


async def fed_queue(
    session: Session, shells: Shells, hooks: SessionHooks, clock: Clock, ids: Ids, leave: AsyncExitStack
) -> tuple[Queue, ClockedTimetable]:
    queue = Queue(session.entered)
    own = ids.branch()
    shells.news = QueuedShellNews(queue, own, session.emit)
    hooks.hear(QueuedHookNews(queue, own, session.emit))
    await leave.enter_async_context(hooks.runner.background)
    timetable = ClockedTimetable(queue=queue, clock=clock, ids=ids.branch(), emit=session.emit)
    return queue, await leave.enter_async_context(timetable)
