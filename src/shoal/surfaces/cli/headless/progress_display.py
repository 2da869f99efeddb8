"""Progress of a run for an observer: live rows on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.core.clock import Clock
from shoal.core.events import (
    BudgetThresholdReached,
    ConversationCompacted,
    Event,
    NoteAdded,
    PartialReplyDiscarded,
    PermissionDenied,
    QuestionAsked,
    RepetitionStopped,
    ToolFinished,
    ToolStarted,
)
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import Question
from shoal.core.text.text_format import format_duration, to_one_line
from shoal.surfaces.cli.plain.agent_rows import format_agent_rows
from shoal.surfaces.terminal.event_text import describe_background_agent_event
from shoal.surfaces.terminal.question_text import describe_question
from shoal.surfaces.terminal.screen import LiveTerminalScreen, PlainTerminalScreen, TerminalScreen
from shoal.surfaces.terminal.text_styles import DIM, apply_style, is_live_terminal, truncate_text
from shoal.surfaces.terminal.turn_activity import TurnActivity
from shoal.surfaces.terminal.user_messages import describe_budget_warning

REDRAW_INTERVAL = 0.1
_MAX_PREVIEW_WIDTH = 100


class HeadlessProgressDisplay(Protocol):
    def show_event(self, event: Event) -> None: ...

    def close(self) -> None: ...


def create_progress_display(
    stream: TextIO, clock: Clock, statuses: RunViewAgentsState, *, questions_stay_open: bool = False
) -> HeadlessProgressDisplay:
    """Create a display to be fed with every event of a turn, and closed before anything else is written.

    `statuses` has already applied each event; `questions_stay_open` means that questions wait for an answer.
    """
    if is_live_terminal(stream):
        return _LiveProgressDisplay(stream, clock, statuses, questions_stay_open=questions_stay_open)
    return _PlainProgressDisplay(stream, statuses, questions_stay_open=questions_stay_open)


class LiveStatusRowsDisplay:
    """Current activity as the last rows of a screen, redrawn until `close`."""

    def __init__(self, screen: TerminalScreen, render_rows: Callable[[int], Sequence[str]]) -> None:
        self._screen = screen
        self._render_rows = render_rows
        self._next_draw: asyncio.Handle = asyncio.get_running_loop().call_soon(self._draw_rows)

    def close(self) -> None:
        self._next_draw.cancel()
        self._screen.set_bottom_rows(())

    def _draw_rows(self) -> None:
        # Driven by time, not by events: a fast stream costs no more, and a silent one keeps counting.
        self._screen.set_bottom_rows(self._render_rows(self._screen.columns))
        self._next_draw = asyncio.get_running_loop().call_later(REDRAW_INTERVAL, self._draw_rows)


class _LiveProgressDisplay:
    def __init__(
        self, stream: TextIO, clock: Clock, statuses: RunViewAgentsState, *, questions_stay_open: bool
    ) -> None:
        self._screen = LiveTerminalScreen(stream)
        self._questions_stay_open = questions_stay_open
        self._clock = clock
        self._statuses = statuses
        self._activity = TurnActivity(clock)
        self._in_turn = False
        self._rows = (
            LiveStatusRowsDisplay(self._screen, self._render_status_rows)
            if statuses.list_working_agents()
            else None
        )

    def show_event(self, event: Event) -> None:
        event_line = _format_progress_event(
            event, self._statuses, questions_stay_open=self._questions_stay_open
        )
        if event_line is not None and not isinstance(event, ToolStarted | ToolFinished):
            self._screen.write(f"{event_line}\n", DIM)
        self._activity.apply_event(event)
        self._in_turn = self._in_turn or event.agent == LEAD_ID
        if self._rows is None:
            self._rows = LiveStatusRowsDisplay(self._screen, self._render_status_rows)

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
        self._screen.close()

    def _render_status_rows(self, columns: int) -> list[str]:
        colours = self._screen.colours
        agents = format_agent_rows(
            self._statuses.list_working_agents(), self._clock.monotonic(), columns, colours=colours
        )
        lead = (
            [apply_style(self._activity.format_activity_line(columns), DIM, colours=colours)]
            if self._in_turn
            else []
        )
        return [*lead, *agents]


class _PlainProgressDisplay:
    def __init__(self, stream: TextIO, statuses: RunViewAgentsState, *, questions_stay_open: bool) -> None:
        self._screen = PlainTerminalScreen(stream)
        self._questions_stay_open = questions_stay_open
        self._statuses = statuses

    def show_event(self, event: Event) -> None:
        # Here the failed call's own line says why it was not run.
        event_line = _format_progress_event(
            event, self._statuses, questions_stay_open=self._questions_stay_open
        )
        if event_line is not None and not isinstance(event, PermissionDenied):
            self._screen.write(f"{event_line}\n")

    def close(self) -> None:
        self._screen.close()


def _format_progress_event(
    event: Event, statuses: RunViewAgentsState, *, questions_stay_open: bool
) -> str | None:
    """Format an event as a line; agents are named, the lead is not."""
    if statuses.is_repeated_note(event):
        return None
    status = statuses.all.get(event.agent)
    if status is not None and (text := describe_background_agent_event(event, status)) is not None:
        return text
    text = (
        _format_open_question(event.question)
        if questions_stay_open and isinstance(event, QuestionAsked)
        else _format_event_progress(event)
    )
    return (
        text if text is None or event.agent == LEAD_ID else f"{statuses.get_agent_name(event.agent)}: {text}"
    )


def _format_open_question(question: Question) -> str:
    return (
        f"waiting for an answer: {describe_question(question)} Show the question: "
        f"shoal ask show {question.id}"
    )


def _format_event_progress(event: Event) -> str | None:
    match event:
        case ToolStarted(tool=tool, preview=preview):
            return f"{tool} {truncate_text(to_one_line(preview), _MAX_PREVIEW_WIDTH)}".rstrip()
        case ToolFinished(tool=tool, is_error=is_error, duration_ms=duration, preview=preview):
            error_note = f": {truncate_text(to_one_line(preview), _MAX_PREVIEW_WIDTH)}" if is_error else ""
            return (
                f"{tool} {'failed' if is_error else 'done'} in {format_duration(duration / 1000)}{error_note}"
            )
        case PartialReplyDiscarded(reason=reason, retry_in=delay, attempt=attempt):
            return f"retrying in {format_duration(delay)} (attempt {attempt}): {to_one_line(reason)}"
        case PermissionDenied() | RepetitionStopped():
            subject = f"{event.tool} was not allowed" if isinstance(event, PermissionDenied) else "stopped"
            return f"{subject}: {to_one_line(event.reason)}"
        case ConversationCompacted(tokens_before=tokens):
            return f"the conversation was summarized at {tokens} tokens"
        case NoteAdded(text=text):
            return f"note: {to_one_line(text)}"
        case BudgetThresholdReached():
            return to_one_line(describe_budget_warning(event))
        case _:
            return None
