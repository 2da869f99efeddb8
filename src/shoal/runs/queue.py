"""The one queue of a session: everything that waits for one of its agents, by priority and in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from shoal.core.arrivals import Item, Priority
from shoal.core.ids import AgentId

_ORDER: tuple[Priority, ...] = ("now", "next", "later")
_QUIET = len(_ORDER)
"""The place of what wakes nobody: behind all that does."""


def _unheard(_: Item) -> None: ...


class _Waiting:
    """What waits for one agent."""

    __slots__ = ("by_priority", "news")

    def __init__(self) -> None:
        self.by_priority: tuple[deque[Item], ...] = tuple(deque() for _ in (*_ORDER, _QUIET))
        self.news: asyncio.Event | None = None

    def __len__(self) -> int:
        """What wakes its agent; the rest waits with it."""
        # Asked for each member of a large team whenever that may have gone quiet.
        return sum(map(len, self.by_priority[:_QUIET]))


class Queue:
    """`entered` is told of each item that has reached its agent's transcript."""

    def __init__(self, entered: Callable[[Item], None] = _unheard) -> None:
        self._entered = entered
        self._waiting: dict[AgentId, _Waiting] = {}

    def put(self, item: Item) -> None:
        waiting = self._waiting.setdefault(item.to, _Waiting())
        _enter(waiting.by_priority[_place(item)], item)
        if waiting.news is not None and item.wakes:
            waiting.news.set()

    def take(self, to: AgentId, *, resting: bool = False) -> Item | None:
        """The next for this agent; for one at rest, None where nothing wakes it."""
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
        """Before all others of its priority."""
        waiting = self._waiting.setdefault(item.to, _Waiting())
        waiting.by_priority[_place(item)].appendleft(item)

    def take_prompts(self, to: AgentId) -> tuple[Item, ...]:
        """What a person said that the agent has not heard; the rest stays."""
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
        """This agent has ended: what waits for it is not for another one of its name."""
        self._waiting.pop(to, None)

    def withdraw(self, to: AgentId, item_id: str) -> bool:
        """Whether the item still waited; it waits no longer."""
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
        """How much waits that wakes it."""
        waiting = self._waiting.get(to)
        return 0 if waiting is None else len(waiting)

    async def arrival(self, to: AgentId) -> None:
        """Until something waits for this agent."""
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
    """Behind all that has its rank or a lower one."""
    place = len(items)
    while place and items[place - 1].rank > item.rank:
        place -= 1
    items.insert(place, item)


class QueueInlet:
    """One agent's end of the queue."""

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
