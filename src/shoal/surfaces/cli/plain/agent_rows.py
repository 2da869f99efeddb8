"""Rows of the working agents at the bottom of a terminal: one for each, or two with details."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.app.picture.standing import Standing
from shoal.core.wording import dollars, one_line, seconds
from shoal.surfaces.terminal.paint import DIM, YELLOW, cut, painted, style_of, width
from shoal.surfaces.terminal.standing_words import doing_words, numbers

MOST = 8
"""Maximum number of agents with a row; the others are only counted."""
QUIET = 5.0
"""Seconds without an event after which the silence is shown."""


def agent_rows(agents: Sequence[Standing], now: float, columns: int, *, colours: bool) -> list[str]:
    rows = [_row(each, now, columns, colours=colours) for each in agents[:MOST]]
    if len(agents) > MOST:
        rows.append(painted(cut(f"  … and {len(agents) - MOST} more", columns), DIM, colours=colours))
    return rows


def detailed_rows(agents: Sequence[Standing], now: float, columns: int, *, colours: bool) -> list[str]:
    """Format two rows for each agent, with its model, its cost and the time since its last event."""
    rows: list[str] = []
    for each in agents[:MOST]:
        rows.append(_row(each, now, columns, colours=colours))
        rows.append(painted(cut(_details(each, now), columns), DIM, colours=colours))
    if len(agents) > MOST:
        rows.append(painted(cut(f"  … and {len(agents) - MOST} more", columns), DIM, colours=colours))
    return rows


def _row(each: Standing, now: float, columns: int, *, colours: bool) -> str:
    """Format a row, never wider than `columns`: the numbers stay, the activity is shortened first."""
    indent = "  " * max(min(each.depth, 4, columns // 10), 1)
    tail = f" · {numbers(each, now)}"
    head = f"{each.who}: {one_line(each.task)}" if each.task else each.who
    room = columns - len(indent) - 2 - width(tail)
    if room < 12:
        head, doing, tail = cut(head, max(columns - len(indent) - 2, 1)), "", ""
    else:
        doing = f" · {doing_words(each)}"
        # The name and task need the room more than the activity, which changes all the time.
        head = cut(head, max(room * 2 // 3, room - width(doing)))
        doing = cut(doing, room - width(head))
    style = YELLOW if each.question is not None else DIM
    dot = painted("●", style_of(each.color), colours=colours)
    return (
        f"{indent}{dot} {head}{painted(doing, style, colours=colours)}{painted(tail, DIM, colours=colours)}"
    )


def _details(each: Standing, now: float) -> str:
    quiet = now - each.heard
    facts = (
        str(each.agent),
        each.state,
        one_line(each.model),
        dollars(each.usd) if each.priced else dollars(None),
        f"heard {seconds(quiet)} ago" if quiet >= QUIET else "heard just now",
        "in the background" if each.background else "",
    )
    return f"{'  ' * max(min(each.depth, 4), 1)}  " + " · ".join(fact for fact in facts if fact)
