"""Detects stalled members: a model that stopped sending, or a tool past its deadline.

Waiting for somebody else does not count as a stall: for a person's answer, at a provider's rate limit, or for
a tool without a deadline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from shoal.core.clock import Clock, Deadline
from shoal.core.events import (
    Event,
    Heard,
    RequestFailed,
    RequestSent,
    RequestSettled,
    ToolFinished,
    ToolProgress,
    ToolReturned,
    ToolStarted,
)
from shoal.core.tools import Tool

_NEVER = 31_536_000.0
"""Seconds of a timer while nothing can stall."""
_SLACK = 20
"""A stall is detected late by at most this part of the time, so that not every delta moves the timer."""


class Stalled(Exception):
    """Raised when a member produced no event for too long."""


class Pulse:
    """Observes the events of a member and holds one timer that fires when it has stalled."""

    def __init__(
        self,
        clock: Clock,
        after: float,
        tools: Mapping[str, Tool],
        waits: Callable[[], bool],
    ) -> None:
        """`is_waiting` returns True while the member waits for somebody's answer."""
        self._clock = clock
        self._after = after
        self._tools = tools
        self._waits = waits
        self._timer: Deadline | None = None
        self._set_at = 0.0
        self._asked = False
        self._running: dict[str, float | None] = {}
        """Deadlines in seconds of the running calls."""

    def between(self, tell: Callable[[Event], Awaitable[None]]) -> Callable[[Event], Awaitable[None]]:
        """Wrap the member's `emit` so that this detector sees each event first."""

        def heard(event: Event) -> Awaitable[None]:
            hear = _HEARD.get(type(event))
            if hear is not None and self._timer is not None:
                hear(self, event)
            return tell(event)

        return heard

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch a block; raises `MemberStalled` inside it."""
        self._asked = False
        self._running.clear()
        while_silent = self._clock.deadline(_NEVER)
        try:
            async with while_silent as self._timer:
                yield
        except TimeoutError as late:
            raise Stalled(f"nothing was heard of it for {self._after:g} s") from late
        finally:
            self._timer = None

    def still_waits(self) -> None:
        """Reset the timer after a question was asked or answered."""
        self._move()

    def _sent(self, _: RequestSent) -> None:
        self._asked = True
        self._move()

    def _settled(self, _: Event) -> None:
        self._asked = False
        self._move()

    def _began(self, event: ToolStarted) -> None:
        tool = self._tools.get(event.tool)
        self._running[event.call] = None if tool is None else tool.deadline
        self._move()

    def _ended(self, event: ToolReturned | ToolFinished) -> None:
        self._running.pop(event.call, None)
        self._move()

    def _said(self, _: Event) -> None:
        if self._clock.monotonic() - self._set_at > self._after / _SLACK:
            self._move()

    def _move(self) -> None:
        if self._timer is not None:
            self._set_at = self._clock.monotonic()
            self._timer.extend(self._patience())

    def _patience(self) -> float:
        """Return the seconds from now until silence counts as a stall."""
        enough = self._after * (1 + 1 / _SLACK)
        if self._waits():
            return _NEVER
        if self._asked:
            return enough
        longest = 0.0
        for deadline in self._running.values():
            if deadline is None:
                return _NEVER
            longest = max(longest, deadline)
        return longest + enough if self._running else _NEVER


_HEARD: dict[type[Event], Callable[[Pulse, Any], None]] = {
    RequestSent: Pulse._sent,
    RequestSettled: Pulse._settled,
    RequestFailed: Pulse._settled,
    Heard: Pulse._said,
    ToolStarted: Pulse._began,
    ToolProgress: Pulse._said,
    ToolReturned: Pulse._ended,
    ToolFinished: Pulse._ended,
}
