"""Inbox queue of a session: all items that wait for its agents, by priority and in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from shoal.core.arrivals import Item, Priority
from shoal.core.ids import AgentId

_ORDER: tuple[Priority, ...] = ("now", "next", "later")
_QUIET = len(_ORDER)
"""Index of items that wake nobody: after all that do."""


def _unheard(_: Item) -> None: ...


class _Waiting:
    """Items that wait for one agent."""

    __slots__ = ("by_priority", "news")

    def __init__(self) -> None:
        self.by_priority: tuple[deque[Item], ...] = tuple(deque() for _ in (*_ORDER, _QUIET))
        self.news: asyncio.Event | None = None

    def __len__(self) -> int:
        """Return the number of items that wake the agent."""
        # Called for each member of a large team whenever the team may be idle.
        return sum(map(len, self.by_priority[:_QUIET]))


class Queue:
    """Queue of all agents. `on_delivered` is called with each item that is on its agent's transcript."""

    def __init__(self, entered: Callable[[Item], None] = _unheard) -> None:
        self._entered = entered
        self._waiting: dict[AgentId, _Waiting] = {}

    def put(self, item: Item) -> None:
        waiting = self._waiting.setdefault(item.to, _Waiting())
        _enter(waiting.by_priority[_place(item)], item)
        if waiting.news is not None and item.wakes:
            waiting.news.set()

    def take(self, to: AgentId, *, resting: bool = False) -> Item | None:
        """Take the next item of this agent; with `only_waking`, None if nothing wakes it."""
        waiting = self._waiting.get(to)
        if waiting is None or (resting and not len(waiting)):
            return None
        for items in waiting.by_priority:
            if items:
                return items.popleft()
        if waiting.news is None:
            del self._waiting[to]
        return None

    def put_back(self, item: Item) -> None:
        """Put an item before all others of its priority."""
        waiting = self._waiting.setdefault(item.to, _Waiting())
        waiting.by_priority[_place(item)].appendleft(item)

    def take_prompts(self, to: AgentId) -> tuple[Item, ...]:
        """Take the person's undelivered prompts; the rest stays."""
        waiting = self._waiting.get(to)
        if waiting is None:
            return ()
        said = tuple(item for items in waiting.by_priority for item in items if item.by == "person")
        for items in waiting.by_priority:
            kept = [item for item in items if item.by != "person"]
            items.clear()
            items.extend(kept)
        return said

    def entered(self, item: Item) -> None:
        self._entered(item)

    def forget(self, to: AgentId) -> None:
        """Discard the items of an ended agent: they are not for another agent of its name."""
        self._waiting.pop(to, None)

    def withdraw(self, to: AgentId, item_id: str) -> bool:
        """Withdraw an item; return True if it was still waiting."""
        waiting = self._waiting.get(to)
        for items in () if waiting is None else waiting.by_priority:
            for item in items:
                if item.id == item_id:
                    items.remove(item)
                    return True
        return False

    def holds(self, to: AgentId, item_id: str) -> bool:
        waiting = self._waiting.get(to)
        return waiting is not None and any(
            item.id == item_id for items in waiting.by_priority for item in items
        )

    def size(self, to: AgentId) -> int:
        """Return the number of waiting items that wake the agent."""
        waiting = self._waiting.get(to)
        return 0 if waiting is None else len(waiting)

    async def arrival(self, to: AgentId) -> None:
        """Wait until an item that wakes this agent is queued."""
        waiting = self._waiting.setdefault(to, _Waiting())
        while not len(waiting):
            waiting.news = waiting.news or asyncio.Event()
            waiting.news.clear()
            await waiting.news.wait()

    def inlet(self, to: AgentId) -> QueueInlet:
        return QueueInlet(self, to)


def _place(item: Item) -> int:
    return _ORDER.index(item.priority) if item.wakes else _QUIET


def _enter(items: deque[Item], item: Item) -> None:
    """Insert an item after all with the same or a lower rank."""
    place = len(items)
    while place and items[place - 1].rank > item.rank:
        place -= 1
    items.insert(place, item)


class QueueInlet:
    """Inbox of one agent on the queue."""

    __slots__ = ("_queue", "_to")

    def __init__(self, queue: Queue, to: AgentId) -> None:
        self._queue = queue
        self._to = to

    def take(self, *, resting: bool = False) -> Item | None:
        return self._queue.take(self._to, resting=resting)

    def entered(self, item: Item) -> None:
        self._queue.entered(item)

    def put_back(self, item: Item) -> None:
        self._queue.put_back(item)
