"""A session's voice: what it tells, to the journal, to the running turn and to those who look on."""

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
    """Set when the session is built; it has nothing to tell before."""

    def __init__(self) -> None:
        self._channel: Channel | None = None
        """Of the running turn."""
        self._answering = Answering()
        self._watchers: dict[Callable[[Event], None], None] = {}

    def watch(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Hear every event as it is told, in turns and between them; what is returned ends that.

        The callback must not wait. One that raises is not called again, and the session goes on.
        """
        self._watchers[callback] = None
        return lambda: self._watchers.pop(callback, None)

    def emit(self, event: Journaled) -> None:
        """Tell an event from code that cannot wait."""
        self._keep(event)
        if self._channel is not None:
            self._channel.push(event)

    def overhear(self, line: bytes) -> None:
        """Show what a teammate in another process has written to the journal."""
        _, event = read_event(line)
        if not isinstance(event, Journaled):
            return
        if self.parts.control is not None:
            self.parts.control.publish(event)
        self._show(event)
        if self._channel is not None:
            self._channel.push(event)

    def note(self, text: str) -> None:
        """Tell the person something they should know."""
        self.emit(Noted(agent=self.parts.agent.identity.agent, text=text))

    async def tell(self, event: Event) -> None:
        self._keep(event)
        channel = self._channel
        # Mostly there is room: this is passed dozens of times in each round.
        if channel is not None and not channel.offer(event):
            await channel.put(event)

    def _keep(self, event: Event) -> None:
        # On the record before anyone hears of it: what a surface has shown is kept.
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
            except Exception as error:  # noqa: BLE001 - the wall around those who look on: they must not end the run
                self._watchers.pop(watcher, None)
                self.note(f"A watcher of this run is not called any more: {type(error).__name__}: {error}")
