"""Agents at work as rows at the bottom of a terminal: one each, or two for who looks closely."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal.app.picture.standing import Standing
from shoal.core.agents import Completion
from shoal.core.events import AgentEnded, AgentMoved, AgentStarted, Event, WorkKept
from shoal.surfaces.cli.asking import wanted
from shoal.surfaces.cli.paint import (
    DIM,
    YELLOW,
    count,
    cut,
    dollars,
    one_line,
    painted,
    seconds,
    style_of,
    width,
)

MOST = 8
"""Agents that get a row; of the others only their number is told."""
_WIDEST = 100
QUIET = 5.0
"""Seconds without an event from which on that is told."""


def agent_rows(agents: Sequence[Standing], now: float, columns: int, *, colours: bool) -> list[str]:
    rows = [_row(each, now, columns, colours=colours) for each in agents[:MOST]]
    if len(agents) > MOST:
        rows.append(painted(cut(f"  … and {len(agents) - MOST} more", columns), DIM, colours=colours))
    return rows


def detailed_rows(agents: Sequence[Standing], now: float, columns: int, *, colours: bool) -> list[str]:
    """With the model, the cost, and how long ago an agent was last heard of."""
    rows: list[str] = []
    for each in agents[:MOST]:
        rows.append(_row(each, now, columns, colours=colours))
        rows.append(painted(cut(_details(each, now), columns), DIM, colours=colours))
    if len(agents) > MOST:
        rows.append(painted(cut(f"  … and {len(agents) - MOST} more", columns), DIM, colours=colours))
    return rows


def _row(each: Standing, now: float, columns: int, *, colours: bool) -> str:
    """Never wider than `columns`: the numbers stay, what is being done is shortened first."""
    indent = "  " * max(min(each.depth, 4, columns // 10), 1)
    tail = f" · {numbers(each, now)}"
    head = f"{each.who}: {one_line(each.task)}" if each.task else each.who
    room = columns - len(indent) - 2 - width(tail)
    if room < 12:
        head, doing, tail = cut(head, max(columns - len(indent) - 2, 1)), "", ""
    else:
        doing = f" · {doing_words(each)}"
        # Who it is needs the room more than what it does: that changes all the time.
        head = cut(head, max(room * 2 // 3, room - width(doing)))
        doing = cut(doing, room - width(head))
    style = YELLOW if each.question is not None else DIM
    dot = painted("●", style_of(each.color), colours=colours)
    return (
        f"{indent}{dot} {head}{painted(doing, style, colours=colours)}{painted(tail, DIM, colours=colours)}"
    )


def agent_words(event: Event, it: Standing) -> str | None:
    """That an agent in the background started or ended; of one that is waited for its call tells.

    Work that is left in a worktree is told of either.
    """
    task = f": {one_line(it.task)}" if it.task else ""
    match event:
        case AgentStarted(background=True, resumed=resumed):
            how = "goes on" if resumed else "started"
            return f"agent {it.who} {how} in the background{task}"
        case AgentMoved():
            return f"agent {it.who} goes on in the background{task}"
        case AgentEnded(completion=done) if done.background:
            return f"agent {it.who} {ended_words(done)}{task}"
        case WorkKept(work=work):
            name = one_line(Path(work.path).name)
            return f"agent {it.who} left work in a worktree; bring it in with: shoal worktree merge {name}"
        case _:
            return None


def ended_words(done: Completion) -> str:
    """How it ended, and what it took."""
    calls = f"{done.evidence.tool_calls} tool call{'' if done.evidence.tool_calls == 1 else 's'}"
    how = "was stopped" if done.status == "killed" else done.status
    why = f", {cut(one_line(done.detail), _WIDEST)}" if done.detail else ""
    took = f"{calls}, {count(done.usage.total_tokens)} tokens, {seconds(done.duration_ms / 1000)}"
    return f"{how} ({took}{why})"


def doing_words(each: Standing) -> str:
    if each.question is not None:
        return f"asks: {one_line(wanted(each.question))}"
    return each.doing or each.state


def numbers(each: Standing, now: float) -> str:
    calls = f"{each.tool_calls} call{'' if each.tool_calls == 1 else 's'}"
    return f"{calls} · {count(each.tokens)} tokens · {seconds(max(now - each.since, 0.0))}"


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
