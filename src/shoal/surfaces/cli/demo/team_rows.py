"""Rows of the demo's team at the bottom of the screen: one for each member, and one for the board."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from shoal.app.picture.standing import Standing
from shoal.core.ids import LEAD
from shoal.core.tasks import Task, open_blockers
from shoal.core.wording import dollars, one_line
from shoal.surfaces.terminal.paint import BOLD, DIM, GREEN, RED, YELLOW, cut, painted, style_of, width

_NAME = 5
_STATE = 10
_COST = 8


class Row(Struct, frozen=True, kw_only=True):
    """Status of a member: a one-word state with its style, and its task."""

    standing: Standing
    state: str
    style: str
    task: str


def state_of(it: Standing, *, dead: bool, has_task: bool) -> tuple[str, str]:
    """Return the state in one word, with its style."""
    if dead:
        return "killed", RED
    if it.completion is not None:
        return "gone", DIM
    if it.question is not None:
        return "asks you", YELLOW
    if it.doing.startswith("ExitPlanMode"):
        return "asks lead", YELLOW
    if it.live:
        return "works", GREEN
    return ("waits", YELLOW) if has_task else ("idle", DIM)


def team_rows(rows: Sequence[Row], columns: int, *, colours: bool) -> list[str]:
    return [_row(row, columns, colours=colours) for row in rows]


def _row(row: Row, columns: int, *, colours: bool) -> str:
    """Format a row, never wider than `columns`: name and state stay, the activity is shortened first."""
    it, of_it = row.standing, BOLD if row.standing.agent == LEAD else style_of(row.standing.color)
    head = f"{it.who:<{_NAME}} "
    tail = f" {dollars(it.usd):>{_COST}}"
    room = columns - 4 - width(head) - _STATE - width(tail)
    if room < 8:
        return cut(f"  ● {head}{row.state}", columns)
    task = cut(row.task, room)
    doing = one_line(it.doing) if row.state == "works" else ""
    doing = cut(f"  {doing}" if task and doing else doing, room - width(task))
    space = " " * (room - width(task) - width(doing))
    parts = (("  ● ", of_it), (head, of_it), (f"{row.state:<{_STATE}}", row.style), (task, ""), (doing, DIM))
    return "".join(painted(text, style, colours=colours) for text, style in (*parts, (space + tail, DIM)))


def rule(team: str, tasks: Sequence[Task], told: str, columns: int, *, colours: bool) -> str:
    """Format the line above the rows: a mark and number for each task, and the run's totals so far."""
    board = {task.id: task for task in tasks}
    marks = [(*_mark(task, waits=bool(open_blockers(task, board))), task.id) for task in tasks]
    done = sum(task.status == "completed" for task in tasks)
    head, tail = f"── {team}  ", f"  {done} of {len(tasks)} done " if tasks else ""
    shown = max(3 * len(marks) - 1, 0)
    room = columns - width(head) - shown - width(tail) - width(told) - 4
    if room < 0:
        return painted(cut(f"── {team}{tail}", columns), DIM, colours=colours)
    signs = " ".join(painted(f"{mark}{number}", style, colours=colours) for mark, style, number in marks)
    end = f"{tail}{'─' * room} {told} ──"
    return painted(head, DIM, colours=colours) + signs + painted(end, DIM, colours=colours)


def _mark(task: Task, *, waits: bool) -> tuple[str, str]:
    if task.status == "completed":
        return "✓", GREEN
    if task.status == "in_progress":
        return "▸", BOLD
    return ("·", DIM) if waits else ("○", "")
