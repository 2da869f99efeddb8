"""Delegate mode: a person restricts the lead to delegating work.

The tools shown to the model stay the same: they are at the start of every request, so a list that changes
mid-conversation would invalidate the prompt cache twice. Forbidden calls are refused when they are made, and
the model is reminded after its calls. Leaving the mode ends the refusals, so that every tool works again from
the next call on. The mode is not persisted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.agent.agent_runner import TemporaryToolRestriction
from shoal.app.config.coordinator_mode import COORDINATOR_TOOLS
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock
from shoal.core.ids import LEAD_ID
from shoal.wire.notification_text import format_system_reminder

if TYPE_CHECKING:
    from shoal.app.session.session import Session

_RESTRICTION = TemporaryToolRestriction(
    tools=COORDINATOR_TOOLS,
    refusal_reason="the person has switched delegate mode on. Give this work to an agent or a teammate: "
    "Agent starts one, SendMessage tells one, TaskCreate puts it on the board.",
    reminder=format_system_reminder(
        "Delegate mode is on: of your tools you may use only those that start, tell and stop agents, keep "
        "the task board or ask the person. You give the work out, others do it. You are told so after your "
        "calls for as long as it holds."
    ),
)
_ENABLED_NOTICE = format_system_reminder(
    "The person has switched delegate mode on. From now on you only give work out: start, tell and stop "
    "agents, keep the task board, ask the person. Other calls are refused until the person leaves the mode."
)
_DISABLED_NOTICE = format_system_reminder(
    "The person has left delegate mode: you may use all your tools again."
)


def is_in_delegate_mode(session: Session) -> bool:
    return session.agent.tool_restriction is _RESTRICTION


def set_delegate_mode(session: Session, *, enabled: bool) -> None:
    """Switch the mode from the next call on; teammates and other agents are not affected."""
    if enabled == is_in_delegate_mode(session):
        return
    session.agent.tool_restriction = _RESTRICTION if enabled else None
    notice = TextBlock(text=_ENABLED_NOTICE if enabled else _DISABLED_NOTICE)
    item = InboxItem(
        id=session.agent.ids.new_short_id(), to=LEAD_ID, content=(notice,), by="runtime", wakes=False
    )
    session.runtime.queue.put(item)
    session.note(
        "Delegate mode is on: the lead only delegates work."
        if enabled
        else "Delegate mode is off: the lead has all its tools."
    )
