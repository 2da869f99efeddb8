"""Current activity and usage of a turn, updated by events and formatted as one line."""

from __future__ import annotations

from shoal.app.run_view.agent_activity import describe_agent_activity
from shoal.core.clock import Clock
from shoal.core.events import Event, ModelRequestSettled
from shoal.core.ids import LEAD_ID
from shoal.core.text.text_format import (
    format_count_with_noun,
    format_dollars,
    format_duration,
    format_token_count,
)
from shoal.surfaces.terminal.text_styles import truncate_text

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class TurnActivity:
    """Tracks the events of a turn: the lead's current activity, and the usage of the lead and its agents."""

    def __init__(self, clock: Clock, activity: str = "starting") -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._running: dict[str, str] = {}
        self.current_activity = activity
        self.requests = 0
        self.tokens = 0
        self.usd = 0.0
        self.priced = True

    def apply_event(self, event: Event) -> None:
        if isinstance(event, ModelRequestSettled):
            self.requests += 1
            self.tokens += event.usage.total_tokens
            self.usd += event.cost_usd or 0.0
            self.priced = self.priced and event.cost_usd is not None
        if event.agent == LEAD_ID:
            self.current_activity = describe_agent_activity(event, self._running, self.current_activity)

    @property
    def elapsed(self) -> float:
        return self._clock.monotonic() - self._since

    def format_activity_line(self, columns: int) -> str:
        """Return the line, never wider than `columns`: the numbers stay, the activity is shortened."""
        numbers = [f"{self.elapsed:.0f} s" if self.elapsed < 60 else format_duration(self.elapsed)]
        if self.requests:
            cost = [format_dollars(self.usd)] if self.priced else []
            numbers = [
                format_count_with_noun(self.requests, "request"),
                f"{format_token_count(self.tokens)} tokens",
                *cost,
                *numbers,
            ]
        tail = " · " + " · ".join(numbers)
        head = f"{_FRAMES[int(self.elapsed * 10) % len(_FRAMES)]} {LEAD_ID} · "
        available_width = columns - len(head) - len(tail)
        if available_width < 12:
            return truncate_text(head + self.current_activity, columns)
        return head + truncate_text(self.current_activity, available_width) + tail
