"""What an agent does right now and what it took so far, told by its events, in one line."""

from __future__ import annotations

from shoal.core.clock import Clock
from shoal.core.events import (
    Answered,
    Asked,
    Discarded,
    Event,
    Finished,
    Heard,
    RequestFailed,
    RequestSent,
    RequestSettled,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from shoal.core.ids import LEAD
from shoal.surfaces.cli.paint import count, cut, dollars, one_line, seconds

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Activity:
    """Fed with the events of a turn: what the lead does, and what it and its agents took."""

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
        """Never wider than `columns`: the numbers stay, what is being done is shortened."""
        numbers = [f"{self.elapsed:.0f} s" if self.elapsed < 60 else seconds(self.elapsed)]
        if self.requests:
            cost = [dollars(self.usd)] if self.priced else []
            numbers = [_requests(self.requests), f"{count(self.tokens)} tokens", *cost, *numbers]
        tail = " · " + " · ".join(numbers)
        head = f"{_FRAMES[int(self.elapsed * 10) % len(_FRAMES)]} {LEAD} · "
        room = columns - len(head) - len(tail)
        if room < 12:
            return cut(head + self.doing, columns)
        return head + cut(self.doing, room) + tail


def _requests(number: int) -> str:
    return "1 request" if number == 1 else f"{number} requests"


def doing_now(event: Event, calls: dict[str, str], before: str) -> str:
    """What an agent does after this event of its own. `calls` is what runs, kept from event to event."""
    match event:
        case ToolStarted(call=call, tool=tool, preview=preview):
            calls[call] = f"{tool} {one_line(preview)}".rstrip()
            return calls[call]
        case ToolProgress(call=call, text=text):
            words = calls.get(call, "").split(" ", 1)[0]
            return f"{words} {one_line(text.strip().rsplit(chr(10), 1)[-1])}".strip()
        case ToolFinished(call=call):
            calls.pop(call, None)
            return next(reversed(calls.values()), "thinking")
        case Answered():
            return next(reversed(calls.values()), "thinking")
        case _:
            return _doing(event) or before


def _doing(event: Event) -> str | None:
    match event:
        case Heard(kind="text"):
            return "answering"
        case Heard(kind="tool_input", text=tool):
            return f"calling {one_line(tool)}"
        case RequestSent() | Heard():
            return "thinking"
        case Discarded(reason=reason, retry_in=delay):
            return _again(delay, reason)
        case RequestFailed(reason=reason, retry_in=delay) if delay is not None:
            return _again(delay, reason)
        case Asked():
            return "waiting for your answer"
        case Finished():
            return "done"
        case _:
            return None


def _again(delay: float, reason: str) -> str:
    return f"asking again in {seconds(delay)}: {one_line(reason)}"
