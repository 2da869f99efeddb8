"""Hook notifier: queues the notices of background hooks for the agent whose event they ran on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock
from shoal.core.errors import StateFileError
from shoal.core.events import JournaledEvent, NoteAdded, QueueItemAdded
from shoal.core.extensions.hooks import MAX_WAKES_IN_A_ROW, STOP_EVENTS, BackgroundHookNotice
from shoal.core.ids import AgentId, IdGenerator
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.wire.notification_text import format_hook_notification


class HookNotifier:
    """Queues hook notices. A hook that wakes an agent runs again on its next event, so wakes are limited."""

    def __init__(
        self,
        queue: SharedInboxQueue,
        ids: IdGenerator,
        emit: Callable[[JournaledEvent], None],
        *,
        find_recipient: Callable[[BackgroundHookNotice], AgentId | None],
        is_idle: Callable[[AgentId], bool],
    ) -> None:
        """`find_recipient` returns the agent, another if that one has ended, or None if there is none."""
        self._queue = queue
        self._find_recipient = find_recipient
        self._is_idle = is_idle
        self._ids = ids
        self._emit = emit
        self._queued_ids: set[str] = set()
        """Ids of the notices that wait in the queue."""
        self._wake_counts: dict[AgentId, int] = {}
        """Number of times hooks have woken an agent since its last other item."""

    def deliver_notice(self, notice: BackgroundHookNotice) -> None:
        recipient = self._find_recipient(notice)
        if recipient is None:
            self._emit_note(
                notice.agent,
                f"Agent {notice.agent} has ended, so it did not get this message from a hook: {notice.text}",
            )
            return
        text = format_hook_notification(notice, forwarded=recipient != notice.agent)
        item = InboxItem(
            id=self._ids.new_short_id(),
            to=recipient,
            content=(TextBlock(text=text),),
            by="runtime",
            mode="task-notification",
            priority="later",
            wakes=notice.wakes and self._can_wake_agent(recipient, notice),
        )
        # If it cannot be journaled its agent still gets it, and that failure is visible.
        with suppress(StateFileError):
            quiet = not item.wakes
            self._emit(
                QueueItemAdded(
                    agent=recipient, item=item.id, by=item.by, text=text, mode=item.mode, quiet=quiet
                )
            )
        self._queued_ids.add(item.id)
        self._queue.put(item)

    def on_item_delivered(self, item: InboxItem) -> None:
        """Handle the delivery of an item to an agent."""
        if item.id in self._queued_ids:
            self._queued_ids.discard(item.id)
        else:
            self.reset_wake_count(item.to)

    def reset_wake_count(self, agent: AgentId) -> None:
        """Reset the count, because the agent got input that is not from a hook."""
        self._wake_counts.pop(agent, None)

    def _can_wake_agent(self, to: AgentId, notice: BackgroundHookNotice) -> bool:
        if notice.event not in STOP_EVENTS and not self._is_idle(to):
            return True
        wake_count = self._wake_counts[to] = self._wake_counts.get(to, 0) + 1
        if wake_count == MAX_WAKES_IN_A_ROW + 1:
            self._emit_note(
                to,
                f"Hooks have woken it {MAX_WAKES_IN_A_ROW} times in a row. They cannot wake it again now.",
            )
        return wake_count <= MAX_WAKES_IN_A_ROW

    def _emit_note(self, agent: AgentId, text: str) -> None:
        with suppress(StateFileError):
            self._emit(NoteAdded(agent=agent, text=text))
