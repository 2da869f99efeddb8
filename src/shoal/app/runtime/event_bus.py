"""Event bus of a session: journals each event, then passes it to observers, subscribers and the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from shoal.core.events import (
    Event,
    JournaledEvent,
    ModelRequestFailed,
    ModelRequestSent,
    ModelRequestSettled,
    NoteAdded,
)
from shoal.core.ids import LEAD_ID, RequestId
from shoal.core.ports import Journal
from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.runs.event_channel import EventChannel
from shoal.wire.journal_codec import parse_journal_line

EventCallback: TypeAlias = Callable[[Event], None]
_AFTER_REQUEST_SECONDS = 0.05
_MAX_WAIT_FOR_REQUEST = 1.0
_ID_SUFFIX = compile_on_first_use(r"(?:[-@]\d{4,8}(?:-\d\d-\d\d)?)?(?:-v\d+(?::\d+)?)?(?::latest)?")
"""Suffix that a provider adds to a model id: a snapshot date, a version, or `latest`."""


OBSERVED_EVENTS = frozenset((ModelRequestSent, ModelRequestFailed, ModelRequestSettled))


class ModelSubstitutionDetector:
    """Inspects every event of a session and reports each pair of models once."""

    def __init__(self) -> None:
        self._requested: dict[RequestId, str] = {}
        self._reported: set[tuple[str, str]] = set()

    def describe_substitution(self, event: Event) -> str | None:
        """Return a sentence for the user if the answer came from another model."""
        match event:
            case ModelRequestSent():
                self._requested[event.request] = event.model
            case ModelRequestSettled():
                answered = event.model
                requested = self._requested.pop(event.request, answered)
                if not is_same_model(requested, answered) and (requested, answered) not in self._reported:
                    self._reported.add((requested, answered))
                    return f"Shoal requested the model {requested}, but {answered} answered."
            case ModelRequestFailed():
                self._requested.pop(event.request, None)
            case _:
                pass
        return None


def is_same_model(requested: str, answered: str) -> bool:
    """Return True if the answer's model id is the requested one, or a longer form of it."""
    if not answered or answered == requested:
        return True
    expected = requested.removesuffix("-latest").removesuffix(":latest").lower()
    actual = answered.lower()
    if "/" not in actual:
        expected = expected.rpartition("/")[2]
    return actual.startswith(expected) and _ID_SUFFIX.fullmatch(actual[len(expected) :]) is not None


class EventBus:
    """The debug log gets every event of this process, and the notes that are meant for it alone."""

    def __init__(self, journal: Journal, write_to_debug_log: EventCallback | None = None) -> None:
        self._journal = journal
        self._turn_channel: EventChannel | None = None
        self._substitution_detector = ModelSubstitutionDetector()
        self._observers: tuple[EventCallback, ...] = (
            () if write_to_debug_log is None else (write_to_debug_log,)
        )
        self._remote_observers: tuple[EventCallback, ...] = ()
        self._subscribers: dict[EventCallback, None] = {}
        self._write_to_debug_log = write_to_debug_log
        self.turn = 0
        """Number of the running turn, or of the last one."""

    def start_turn(self) -> None:
        self.turn += 1

    def resume_turns(self, turn: int) -> None:
        """Continue the numbers of an earlier process."""
        self.turn = turn

    def add_observer(self, observe: EventCallback, *, remote_events: bool) -> None:
        """Add a part of the runtime that gets every event before the subscribers; it must not raise."""
        self._observers = (*self._observers, observe)
        if remote_events:
            self._remote_observers = (*self._remote_observers, observe)

    def note_in_debug_log(self, text: str) -> None:
        if self._write_to_debug_log is not None:
            self._write_to_debug_log(NoteAdded(agent=LEAD_ID, text=text))

    def subscribe(self, callback: EventCallback) -> Callable[[], None]:
        """Subscribe to all events, in turns and between them; return a function that unsubscribes.

        The callback must not block. A callback that raises is removed, and the session continues.
        """
        self._subscribers[callback] = None
        return lambda: self._subscribers.pop(callback, None)

    def call_after_first_request(self, callback: Callable[[], object]) -> None:
        """Call back after the first request was sent, for work that must not delay it, or after a second."""
        loop = asyncio.get_running_loop()
        pending = loop.call_later(_MAX_WAIT_FOR_REQUEST, callback)

        def shorten_delay(event: Event) -> None:
            if isinstance(event, ModelRequestSent):
                unsubscribe()
                if loop.time() < pending.when() - _AFTER_REQUEST_SECONDS:
                    pending.cancel()
                    # The event precedes the connection: the request is written in the meantime.
                    loop.call_later(_AFTER_REQUEST_SECONDS, callback)

        unsubscribe = self.subscribe(shorten_delay)

    def open_turn_channel(self) -> EventChannel:
        """Open the channel of a new turn; it replaces that of the turn before."""
        self._turn_channel = EventChannel()
        return self._turn_channel

    def emit_event(self, event: JournaledEvent) -> None:
        """Publish an event from code that cannot await."""
        self._journal_event(event)
        self._show_event(event)

    def emit_events(self, events: Sequence[JournaledEvent]) -> None:
        """Publish events that are journaled together."""
        self._journal.append_all(events)
        for event in events:
            self._show_event(event)

    def _show_event(self, event: JournaledEvent) -> None:
        self._distribute_event(event)
        if self._turn_channel is not None:
            self._turn_channel.force_put(event)

    async def publish_event(self, event: Event) -> None:
        # Journaled before anyone sees it, so that everything a surface has shown is stored.
        if event.is_journaled:
            self._journal_event(event)  # type: ignore[arg-type]  # only a JournaledEvent has it set
        if self._observers or self._subscribers:
            self._distribute_event(event)
        channel = self._turn_channel
        # Fast path: there is usually room, and this runs dozens of times per round.
        if channel is not None and not channel.try_put(event):
            await channel.put(event)

    def publish_remote_journal_line(self, line: bytes) -> None:
        """Publish an event that a teammate in another process wrote to the journal."""
        _, event = parse_journal_line(line)
        if not isinstance(event, JournaledEvent):
            return
        for observe in self._remote_observers:
            observe(event)
        self.notify_subscribers(event)
        if self._turn_channel is not None:
            self._turn_channel.force_put(event)

    def note(self, text: str) -> None:
        """Publish a note for the user."""
        self.emit_event(NoteAdded(agent=LEAD_ID, text=text))

    def notify_subscribers(self, event: Event) -> None:
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(event)
            except Exception as error:  # noqa: BLE001 - boundary around subscribers: none of them may end the run
                self._subscribers.pop(subscriber, None)
                self.note(
                    f"A subscriber to this run failed, so Shoal no longer calls it: {type(error).__name__}: "
                    f"{error}"
                )

    def _journal_event(self, event: JournaledEvent) -> None:
        self._journal.append(event)
        if type(event) in OBSERVED_EVENTS:
            note = self._substitution_detector.describe_substitution(event)
            if note is not None:
                self.note(note)

    def _distribute_event(self, event: Event) -> None:
        for observe in self._observers:
            observe(event)
        if self._subscribers:
            self.notify_subscribers(event)
