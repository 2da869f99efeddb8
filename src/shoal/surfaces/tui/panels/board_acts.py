"""What a person does to a board: a new task, another owner, another place."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.app.picture.rows import TaskRow
from shoal.app.teams.board_orders import add_task, change_task
from shoal.app.teams.record import AgentsRecord
from shoal.core.names import LEAD_NAME, PERSON, agent_name, task_id
from shoal.core.tasks import RANK, Change, Draft, Task


def place(row: TaskRow) -> tuple[float, int]:
    """Of two tasks that could be claimed, the one with the lower place is."""
    number = int(row.id) if row.id.isdigit() else 0
    return (number if row.rank is None else row.rank, number)


def rank_between(order: Sequence[TaskRow], row: TaskRow, by: int) -> float | None:
    """The rank that brings it one place up or down in the order; None where it is at the end."""
    at = next(index for index, each in enumerate(order) if each.id == row.id)
    to = at + by
    if not 0 <= to < len(order):
        return None
    beyond = to + by
    near = place(order[to])[0]
    if not 0 <= beyond < len(order):
        return near + by
    return (near + place(order[beyond])[0]) / 2


async def add(record: AgentsRecord, board: str, subject: str, description: str, waits: Sequence[str]) -> Task:
    """Raises `RecordError`; nothing is on the board then."""
    draft = Draft(subject=subject, description=description)
    return await add_task(record, board, draft, blocked_by=tuple(map(task_id, waits)), by=PERSON)


async def assign(record: AgentsRecord, row: TaskRow, owner: str) -> Task:
    """Give it to somebody, who is told, or with an empty name to nobody. Raises `RecordError`."""
    name = agent_name(LEAD_NAME if owner == "lead" else owner) if owner else None
    return await change_task(record, row.board, task_id(row.id), Change(owner=name), by=PERSON)


async def put(record: AgentsRecord, row: TaskRow, rank: float) -> None:
    await record.board(row.board).update(task_id(row.id), Change(metadata={RANK: rank}), by=PERSON)
