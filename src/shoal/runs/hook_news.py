"""Hook notifier: queues the notices of background hooks for the agent whose event they ran on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from shoal.core.arrivals import Item
from shoal.core.errors import StoreError
from shoal.core.events import Journaled, Noted, Queued
from shoal.core.hooks import IN_A_ROW, STOPPING, HookWord
from shoal.core.ids import AgentId, Ids
from shoal.core.messages import Text
from shoal.runs.queue import Queue
from shoal.wire.notices import hook_notification


class QueuedHookNews:
    """Queues hook notices. A hook that wakes an agent runs again on its next event, so wakes are limited."""

    def __init__(self, queue: Queue, ids: Ids, emit: Callable[[Journaled], None]) -> None:
        self._queue = queue
        self._ids = ids
        self._emit = emit
        self._mine: set[str] = set()
        """Ids of the notices that wait in the queue."""
        self._in_a_row: dict[AgentId, int] = {}
        """Times that hooks woke an agent since its last other item."""
        self.listener: Callable[[HookWord], AgentId | None] = lambda word: word.agent
        """Finds the recipient: the agent, or another if it has ended; None if there is none."""
        self.rests: Callable[[AgentId], bool] = lambda _: True

    def told(self, word: HookWord) -> None:
        to = self.listener(word)
        if to is None:
            self._note(word.agent, f"Agent {word.agent} has ended and does not hear a hook: {word.text}")
            return
        text = hook_notification(word, elsewhere=to != word.agent)
        item = Item(
            id=self._ids.short(),
            to=to,
            content=(Text(text=text),),
            by="runtime",
            mode="task-notification",
            priority="later",
            wakes=word.wakes and self._may_wake(to, word),
        )
        # If it cannot be journaled its agent still gets it, and that failure is visible.
        with suppress(StoreError):
            quiet = not item.wakes
            self._emit(Queued(agent=to, item=item.id, by=item.by, text=text, mode=item.mode, quiet=quiet))
        self._mine.add(item.id)
        self._queue.put(item)

    def entered(self, item: Item) -> None:
        """Handle the delivery of an item to an agent."""
        if item.id in self._mine:
            self._mine.discard(item.id)
        else:
            self.heard_else(item.to)

    def heard_else(self, agent: AgentId) -> None:
        """Reset the count, because the agent got input that is not from a hook."""
        self._in_a_row.pop(agent, None)

    def _may_wake(self, to: AgentId, word: HookWord) -> bool:
        if word.event not in STOPPING and not self.rests(to):
            return True
        times = self._in_a_row[to] = self._in_a_row.get(to, 0) + 1
        if times == IN_A_ROW + 1:
            self._note(to, f"Hooks woke it {IN_A_ROW} times in a row; what they say now wakes it no more.")
        return times <= IN_A_ROW

    def _note(self, agent: AgentId, text: str) -> None:
        with suppress(StoreError):
            self._emit(Noted(agent=agent, text=text))
