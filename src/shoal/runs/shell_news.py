"""Shell notifier: journals background commands and queues notifications for the agent that started them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from shoal.core.arrivals import Item
from shoal.core.errors import StoreError
from shoal.core.events import Journaled, Notified, ShellEnded, ShellStarted
from shoal.core.ids import AgentId, Ids
from shoal.core.messages import Text
from shoal.core.shells import ShellEnd, ShellFacts
from shoal.runs.queue import Queue
from shoal.wire.notices import shell_notification, shell_stuck


class QueuedShellNews:
    """Observer that reports each end once, unless its agent caused or saw it."""

    def __init__(self, queue: Queue, ids: Ids, emit: Callable[[Journaled], None]) -> None:
        self._queue = queue
        self._ids = ids
        self._emit = emit
        self._unseen: dict[str, str] = {}
        """Item id of the queued end of each shell."""
        self._stuck: dict[str, str] = {}

    def started(self, facts: ShellFacts) -> None:
        self._emit(ShellStarted(agent=facts.agent, facts=facts))

    def ended(self, end: ShellEnd) -> None:
        facts, identity = end.facts, self._ids.short()
        if (asked := self._stuck.pop(facts.shell, None)) is not None:
            self._queue.withdraw(facts.agent, asked)
        # If it cannot be journaled its agent still gets it, and that failure is visible.
        with suppress(StoreError):
            self._emit(ShellEnded(agent=facts.agent, id=identity, end=end))
        if not end.quiet:
            self._unseen[facts.shell] = identity
            self._queue.put(shell_item(identity, end))

    def stuck(self, facts: ShellFacts, tail: str) -> None:
        self._stuck[facts.shell] = identity = self._ids.short()
        self._queue.put(_item(identity, facts.agent, shell_stuck(facts, tail)))

    def seen(self, facts: ShellFacts, by: AgentId, call: str) -> None:
        if by != facts.agent:
            return
        identity = self._unseen.pop(facts.shell, None)
        if identity is not None and self._queue.withdraw(facts.agent, identity):
            self._emit(Notified(agent=by, completion=identity, call=call))


def shell_item(identity: str, end: ShellEnd) -> Item:
    return _item(identity, end.facts.agent, shell_notification(end))


def _item(identity: str, to: AgentId, text: str) -> Item:
    return Item(
        id=identity,
        to=to,
        content=(Text(text=text),),
        by="runtime",
        mode="task-notification",
        priority="later",
    )
