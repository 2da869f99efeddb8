"""Actions on the board: add a task, assign it, and change its rank."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.app.picture.rows import TaskRow
from shoal.app.teams.board_orders import add_task, change_task
from shoal.app.teams.record import AgentsRecord
from shoal.core.names import LEAD_NAME, PERSON, agent_name, task_id
from shoal.core.tasks import RANK, Change, Draft, Task


def place(row: TaskRow) -> tuple[float, int]:
    """Return the sort key; of two claimable tasks the lower one is claimed first."""
    number = int(row.id) if row.id.isdigit() else 0
    return (number if row.rank is None else row.rank, number)


def rank_between(order: Sequence[TaskRow], row: TaskRow, by: int) -> float | None:
    """Return the rank that moves the task one place up or down; None if it is at the end."""
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
    """Raises `TeamStoreError` and adds nothing if it fails."""
    draft = Draft(subject=subject, description=description)
    return await add_task(record, board, draft, blocked_by=tuple(map(task_id, waits)), by=PERSON)


async def assign(record: AgentsRecord, row: TaskRow, owner: str) -> Task:
    """Assign the task to an agent, who is notified; an empty name unassigns it. Raises `TeamStoreError`."""
    name = agent_name(LEAD_NAME if owner == "lead" else owner) if owner else None
    return await change_task(record, row.board, task_id(row.id), Change(owner=name), by=PERSON)


async def put(record: AgentsRecord, row: TaskRow, rank: float) -> None:
    await record.board(row.board).update(task_id(row.id), Change(metadata={RANK: rank}), by=PERSON)
