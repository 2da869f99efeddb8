"""Rows of the working agents at the bottom of a terminal: one for each, or two with details."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.app.run_view.agent_status import AgentStatusRecord
from shoal.core.text.text_format import format_dollars, format_duration, to_one_line
from shoal.surfaces.terminal.status_text import describe_agent_activity, format_agent_usage
from shoal.surfaces.terminal.text_styles import (
    DIM,
    YELLOW,
    apply_style,
    get_agent_style,
    measure_text_width,
    truncate_text,
)

MAX_ROWS = 8
"""Maximum number of agents with a row; the others are only counted."""
QUIET_AFTER = 5.0
"""Seconds without an event after which the silence is shown."""


def format_agent_rows(
    agents: Sequence[AgentStatusRecord], now: float, columns: int, *, colours: bool
) -> list[str]:
    rows = [_format_agent_row(each, now, columns, colours=colours) for each in agents[:MAX_ROWS]]
    if len(agents) > MAX_ROWS:
        rows.append(
            apply_style(
                truncate_text(f"  … and {len(agents) - MAX_ROWS} more", columns), DIM, colours=colours
            )
        )
    return rows


def format_detailed_agent_rows(
    agents: Sequence[AgentStatusRecord], now: float, columns: int, *, colours: bool
) -> list[str]:
    """Format two rows for each agent, with its model, its cost and the time since its last event."""
    rows: list[str] = []
    for status in agents[:MAX_ROWS]:
        rows.append(_format_agent_row(status, now, columns, colours=colours))
        rows.append(
            apply_style(truncate_text(_format_agent_details(status, now), columns), DIM, colours=colours)
        )
    if len(agents) > MAX_ROWS:
        rows.append(
            apply_style(
                truncate_text(f"  … and {len(agents) - MAX_ROWS} more", columns), DIM, colours=colours
            )
        )
    return rows


def _format_agent_row(status: AgentStatusRecord, now: float, columns: int, *, colours: bool) -> str:
    """Format a row, never wider than `columns`: the numbers stay, the activity is shortened first."""
    indent = "  " * max(min(status.depth, 4, columns // 10), 1)
    tail = f" · {format_agent_usage(status, now)}"
    head = f"{status.display_name}: {to_one_line(status.task)}" if status.task else status.display_name
    available_width = columns - len(indent) - 2 - measure_text_width(tail)
    if available_width < 12:
        head, activity, tail = truncate_text(head, max(columns - len(indent) - 2, 1)), "", ""
    else:
        activity = f" · {describe_agent_activity(status)}"
        # The name and task need the room more than the activity, which changes all the time.
        head = truncate_text(
            head, max(available_width * 2 // 3, available_width - measure_text_width(activity))
        )
        activity = truncate_text(activity, available_width - measure_text_width(head))
    style = YELLOW if status.question is not None else DIM
    dot = apply_style("●", get_agent_style(status.color), colours=colours)
    styled_activity = apply_style(activity, style, colours=colours)
    return f"{indent}{dot} {head}{styled_activity}{apply_style(tail, DIM, colours=colours)}"


def _format_agent_details(status: AgentStatusRecord, now: float) -> str:
    silent_seconds = now - status.last_event_at
    facts = (
        str(status.agent),
        status.state,
        to_one_line(status.model),
        format_dollars(status.usd) if status.priced else format_dollars(None),
        f"last event {format_duration(silent_seconds)} ago"
        if silent_seconds >= QUIET_AFTER
        else "active just now",
        "in the background" if status.background else "",
    )
    return f"{'  ' * max(min(status.depth, 4), 1)}  " + " · ".join(fact for fact in facts if fact)
