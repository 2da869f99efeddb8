"""Detects stalled members: a model that stopped sending, or a tool past its deadline.

Waiting for somebody else does not count as a stall: for a person's answer, at a provider's rate limit, or for
a tool without a deadline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from shoal.core.clock import Clock, Deadline
from shoal.core.conversation.tools import Tool
from shoal.core.events import (
    Event,
    ModelRequestFailed,
    ModelRequestSent,
    ModelRequestSettled,
    TextStreamed,
    ToolFinished,
    ToolOutputReturned,
    ToolProgressed,
    ToolStarted,
)
from shoal.team.channel.mail_question_broker import MailQuestionBroker

_NEVER = 31_536_000.0
"""Seconds between timer checks while nothing can stall."""
_SLACK_DIVISOR = 20
"""A stall may be detected late by this fraction of the timeout, so that not every delta resets the timer."""


class MemberStalledError(Exception):
    """Raised when a member produced no event for too long."""


class MemberStallDetector:
    """Observes the events of a member and holds one timer that fires when it has stalled."""

    def __init__(
        self,
        clock: Clock,
        after: float,
        question_broker: MailQuestionBroker,
        emit: Callable[[Event], Awaitable[None]],
    ) -> None:
        """`emit` gets each event after the detector."""
        self._clock = clock
        self._after = after
        self._question_broker = question_broker
        self._emit = emit
        self._tools: Mapping[str, Tool] = {}
        """Tools of the member in the watched turn."""
        self._timer: Deadline | None = None
        self._set_at = 0.0
        self._request_open = False
        self._running_tools: dict[str, float | None] = {}
        """Deadlines in seconds of the running calls."""
        question_broker.subscribe(self._extend_stall_timer)

    def observe_and_forward_event(self, event: Event) -> Awaitable[None]:
        handler = _HANDLERS.get(type(event))
        if handler is not None and self._timer is not None:
            handler(self, event)
        return self._emit(event)

    @asynccontextmanager
    async def watch_turn_for_stall(self, tools: Mapping[str, Tool]) -> AsyncIterator[None]:
        """Watch a block; raises `MemberStalledError` inside it."""
        self._tools, self._request_open = tools, False
        self._running_tools.clear()
        timer = self._clock.deadline(_NEVER)
        try:
            async with timer as self._timer:
                yield
        except TimeoutError as error:
            raise MemberStalledError(f"no activity for {self._after:g} s") from error
        finally:
            self._timer = None

    def _on_model_request_sent(self, _: ModelRequestSent) -> None:
        self._request_open = True
        self._extend_stall_timer()

    def _on_model_request_completed(self, _: Event) -> None:
        self._request_open = False
        self._extend_stall_timer()

    def _on_tool_started(self, event: ToolStarted) -> None:
        tool = self._tools.get(event.tool)
        self._running_tools[event.call] = None if tool is None else tool.deadline
        self._extend_stall_timer()

    def _on_tool_ended(self, event: ToolOutputReturned | ToolFinished) -> None:
        self._running_tools.pop(event.call, None)
        self._extend_stall_timer()

    def _on_output_streamed(self, _: Event) -> None:
        if self._clock.monotonic() - self._set_at > self._after / _SLACK_DIVISOR:
            self._extend_stall_timer()

    def _extend_stall_timer(self) -> None:
        if self._timer is not None:
            self._set_at = self._clock.monotonic()
            self._timer.extend(self._compute_stall_timeout())

    def _compute_stall_timeout(self) -> float:
        """Return the seconds from now until silence counts as a stall."""
        silence_limit = self._after * (1 + 1 / _SLACK_DIVISOR)
        if self._question_broker.has_unanswered_questions:
            return _NEVER
        if self._request_open:
            return silence_limit
        longest_deadline = 0.0
        for deadline in self._running_tools.values():
            if deadline is None:
                return _NEVER
            longest_deadline = max(longest_deadline, deadline)
        return longest_deadline + silence_limit if self._running_tools else _NEVER


_HANDLERS: dict[type[Event], Callable[[MemberStallDetector, Any], None]] = {
    ModelRequestSent: MemberStallDetector._on_model_request_sent,
    ModelRequestSettled: MemberStallDetector._on_model_request_completed,
    ModelRequestFailed: MemberStallDetector._on_model_request_completed,
    TextStreamed: MemberStallDetector._on_output_streamed,
    ToolStarted: MemberStallDetector._on_tool_started,
    ToolProgressed: MemberStallDetector._on_output_streamed,
    ToolOutputReturned: MemberStallDetector._on_tool_ended,
    ToolFinished: MemberStallDetector._on_tool_ended,
}
