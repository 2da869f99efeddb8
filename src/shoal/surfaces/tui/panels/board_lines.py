"""A task as a card, as a line of a list, and in full."""

from __future__ import annotations

from datetime import datetime

from textual.content import Content

from shoal.app.picture.picture import Picture
from shoal.app.picture.rows import TaskRow
from shoal.core.names import LEAD_NAME
from shoal.core.tasks import Task
from shoal.core.wording import clean, count, dollars, one_line
from shoal.surfaces.tui.panels.cells import ASKS, GOOD, MUTED, Part, age, cell, colour_of, cost, joined, line

STATUSES = {"pending": "Pending", "in_progress": "In progress", "completed": "Completed"}
MARKS: dict[str, Part] = {"pending": ("○", MUTED), "in_progress": ("●", GOOD), "completed": ("✓", MUTED)}
CARD = 3
"""Lines of a card: its subject, its owner, and a blank."""


def owner_part(picture: Picture, owner: str) -> Part:
    """Return the owner's name in the agent's colour."""
    if not owner:
        return ("", MUTED)
    agent = picture.agent_called(owner)
    row = None if agent is None else picture.agent(agent)
    shown = "lead" if owner == LEAD_NAME else owner
    return (one_line(shown), colour_of(row.color if row is not None else ""))


def waits(picture: Picture, row: TaskRow) -> str:
    blockers = picture.tasks.open_blockers(row)
    return f"waits for {', '.join(f'#{each.id}' for each in blockers)}" if blockers else ""


def card(picture: Picture, row: TaskRow, width: int) -> list[Content]:
    subject = line(
        (f"#{row.id} ", MUTED), (one_line(row.subject), MUTED if row.status == "completed" else "")
    )
    parts = [owner_part(picture, row.owner), (waits(picture, row), ASKS)]
    if row.usd or row.tokens:
        parts.append((cost(row.usd) if row.usd else f"{count(row.tokens)} tokens", MUTED))
    facts = [line(part) for part in parts if part[0]] or [line(("nobody's yet", MUTED))]
    below = line((" " * (len(row.id) + 2), ""), Content.styled(" · ", MUTED).join(facts))
    return [cell(subject, width), cell(below, width)]


def task_line(picture: Picture, row: TaskRow, width: int) -> list[Content]:
    subject = line((one_line(row.subject), MUTED if row.status == "completed" else ""))
    told = waits(picture, row)
    money = cost(row.usd) if row.usd else ""
    rest = max(10, width - 2 - 5 - 13 - 9)
    about = line(subject.truncate(max(12, rest - len(told) - 3), ellipsis=True), (" · ", MUTED), (told, ASKS))
    return [
        joined(
            [
                line(MARKS.get(row.status, ("·", MUTED))),
                cell(line((f"#{row.id}", MUTED)), 4),
                cell(about if told else subject, rest),
                cell(line(owner_part(picture, row.owner)), 12),
                cell(line((money, MUTED)), 8, right=True),
            ]
        )
    ]


def moment(at: int) -> str:
    """Format a timestamp as the local time of day."""
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%H:%M:%S")


def whole(picture: Picture, row: TaskRow, task: Task | None, now: int) -> Content:
    """Return everything known about a task; `task` is its file."""
    facts: list[tuple[str, Content]] = [
        (
            "status",
            line(
                MARKS.get(row.status, ("·", MUTED)), (f" {STATUSES.get(row.status, row.status).lower()}", "")
            ),
        ),
        ("owner", line(owner_part(picture, row.owner)) if row.owner else line(("nobody", MUTED))),
        ("waits for", _tasks(picture, row.board, row.blocked_by)),
        ("holds up", _tasks(picture, row.board, task.blocks) if task is not None else Content("")),
        (
            "spent",
            line((f"{dollars(row.usd)}, {count(row.tokens)} tokens", "")) if row.tokens else Content(""),
        ),
        ("board", line((row.board, MUTED))),
        ("changed", line((f"{age(now - row.changed)} ago", MUTED))),
    ]
    lines = [line((f"{name:<10}", MUTED), value) for name, value in facts if value]
    lines += [Content(""), Content.styled("What became of it", "bold")]
    for at, status, owner in row.moves:
        by = owner_part(picture, owner)
        lines.append(
            line(
                (f"{moment(at)}  ", MUTED),
                (STATUSES.get(status, status).lower(), ""),
                (" · " if owner else "", MUTED),
                by,
            )
        )
    described = clean(task.description) if task is not None else ""
    lines += [Content(""), Content(described or "(no description)")]
    return Content("\n").join(lines)


def _tasks(picture: Picture, board: str, ids: tuple[str, ...]) -> Content:
    found = []
    for each in ids:
        other = picture.tasks.get(board, each)
        mark = MARKS.get(other.status, ("", "")) if other is not None else ("", "")
        subject = one_line(other.subject) if other is not None else ""
        found.append(line(mark, (f" #{each} {subject}", "")))
    return Content("\n" + " " * 10).join(found) if found else Content("")
