"""What an earlier process of a session left, taken over by the one that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.events import AgentEnded, WorkKept
from shoal.team.teams import SessionTeams

if TYPE_CHECKING:
    from shoal.app.recovery import LeftOver
    from shoal.app.session import Session


async def take_over(session: Session, left: LeftOver) -> None:
    """The journal is told first of what it does not know; then who waits for something gets it."""
    parts = session.parts
    for completion in left.cut_off:
        session.emit(AgentEnded(agent=completion.agent, completion=completion))
    for completion, place in left.unkept:
        work = await parts.housing.settled(parts.workspace.root, place)
        if work is not None:
            left.tell_of(work, completion)
            session.emit(WorkKept(agent=completion.agent, work=work))
    for ended in left.shells:
        session.emit(ended)
    parts.crew.recover(left.pending, left.completions)
    parts.timetable.recover(left.schedules)
    if isinstance(parts.teams, SessionTeams):
        await parts.teams.resume(session.id, left.delivered, left.serving, left.resting)
