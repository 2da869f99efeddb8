"""Inbox queue of a session: all items that wait for its agents, by priority and in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from shoal.core.compact_event import CompactEvent
from shoal.core.conversation.inbox_items import InboxItem, InboxPriority
from shoal.core.ids import AgentId

_PRIORITY_ORDER: tuple[InboxPriority, ...] = ("now", "next", "later")
_QUIET_INDEX = len(_PRIORITY_ORDER)
"""Index of items that do not wake the agent, after all items that do."""


class _AgentItemQueue:
    """Items that wait for one agent."""

    __slots__ = ("by_priority", "item_added")

    def __init__(self) -> None:
        self.by_priority: dict[int, deque[InboxItem]] = {}
        """One for each priority, and one for quiet items. Each exists while it has items: an empty one takes
        700 bytes, and a process may have thousands of agents."""
        self.item_added: CompactEvent | None = None

    def __len__(self) -> int:
        """Return the number of items that wake the agent."""
        # Called for each member of a large team whenever the team may be idle.
        count = 0
        for index, items in self.by_priority.items():
            if index != _QUIET_INDEX:
                count += len(items)
        return count

    def iterate_items(self) -> Iterator[InboxItem]:
        """Yield all items in the order in which they are taken."""
        for index in sorted(self.by_priority):
            yield from self.by_priority[index]

    def open_priority(self, item: InboxItem) -> deque[InboxItem]:
        """Return the queue of the item's priority, created if missing."""
        index = _PRIORITY_ORDER.index(item.priority) if item.wakes else _QUIET_INDEX
        return self.by_priority.setdefault(index, deque())

    def take_first(self) -> InboxItem | None:
        if not self.by_priority:
            return None
        index = min(self.by_priority)
        item = self.by_priority[index].popleft()
        self._drop_if_empty(index)
        return item

    def remove(self, is_removed: Callable[[InboxItem], bool]) -> list[InboxItem]:
        """Remove the items for which the function returns True; return them in order."""
        removed: list[InboxItem] = []
        for index, items in sorted(self.by_priority.items()):
            found = [item for item in items if is_removed(item)]
            if found:
                removed.extend(found)
                self.by_priority[index] = deque(item for item in items if not is_removed(item))
                self._drop_if_empty(index)
        return removed

    def _drop_if_empty(self, index: int) -> None:
        if not self.by_priority[index]:
            del self.by_priority[index]

    async def wait_for_added_item(self) -> None:
        self.item_added = self.item_added or CompactEvent()
        self.item_added.clear()
        await self.item_added.wait()


class SharedInboxQueue:
    """Queue of all agents."""

    def __init__(self) -> None:
        self._delivery_listeners: list[Callable[[InboxItem], None]] = []
        self._agent_queues: dict[AgentId, _AgentItemQueue] = {}

    def put(self, item: InboxItem) -> None:
        agent_queue = self._open_agent_queue(item.to)
        _insert_by_rank(agent_queue.open_priority(item), item)
        if agent_queue.item_added is not None and item.wakes:
            agent_queue.item_added.set()

    def take_next(self, to: AgentId, *, only_waking: bool = False) -> InboxItem | None:
        """Take the next item of this agent; with `only_waking`, None if nothing wakes it."""
        agent_queue = self._agent_queues.get(to)
        if agent_queue is None or (only_waking and not len(agent_queue)):
            return None
        item = agent_queue.take_first()
        if item is None and agent_queue.item_added is None:
            del self._agent_queues[to]
        return item

    def put_back(self, item: InboxItem) -> None:
        """Put an item before all others of its priority."""
        agent_queue = self._open_agent_queue(item.to)
        agent_queue.open_priority(item).appendleft(item)

    def take_user_prompts(self, to: AgentId) -> tuple[InboxItem, ...]:
        """Take the user's undelivered prompts; the rest stays."""
        agent_queue = self._agent_queues.get(to)
        if agent_queue is None:
            return ()
        return tuple(agent_queue.remove(lambda item: item.by == "person"))

    def add_delivery_listener(self, listener: Callable[[InboxItem], None]) -> None:
        """Call a function with each item that is on its agent's transcript, in the order of registration."""
        self._delivery_listeners.append(listener)

    def mark_delivered(self, item: InboxItem) -> None:
        for listener in self._delivery_listeners:
            listener(item)

    def discard_agent_items(self, to: AgentId) -> None:
        """Discard the items of an ended agent: they are not for another agent of its name."""
        self._agent_queues.pop(to, None)

    def withdraw_item(self, to: AgentId, item_id: str) -> bool:
        """Withdraw an item; return True if it was still waiting."""
        agent_queue = self._agent_queues.get(to)
        return agent_queue is not None and bool(agent_queue.remove(lambda item: item.id == item_id))

    def has_item(self, to: AgentId, item_id: str) -> bool:
        agent_queue = self._agent_queues.get(to)
        return agent_queue is not None and any(item.id == item_id for item in agent_queue.iterate_items())

    def count_waking_items(self, to: AgentId) -> int:
        """Return the number of waiting items that wake the agent."""
        agent_queue = self._agent_queues.get(to)
        return 0 if agent_queue is None else len(agent_queue)

    async def wait_for_waking_item(self, to: AgentId) -> None:
        """Wait until an item that wakes this agent is queued."""
        agent_queue = self._open_agent_queue(to)
        while not len(agent_queue):
            await agent_queue.wait_for_added_item()

    def _open_agent_queue(self, to: AgentId) -> _AgentItemQueue:
        agent_queue = self._agent_queues.get(to)
        if agent_queue is None:
            agent_queue = self._agent_queues[to] = _AgentItemQueue()
        return agent_queue

    def open_inbox(self, to: AgentId) -> QueueBackedAgentInbox:
        return QueueBackedAgentInbox(self, to)


def _insert_by_rank(items: deque[InboxItem], item: InboxItem) -> None:
    """Insert an item after all with the same or a lower rank."""
    index = len(items)
    while index and items[index - 1].rank > item.rank:
        index -= 1
    items.insert(index, item)


class QueueBackedAgentInbox:
    """Inbox of one agent on the queue."""

    __slots__ = ("_queue", "_to")

    def __init__(self, queue: SharedInboxQueue, to: AgentId) -> None:
        self._queue = queue
        self._to = to

    def take_next(self, *, only_waking: bool = False) -> InboxItem | None:
        return self._queue.take_next(self._to, only_waking=only_waking)

    def mark_delivered(self, item: InboxItem) -> None:
        self._queue.mark_delivered(item)

    def put_back(self, item: InboxItem) -> None:
        self._queue.put_back(item)
