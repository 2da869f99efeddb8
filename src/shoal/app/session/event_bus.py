"""Event bus of a session: passes events to the journal, the running turn and the subscribers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.app.models.model_substitution import OBSERVED_EVENTS, ModelSubstitutionDetector
from shoal.core.events import Event, JournaledEvent, NoteAdded
from shoal.runs.event_channel import EventChannel
from shoal.wire.journal_codec import parse_journal_line

if TYPE_CHECKING:
    from shoal.app.session.session_builder import SessionServices


class EventBus:
    services: SessionServices
    """Set when the session is built; there are no events before."""

    def __init__(self) -> None:
        self._channel: EventChannel | None = None
        """Channel of the running turn."""
        self._substitution_detector = ModelSubstitutionDetector()
        self._subscribers: dict[Callable[[Event], None], None] = {}

    def subscribe(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Subscribe to all events, in turns and between them; return a function that unsubscribes.

        The callback must not block. One that raises is removed, and the session continues.
        """
        self._subscribers[callback] = None
        return lambda: self._subscribers.pop(callback, None)

    def emit_event(self, event: JournaledEvent) -> None:
        """Publish an event from code that cannot await."""
        self._journal_and_distribute_event(event)
        if self._channel is not None:
            self._channel.force_put(event)

    def publish_remote_journal_line(self, line: bytes) -> None:
        """Publish an event that a teammate in another process wrote to the journal."""
        _, event = parse_journal_line(line)
        if not isinstance(event, JournaledEvent):
            return
        if self.services.control is not None:
            self.services.control.publish_event(event)
        self._notify_subscribers(event)
        if self._channel is not None:
            self._channel.force_put(event)

    def note(self, text: str) -> None:
        """Publish a note for the person."""
        self.emit_event(NoteAdded(agent=self.services.agent.identity.agent, text=text))

    async def publish_event(self, event: Event) -> None:
        self._journal_and_distribute_event(event)
        channel = self._channel
        # Fast path: there is usually room, and this runs dozens of times per round.
        if channel is not None and not channel.try_put(event):
            await channel.put(event)

    def _journal_and_distribute_event(self, event: Event) -> None:
        # Journaled before anyone sees it, so that everything a surface has shown is stored.
        if isinstance(event, JournaledEvent):
            self.services.journal.append(event)
            if (
                type(event) in OBSERVED_EVENTS
                and (note := self._substitution_detector.describe_substitution(event)) is not None
            ):
                self.note(note)
        if self.services.control is not None:
            self.services.control.publish_event(event)
        if self.services.debug_log is not None:
            self.services.debug_log.write_event(event)
        if self._subscribers:
            self._notify_subscribers(event)

    def _notify_subscribers(self, event: Event) -> None:
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(event)
            except Exception as error:  # noqa: BLE001 - the wall around subscribers: none may end the run
                self._subscribers.pop(subscriber, None)
                self.note(f"A watcher of this run is not called any more: {type(error).__name__}: {error}")
