"""Progress of a run for an observer: live rows on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from shoal.app.picture.standing import Standings
from shoal.core.clock import Clock
from shoal.core.events import (
    Asked,
    BudgetWarned,
    ConversationCompacted,
    Discarded,
    Event,
    Noted,
    PermissionDenied,
    ToolFinished,
    ToolStarted,
)
from shoal.core.ids import LEAD
from shoal.core.questions import Question
from shoal.core.wording import one_line, seconds
from shoal.surfaces.cli.plain.agent_rows import agent_rows
from shoal.surfaces.terminal.activity import Activity
from shoal.surfaces.terminal.event_words import agent_words
from shoal.surfaces.terminal.paint import DIM, cut, is_live, painted
from shoal.surfaces.terminal.question_words import wanted
from shoal.surfaces.terminal.screen import LiveScreen, PlainScreen, Screen
from shoal.surfaces.terminal.sentences import budget_warning

BETWEEN_DRAWINGS = 0.1
_WIDEST_PREVIEW = 100


class Progress(Protocol):
    def hear(self, event: Event) -> None: ...

    def close(self) -> None: ...


def progress_for(stream: TextIO, clock: Clock, standings: Standings, *, waits: bool = False) -> Progress:
    """Create a display to be fed with every event of a turn, and closed before anything else is written.

    `statuses` has already applied each event; `questions_stay_open` means that questions wait for an answer.
    """
    if is_live(stream):
        return _LiveProgress(stream, clock, standings, waits=waits)
    return _PlainProgress(stream, standings, waits=waits)


class LiveRows:
    """Current activity as the last rows of a screen, redrawn until `close`."""

    def __init__(self, screen: Screen, rows: Callable[[int], Sequence[str]]) -> None:
        self._screen = screen
        self._rows = rows
        self._ticking: asyncio.Handle = asyncio.get_running_loop().call_soon(self._tick)

    def close(self) -> None:
        self._ticking.cancel()
        self._screen.bottom(())

    def _tick(self) -> None:
        # Driven by time, not by events: a fast stream costs no more, and a silent one keeps counting.
        self._screen.bottom(self._rows(self._screen.columns))
        self._ticking = asyncio.get_running_loop().call_later(BETWEEN_DRAWINGS, self._tick)


class _LiveProgress:
    def __init__(self, stream: TextIO, clock: Clock, standings: Standings, *, waits: bool) -> None:
        self._screen = LiveScreen(stream)
        self._waits = waits
        self._clock = clock
        self._standings = standings
        self._activity = Activity(clock)
        self._in_turn = False
        self._rows = LiveRows(self._screen, self._drawn) if standings.at_work() else None

    def hear(self, event: Event) -> None:
        told = _told(event, self._standings, waits=self._waits)
        if told is not None and not isinstance(event, ToolStarted | ToolFinished):
            self._screen.write(f"{told}\n", DIM)
        self._activity.hear(event)
        self._in_turn = self._in_turn or event.agent == LEAD
        if self._rows is None:
            self._rows = LiveRows(self._screen, self._drawn)

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
        self._screen.close()

    def _drawn(self, columns: int) -> list[str]:
        colours = self._screen.colours
        agents = agent_rows(self._standings.at_work(), self._clock.monotonic(), columns, colours=colours)
        lead = [painted(self._activity.line(columns), DIM, colours=colours)] if self._in_turn else []
        return [*lead, *agents]


class _PlainProgress:
    def __init__(self, stream: TextIO, standings: Standings, *, waits: bool) -> None:
        self._screen = PlainScreen(stream)
        self._waits = waits
        self._standings = standings

    def hear(self, event: Event) -> None:
        # Here the failed call's own line says why it was not run.
        told = _told(event, self._standings, waits=self._waits)
        if told is not None and not isinstance(event, PermissionDenied):
            self._screen.write(f"{told}\n")

    def close(self) -> None:
        self._screen.close()


def _told(event: Event, standings: Standings, *, waits: bool) -> str | None:
    """Format an event as a line; agents are named, the lead is not."""
    if standings.is_told(event):
        return None
    it = standings.all.get(event.agent)
    if it is not None and (words := agent_words(event, it)) is not None:
        return words
    words = _open_question(event.question) if waits and isinstance(event, Asked) else _done(event)
    return words if words is None or event.agent == LEAD else f"{standings.name(event.agent)}: {words}"


def _open_question(question: Question) -> str:
    return f"waits for an answer: {wanted(question)} See it with: shoal ask show {question.id}"


def _done(event: Event) -> str | None:
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
