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
    RequestSent,
    RequestSettled,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from shoal.surfaces.cli.paint import count, cut, dollars, one_line, seconds

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Activity:
    """Fed with the events of a turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._running: dict[str, str] = {}
        self.agent = "lead"
        self.doing = "starting"
        self.requests = 0
        self.tokens = 0
        self.usd = 0.0
        self.priced = True

    def hear(self, event: Event) -> None:
        self.agent = event.agent
        match event:
            case ToolStarted(call=call, tool=tool, preview=preview):
                self._running[call] = f"{tool} {one_line(preview)}".rstrip()
                self.doing = self._running[call]
            case ToolProgress(call=call, text=text):
                words = self._running.get(call, "").split(" ", 1)[0]
                self.doing = f"{words} {one_line(text.strip().rsplit(chr(10), 1)[-1])}".strip()
            case ToolFinished(call=call):
                self._running.pop(call, None)
                self.doing = self._call_or("thinking")
            case Answered():
                self.doing = self._call_or("thinking")
            case RequestSettled(usage=usage, cost_usd=cost):
                self.requests += 1
                self.tokens += usage.total_tokens
                self.usd += cost or 0.0
                self.priced = self.priced and cost is not None
            case _:
                self.doing = _doing(event) or self.doing

    def _call_or(self, otherwise: str) -> str:
        return next(reversed(self._running.values()), otherwise)

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
        head = f"{_FRAMES[int(self.elapsed * 10) % len(_FRAMES)]} {self.agent} · "
        room = columns - len(head) - len(tail)
        if room < 12:
            return cut(head + self.doing, columns)
        return head + cut(self.doing, room) + tail


def _requests(number: int) -> str:
    return "1 request" if number == 1 else f"{number} requests"


def _doing(event: Event) -> str | None:
    match event:
        case RequestSent():
            return "thinking"
        case Heard(kind="text"):
            return "answering"
        case Heard(kind="tool_input", text=tool):
            return f"calling {one_line(tool)}"
        case Heard():
            return "thinking"
        case Discarded(reason=reason, retry_in=delay):
            return f"asking again in {seconds(delay)}: {one_line(reason)}"
        case Asked():
            return "waiting for your answer"
        case Finished():
            return "done"
        case _:
            return None
