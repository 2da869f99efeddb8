"""Shell notifier: journals background commands and queues notifications for the agent that started them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from shoal.core.agents.background_shells import BackgroundShell, BackgroundShellResult
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock
from shoal.core.errors import StateFileError
from shoal.core.events import (
    BackgroundShellEnded,
    BackgroundShellStarted,
    JournaledEvent,
    NotificationDelivered,
)
from shoal.core.ids import AgentId, IdGenerator
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.wire.notification_text import format_shell_notification, format_stuck_shell_notification


class BackgroundShellNotifier:
    """Observer that reports each end once, unless its agent caused or saw it."""

    def __init__(
        self, queue: SharedInboxQueue, ids: IdGenerator, emit: Callable[[JournaledEvent], None]
    ) -> None:
        self._queue = queue
        self._ids = ids
        self._emit = emit
        self._queued_ends: dict[str, str] = {}
        """Item id of the queued end of each shell."""
        self._stuck: dict[str, str] = {}

    def on_started(self, facts: BackgroundShell) -> None:
        self._emit(BackgroundShellStarted(agent=facts.agent, facts=facts))

    def on_ended(self, end: BackgroundShellResult) -> None:
        facts, item_id = end.facts, self._ids.new_short_id()
        if (stuck_item := self._stuck.pop(facts.shell, None)) is not None:
            self._queue.withdraw_item(facts.agent, stuck_item)
        # If it cannot be journaled its agent still gets it, and that failure is visible.
        with suppress(StateFileError):
            self._emit(BackgroundShellEnded(agent=facts.agent, id=item_id, end=end))
        if not end.quiet:
            self._queued_ends[facts.shell] = item_id
            self._queue.put(build_shell_end_notification(item_id, end))

    def on_waiting_for_input(self, facts: BackgroundShell, tail: str) -> None:
        self._stuck[facts.shell] = item_id = self._ids.new_short_id()
        self._queue.put(
            _build_shell_notification_item(item_id, facts.agent, format_stuck_shell_notification(facts, tail))
        )

    def on_end_shown_to_agent(self, facts: BackgroundShell, by: AgentId, call: str) -> None:
        if by != facts.agent:
            return
        item_id = self._queued_ends.pop(facts.shell, None)
        if item_id is not None and self._queue.withdraw_item(facts.agent, item_id):
            self._emit(NotificationDelivered(agent=by, completion=item_id, call=call))


def build_shell_end_notification(identity: str, end: BackgroundShellResult) -> InboxItem:
    return _build_shell_notification_item(identity, end.facts.agent, format_shell_notification(end))


def _build_shell_notification_item(item_id: str, to: AgentId, text: str) -> InboxItem:
    return InboxItem(
        id=item_id,
        to=to,
        content=(TextBlock(text=text),),
        by="runtime",
        mode="task-notification",
        priority="later",
    )
