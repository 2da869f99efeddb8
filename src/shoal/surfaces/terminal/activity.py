"""Current activity and usage of a turn, updated by events and formatted as one line."""

from __future__ import annotations

from shoal.app.picture.doing import doing_now
from shoal.core.clock import Clock
from shoal.core.events import Event, RequestSettled
from shoal.core.ids import LEAD
from shoal.core.wording import count, dollars, many, seconds
from shoal.surfaces.terminal.paint import cut

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Activity:
    """Tracks the events of a turn: the lead's current activity, and the usage of the lead and its agents."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._running: dict[str, str] = {}
        self.doing = "starting"
        self.requests = 0
        self.tokens = 0
        self.usd = 0.0
        self.priced = True

    def hear(self, event: Event) -> None:
        if isinstance(event, RequestSettled):
            self.requests += 1
            self.tokens += event.usage.total_tokens
            self.usd += event.cost_usd or 0.0
            self.priced = self.priced and event.cost_usd is not None
        if event.agent == LEAD:
            self.doing = doing_now(event, self._running, self.doing)

    @property
    def elapsed(self) -> float:
        return self._clock.monotonic() - self._since

    def line(self, columns: int) -> str:
        """Return the line, never wider than `columns`: the numbers stay, the activity is shortened."""
        numbers = [f"{self.elapsed:.0f} s" if self.elapsed < 60 else seconds(self.elapsed)]
        if self.requests:
            cost = [dollars(self.usd)] if self.priced else []
            numbers = [many(self.requests, "request"), f"{count(self.tokens)} tokens", *cost, *numbers]
        tail = " · " + " · ".join(numbers)
        head = f"{_FRAMES[int(self.elapsed * 10) % len(_FRAMES)]} {LEAD} · "
        room = columns - len(head) - len(tail)
        if room < 12:
            return cut(head + self.doing, columns)
        return head + cut(self.doing, room) + tail
