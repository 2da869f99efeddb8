"""Event bus of a session: passes events to the journal, the running turn and the subscribers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.app.models.answering import LOOKED_AT, Answering
from shoal.core.events import Event, Journaled, Noted
from shoal.runs.channel import Channel
from shoal.wire.journal import read_event

if TYPE_CHECKING:
    from shoal.app.session.build import Parts


class Voice:
    parts: Parts
    """Set when the session is built; there are no events before."""

    def __init__(self) -> None:
        self._channel: Channel | None = None
        """Channel of the running turn."""
        self._answering = Answering()
        self._watchers: dict[Callable[[Event], None], None] = {}

    def watch(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Subscribe to all events, in turns and between them; return a function that unsubscribes.

        The callback must not block. One that raises is removed, and the session continues.
        """
        self._watchers[callback] = None
        return lambda: self._watchers.pop(callback, None)

    def emit(self, event: Journaled) -> None:
        """Publish an event from code that cannot await."""
        self._keep(event)
        if self._channel is not None:
            self._channel.push(event)

    def overhear(self, line: bytes) -> None:
        """Publish an event that a teammate in another process wrote to the journal."""
        _, event = read_event(line)
        if not isinstance(event, Journaled):
            return
        if self.parts.control is not None:
            self.parts.control.publish(event)
        self._show(event)
        if self._channel is not None:
            self._channel.push(event)

    def note(self, text: str) -> None:
        """Publish a note for the person."""
        self.emit(Noted(agent=self.parts.agent.identity.agent, text=text))

    async def tell(self, event: Event) -> None:
        self._keep(event)
        channel = self._channel
        # Fast path: there is usually room, and this runs dozens of times per round.
        if channel is not None and not channel.offer(event):
            await channel.put(event)

    def _keep(self, event: Event) -> None:
        # Journaled before anyone sees it, so that everything a surface has shown is stored.
        if isinstance(event, Journaled):
            self.parts.journal.append(event)
            if type(event) in LOOKED_AT and (told := self._answering.look(event)) is not None:
                self.note(told)
        if self.parts.control is not None:
            self.parts.control.publish(event)
        if self.parts.debug is not None:
            self.parts.debug.note(event)
        if self._watchers:
            self._show(event)

    def _show(self, event: Event) -> None:
        for watcher in tuple(self._watchers):
            try:
                watcher(event)
            except Exception as error:  # noqa: BLE001 - the wall around subscribers: none may end the run
                self._watchers.pop(watcher, None)
                self.note(f"A watcher of this run is not called any more: {type(error).__name__}: {error}")
