"""Delegate mode: a person restricts the lead to delegating work.

The tools shown to the model stay the same: they are at the start of every request, so a list that changes
mid-conversation would invalidate the prompt cache twice. Forbidden calls are refused when they are made, and
the model is reminded after its calls. Leaving the mode ends the refusals, so that every tool works again from
the next call on. The mode is not persisted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.agent.agent import Held
from shoal.app.basis.coordinating import COORDINATOR_TOOLS
from shoal.core.arrivals import Item
from shoal.core.ids import LEAD
from shoal.core.messages import Text
from shoal.wire.notices import reminder

if TYPE_CHECKING:
    from shoal.app.session.session import Session

_HELD = Held(
    tools=COORDINATOR_TOOLS,
    why="the person has switched delegate mode on. Give this work to an agent or a teammate: Agent starts "
    "one, SendMessage tells one, TaskCreate puts it on the board.",
    reminder=reminder(
        "Delegate mode is on: of your tools you may use only those that start, tell and stop agents, keep "
        "the task board or ask the person. You give the work out, others do it. You are told so after your "
        "calls for as long as it holds."
    ),
)
_ON = reminder(
    "The person has switched delegate mode on. From now on you only give work out: start, tell and stop "
    "agents, keep the task board, ask the person. Other calls are refused until the person leaves the mode."
)
_OFF = reminder("The person has left delegate mode: you may use all your tools again.")


def is_delegating(session: Session) -> bool:
    return session.agent.held is _HELD


def delegate(session: Session, *, on: bool) -> None:
    """Switch the mode from the next call on; teammates and other agents are not affected."""
    if on == is_delegating(session):
        return
    session.agent.held = _HELD if on else None
    said = Text(text=_ON if on else _OFF)
    item = Item(id=session.agent.ids.short(), to=LEAD, content=(said,), by="runtime", wakes=False)
    session.parts.queue.put(item)
    session.note(
        "Delegate mode is on: the lead only gives work out."
        if on
        else "Delegate mode is off: the lead has all its tools."
    )
