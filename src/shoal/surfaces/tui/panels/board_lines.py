"""A task as a card, as a line of a list, and in full."""

from __future__ import annotations

from datetime import datetime

from textual.content import Content

from shoal.app.run_view.run_view import RunView
from shoal.app.run_view.view_rows import RunViewTaskRow
from shoal.core.names import LEAD_NAME
from shoal.core.teams.tasks import Task
from shoal.core.text.text_format import format_dollars, format_token_count, strip_terminal_codes, to_one_line
from shoal.surfaces.tui.panels.cells import (
    ASKS,
    GOOD,
    MUTED,
    Part,
    build_clean_line,
    fit_cell,
    format_cost,
    format_short_age,
    get_agent_colour,
    join_cells,
)

STATUSES = {"pending": "Pending", "in_progress": "In progress", "completed": "Completed"}
MARKS: dict[str, Part] = {"pending": ("○", MUTED), "in_progress": ("●", GOOD), "completed": ("✓", MUTED)}
CARD = 3
"""Number of lines in a card: its subject, its owner, and a blank line."""


def build_owner_part(run_view: RunView, owner: str) -> Part:
    """Return the owner's name in the agent's color."""
    if not owner:
        return ("", MUTED)
    agent = run_view.find_agent_by_name(owner)
    row = None if agent is None else run_view.find_agent_row(agent)
    owner_name = "lead" if owner == LEAD_NAME else owner
    return (to_one_line(owner_name), get_agent_colour(row.color if row is not None else ""))


def describe_open_blockers(run_view: RunView, row: RunViewTaskRow) -> str:
    blockers = run_view.tasks.list_open_blockers(row)
    return f"waiting for {', '.join(f'#{each.id}' for each in blockers)}" if blockers else ""


def build_task_card(run_view: RunView, row: RunViewTaskRow, width: int) -> list[Content]:
    subject = build_clean_line(
        (f"#{row.id} ", MUTED), (to_one_line(row.subject), MUTED if row.status == "completed" else "")
    )
    parts = [build_owner_part(run_view, row.owner), (describe_open_blockers(run_view, row), ASKS)]
    if row.usd or row.tokens:
        parts.append((format_cost(row.usd) if row.usd else f"{format_token_count(row.tokens)} tokens", MUTED))
    facts = [build_clean_line(part) for part in parts if part[0]] or [build_clean_line(("no owner", MUTED))]
    second_line = build_clean_line((" " * (len(row.id) + 2), ""), Content.styled(" · ", MUTED).join(facts))
    return [fit_cell(subject, width), fit_cell(second_line, width)]


def build_task_list_line(run_view: RunView, row: RunViewTaskRow, width: int) -> list[Content]:
    subject = build_clean_line((to_one_line(row.subject), MUTED if row.status == "completed" else ""))
    blockers_text = describe_open_blockers(run_view, row)
    cost = format_cost(row.usd) if row.usd else ""
    rest = max(10, width - 2 - 5 - 13 - 9)
    subject_part = build_clean_line(
        subject.truncate(max(12, rest - len(blockers_text) - 3), ellipsis=True),
        (" · ", MUTED),
        (blockers_text, ASKS),
    )
    return [
        join_cells(
            [
                build_clean_line(MARKS.get(row.status, ("·", MUTED))),
                fit_cell(build_clean_line((f"#{row.id}", MUTED)), 4),
                fit_cell(subject_part if blockers_text else subject, rest),
                fit_cell(build_clean_line(build_owner_part(run_view, row.owner)), 12),
                fit_cell(build_clean_line((cost, MUTED)), 8, right=True),
            ]
        )
    ]


def format_time_of_day(at: int) -> str:
    """Format a timestamp as the local time of day."""
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%H:%M:%S")


def build_task_details(run_view: RunView, row: RunViewTaskRow, task: Task | None, now: int) -> Content:
    """Return everything known about a task; `task` is its file."""
    facts: list[tuple[str, Content]] = [
        (
            "status",
            build_clean_line(
                MARKS.get(row.status, ("·", MUTED)), (f" {STATUSES.get(row.status, row.status).lower()}", "")
            ),
        ),
        (
            "owner",
            build_clean_line(build_owner_part(run_view, row.owner))
            if row.owner
            else build_clean_line(("nobody", MUTED)),
        ),
        ("waits for", _build_task_references(run_view, row.board, row.blocked_by)),
        (
            "blocks",
            _build_task_references(run_view, row.board, task.blocks) if task is not None else Content(""),
        ),
        (
            "spent",
            build_clean_line((f"{format_dollars(row.usd)}, {format_token_count(row.tokens)} tokens", ""))
            if row.tokens
            else Content(""),
        ),
        ("board", build_clean_line((row.board, MUTED))),
        ("changed", build_clean_line((f"{format_short_age(now - row.changed)} ago", MUTED))),
    ]
    lines = [build_clean_line((f"{name:<10}", MUTED), value) for name, value in facts if value]
    lines += [Content(""), Content.styled("Outcome", "bold")]
    for moved_at, status, owner in row.moves:
        owner_text = build_owner_part(run_view, owner)
        lines.append(
            build_clean_line(
                (f"{format_time_of_day(moved_at)}  ", MUTED),
                (STATUSES.get(status, status).lower(), ""),
                (" · " if owner else "", MUTED),
                owner_text,
            )
        )
    description = strip_terminal_codes(task.description) if task is not None else ""
    lines += [Content(""), Content(description or "(no description)")]
    return Content("\n").join(lines)


def _build_task_references(run_view: RunView, board: str, ids: tuple[str, ...]) -> Content:
    references = []
    for task_id in ids:
        other = run_view.tasks.get(board, task_id)
        mark = MARKS.get(other.status, ("", "")) if other is not None else ("", "")
        subject = to_one_line(other.subject) if other is not None else ""
        references.append(build_clean_line(mark, (f" #{task_id} {subject}", "")))
    return Content("\n" + " " * 10).join(references) if references else Content("")
