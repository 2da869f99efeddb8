"""Whether a member at work is still heard of: a model that says nothing any more, a tool past its deadline.

To wait for somebody else is no stall: for a person's answer, for its turn at a provider's limit, for a tool
without a deadline.
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
"""Seconds that nobody waits for: nothing can stall now."""
_SLACK = 20
"""A stall is noticed at most this part of the time late, so that not every word of a model moves a timer."""


class Stalled(Exception):
    """Nothing was heard for so long."""


class Pulse:
    """Hears all that a member tells, and holds one timer: when it has stalled if it says nothing more."""

    def __init__(
        self,
        clock: Clock,
        after: float,
        tools: Mapping[str, Tool],
        waits: Callable[[], bool],
    ) -> None:
        """`waits` tells whether an answer of somebody is waited for."""
        self._clock = clock
        self._after = after
        self._tools = tools
        self._waits = waits
        self._timer: Deadline | None = None
        self._set_at = 0.0
        self._asked = False
        self._running: dict[str, float | None] = {}
        """The calls that run, each with its deadline in seconds."""

    def between(self, tell: Callable[[Event], Awaitable[None]]) -> Callable[[Event], Awaitable[None]]:
        """Who hears of the member, with this before it."""

        def heard(event: Event) -> Awaitable[None]:
            hear = _HEARD.get(type(event))
            if hear is not None and self._timer is not None:
                hear(self, event)
            return tell(event)

        return heard

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Raises `Stalled` inside the block."""
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
        """Somebody was asked, or has answered."""
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
        """Seconds from now until its silence is a stall."""
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
