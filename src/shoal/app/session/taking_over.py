"""Recovers in a resumed session what its earlier process left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.events import AgentEnded, Answered, WorkKept
from shoal.core.ids import LEAD
from shoal.core.messages import ToolUse, user
from shoal.core.questions import Allowed, MayRun
from shoal.runs.late_answers import kept_updates, late_item
from shoal.team.teams import SessionTeams
from shoal.wire.notices import late_permission

if TYPE_CHECKING:
    from shoal.app.basis.recovery import LeftOver
    from shoal.app.session.session import Session


async def take_over(session: Session, left: LeftOver) -> None:
    """Journal the missing events first, then deliver the pending items."""
    parts = session.parts
    for completion in left.cut_off:
        session.emit(AgentEnded(agent=completion.agent, completion=completion))
    for completion, place in left.unkept:
        work = await parts.housing.settled(parts.workspace.root, place)
        if work is not None:
            left.tell_of(work, completion)
            session.emit(WorkKept(agent=completion.agent, work=work))
    await parts.housing.settle_left(parts.workspace.root, session.id, left.going_on)
    for ended in left.shells:
        session.emit(ended)
    parts.crew.recover(left.pending, left.completions)
    parts.timetable.recover(left.schedules)
    if isinstance(parts.teams, SessionTeams):
        await parts.teams.resume(session.id, left.delivered, left.serving, left.resting)
    _hear_late_answers(session, left.cut_off_questions)


def _hear_late_answers(session: Session, cut_off: tuple[MayRun, ...]) -> None:
    late = session.parts.desk.late

    def heard(question: MayRun, answer: Allowed) -> None:
        """Queue a late answer for the lead, which decides whether its agents continue."""
        asker = "" if question.agent == LEAD else str(question.agent)
        text = late_permission(question, answer, asker=asker)
        session.queue_up(
            user(text), by="runtime", mode="orphaned-permission", identity=late_item(question.id)
        )
        call = ToolUse(id=question.tool_use_id, name=question.tool, input=question.input)
        session.parts.permissions.remember(call, Allowed(updates=kept_updates(question, answer)))

    late.heard = heard
    late.adopt(cut_off)
    for question in cut_off:
        if (answer := late.unheard(question)) is not None:
            session.emit(Answered(agent=question.agent, question=question.id, answer=answer))
