"""Delegate mode: a person restricts the lead to delegating work.

The tools shown to the model stay the same: they are at the start of every request, so a list that changes
mid-conversation would invalidate the prompt cache twice. Forbidden calls are refused when they are made, and
the model is reminded after its calls. Leaving the mode ends the refusals, so that every tool works again from
the next call on. The mode is not persisted.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from shoal.agent.agent_runner import TemporaryToolRestriction
from shoal.app.config.coordinator_mode import COORDINATOR_TOOLS
from shoal.app.model_notices import format_session_notice
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock
from shoal.core.ids import LEAD_ID
from shoal.wire.notification_text import format_system_reminder

if TYPE_CHECKING:
    from shoal.app.session.session import Session


@cache
def _get_restriction() -> TemporaryToolRestriction:
    return TemporaryToolRestriction(
        tools=COORDINATOR_TOOLS,
        refusal_reason=format_session_notice("delegate_refusal"),
        reminder=format_system_reminder(format_session_notice("delegate_reminder")),
    )


def is_in_delegate_mode(session: Session) -> bool:
    return session.agent.state.tool_restriction is _get_restriction()


def set_delegate_mode(session: Session, *, enabled: bool) -> None:
    """Switch the mode from the next call on; teammates and other agents are not affected."""
    if enabled == is_in_delegate_mode(session):
        return
    session.agent.state.tool_restriction = _get_restriction() if enabled else None
    text = format_session_notice("delegate_on" if enabled else "delegate_off")
    notice = TextBlock(text=format_system_reminder(text))
    item = InboxItem(
        id=session.agent.ids.new_short_id(), to=LEAD_ID, content=(notice,), by="runtime", wakes=False
    )
    session.runtime.inbox.queue.put(item)
    session.note(
        "Delegate mode is on: the lead only delegates work."
        if enabled
        else "Delegate mode is off: the lead has all its tools."
    )
