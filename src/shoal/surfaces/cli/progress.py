"""Progress of a run for a person who looks on: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, TextIO

from shoal.core.clock import Clock
from shoal.core.events import (
    BudgetWarned,
    ConversationCompacted,
    Discarded,
    Event,
    Noted,
    PermissionDenied,
    ToolFinished,
    ToolStarted,
)
from shoal.surfaces.cli.activity import Activity
from shoal.surfaces.cli.paint import DIM, cut, is_live, one_line, painted, seconds
from shoal.surfaces.cli.screen import LiveScreen, PlainScreen, Screen
from shoal.surfaces.cli.sentences import budget_warning

BETWEEN_DRAWINGS = 0.1
_WIDEST_PREVIEW = 100


class Progress(Protocol):
    def hear(self, event: Event) -> None: ...

    def close(self) -> None: ...


def progress_for(stream: TextIO, clock: Clock) -> Progress:
    """To be fed with every event of a turn, and closed before anything else is written."""
    return _LiveProgress(stream, clock) if is_live(stream) else _PlainProgress(stream)


class LiveLine:
    """What is being done, as the last row of a screen, drawn anew until `close`."""

    def __init__(self, screen: Screen, activity: Activity, *, above: Sequence[str] = ()) -> None:
        self._screen = screen
        self._activity = activity
        self._above = above
        self._ticking: asyncio.Handle = asyncio.get_running_loop().call_soon(self._tick)

    def close(self) -> None:
        self._ticking.cancel()
        self._screen.bottom(())

    def _tick(self) -> None:
        # By time, not by event: a fast stream costs no more than a slow one, and a silent one counts on.
        line = self._activity.line(self._screen.columns)
        self._screen.bottom([*self._above, painted(line, DIM, colours=self._screen.colours)])
        self._ticking = asyncio.get_running_loop().call_later(BETWEEN_DRAWINGS, self._tick)


class _LiveProgress:
    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._screen = LiveScreen(stream)
        self._activity = Activity(clock)
        self._line: LiveLine | None = None

    def hear(self, event: Event) -> None:
        if (told := _told(event)) is not None and not isinstance(event, ToolStarted | ToolFinished):
            self._screen.write(f"{told}\n", DIM)
        self._activity.hear(event)
        if self._line is None:
            self._line = LiveLine(self._screen, self._activity)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        self._screen.close()


class _PlainProgress:
    def __init__(self, stream: TextIO) -> None:
        self._screen = PlainScreen(stream)

    def hear(self, event: Event) -> None:
        # Here the failed call's own line says why it was not run.
        if (told := _told(event)) is not None and not isinstance(event, PermissionDenied):
            self._screen.write(f"{told}\n")

    def close(self) -> None:
        self._screen.close()


def _told(event: Event) -> str | None:
    match event:
        case ToolStarted(tool=tool, preview=preview):
            return f"{tool} {cut(one_line(preview), _WIDEST_PREVIEW)}".rstrip()
        case ToolFinished(tool=tool, is_error=is_error, duration_ms=duration, preview=preview):
            why = f": {cut(one_line(preview), _WIDEST_PREVIEW)}" if is_error else ""
            return f"{tool} {'failed' if is_error else 'done'} in {seconds(duration / 1000)}{why}"
        case Discarded(reason=reason, retry_in=delay, attempt=attempt):
            return f"asking again in {seconds(delay)} (attempt {attempt}): {one_line(reason)}"
        case PermissionDenied(tool=tool, reason=reason):
            return f"{tool} was not allowed: {one_line(reason)}"
        case ConversationCompacted(tokens_before=tokens):
            return f"the conversation was summarised at {tokens} tokens"
        case Noted(text=text):
            return f"note: {one_line(text)}"
        case BudgetWarned():
            return one_line(budget_warning(event))
        case _:
            return None
