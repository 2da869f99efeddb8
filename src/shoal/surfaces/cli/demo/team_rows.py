"""Rows of the demo's team at the bottom of the screen: one for each member, and one for the board."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from shoal.app.run_view.agent_status import AgentStatusRecord
from shoal.core.ids import LEAD_ID
from shoal.core.teams.tasks import Task, find_open_blockers
from shoal.core.text.text_format import format_dollars, to_one_line
from shoal.surfaces.terminal.text_styles import (
    BOLD,
    DIM,
    GREEN,
    RED,
    YELLOW,
    apply_style,
    get_agent_style,
    measure_text_width,
    truncate_text,
)

_NAME_WIDTH = 5
_STATE_WIDTH = 10
_COST_WIDTH = 8


class DemoMemberRow(Struct, frozen=True, kw_only=True):
    """Status of a member: a one-word state with its style, and its task."""

    status: AgentStatusRecord
    state: str
    style: str
    task: str


def describe_member_state(status: AgentStatusRecord, *, dead: bool, has_task: bool) -> tuple[str, str]:
    """Return the state in one word, with its style."""
    if dead:
        return "killed", RED
    if status.completion is not None:
        return "gone", DIM
    if status.question is not None:
        return "asks you", YELLOW
    if status.activity.startswith("ExitPlanMode"):
        return "asks lead", YELLOW
    if status.is_live:
        return "works", GREEN
    return ("waits", YELLOW) if has_task else ("idle", DIM)


def format_demo_member_rows(rows: Sequence[DemoMemberRow], columns: int, *, colours: bool) -> list[str]:
    return [_format_member_row(row, columns, colours=colours) for row in rows]


def _format_member_row(row: DemoMemberRow, columns: int, *, colours: bool) -> str:
    """Format a row, never wider than `columns`: name and state stay, the activity is shortened first."""
    status, name_style = (
        row.status,
        BOLD if row.status.agent == LEAD_ID else get_agent_style(row.status.color),
    )
    head = f"{status.display_name:<{_NAME_WIDTH}} "
    tail = f" {format_dollars(status.usd):>{_COST_WIDTH}}"
    available_width = columns - 4 - measure_text_width(head) - _STATE_WIDTH - measure_text_width(tail)
    if available_width < 8:
        return truncate_text(f"  ● {head}{row.state}", columns)
    task = truncate_text(row.task, available_width)
    activity = to_one_line(status.activity) if row.state == "works" else ""
    activity = truncate_text(
        f"  {activity}" if task and activity else activity, available_width - measure_text_width(task)
    )
    padding = " " * (available_width - measure_text_width(task) - measure_text_width(activity))
    parts = (
        ("  ● ", name_style),
        (head, name_style),
        (f"{row.state:<{_STATE_WIDTH}}", row.style),
        (task, ""),
        (activity, DIM),
    )
    return "".join(
        apply_style(text, style, colours=colours) for text, style in (*parts, (padding + tail, DIM))
    )


def format_task_board_line(
    team: str, tasks: Sequence[Task], totals: str, columns: int, *, colours: bool
) -> str:
    """Format the line above the rows: a mark and number for each task, and the run's totals so far."""
    board = {task.id: task for task in tasks}
    marks = [
        (*_format_task_mark(task, is_blocked=bool(find_open_blockers(task, board))), task.id)
        for task in tasks
    ]
    completed = sum(task.status == "completed" for task in tasks)
    head, tail = f"── {team}  ", f"  {completed} of {len(tasks)} done " if tasks else ""
    marks_width = max(3 * len(marks) - 1, 0)
    available_width = (
        columns
        - measure_text_width(head)
        - marks_width
        - measure_text_width(tail)
        - measure_text_width(totals)
        - 4
    )
    if available_width < 0:
        return apply_style(truncate_text(f"── {team}{tail}", columns), DIM, colours=colours)
    styled_marks = " ".join(
        apply_style(f"{mark}{number}", style, colours=colours) for mark, style, number in marks
    )
    end = f"{tail}{'─' * available_width} {totals} ──"
    return apply_style(head, DIM, colours=colours) + styled_marks + apply_style(end, DIM, colours=colours)


def _format_task_mark(task: Task, *, is_blocked: bool) -> tuple[str, str]:
    if task.status == "completed":
        return "✓", GREEN
    if task.status == "in_progress":
        return "▸", BOLD
    return ("·", DIM) if is_blocked else ("○", "")
