"""Times at which a process sends its notifications, so that a busy one sends fewer of them."""

from __future__ import annotations

_FIRST_PAUSE = 0.005
"""Seconds between two batches: a busy board sends one for many changes."""
_MAX_PAUSE = 0.02
_GROWTH = 1.25
_DISPLAY_PAUSE = 0.05
"""Seconds until a notification that only views of a board wait for."""


class HintSchedule:
    """Batches that follow each other without a break have longer and longer pauses between them.

    Each notification is a separate transaction, which costs as much as storing a message.
    """

    def __init__(self) -> None:
        self._sent_at = float("-inf")
        self._pause = _FIRST_PAUSE

    def get_send_time(self, now: float, *, wakes: bool) -> float:
        """Return when to send a notification; one that no waiter needs may be a little late."""
        if wakes:
            return self._sent_at + self._pause
        return max(self._sent_at, now) + _DISPLAY_PAUSE

    def note_batch(self, now: float) -> None:
        """Note that the waiting notifications were sent."""
        is_busy = now - self._sent_at < 2 * self._pause
        self._pause = min(self._pause * _GROWTH, _MAX_PAUSE) if is_busy else _FIRST_PAUSE
        self._sent_at = now
