"""Delegate mode: a person holds the lead to giving work out, for as long as they like.

The tools that the model is shown stay as they are: they stand at the front of every request, so a list that
changes in mid-conversation would cost the cache of the whole conversation, twice. What the mode forbids is
refused when it is called, and the model is reminded after its calls. Leaving the mode ends the refusing, so
that every tool is there again from the next call on. The mode lives in the session alone.
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
    """From the next call on, whether a turn runs or not; teammates and other agents are not concerned."""
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
