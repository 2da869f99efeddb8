"""What a person does to a board: a new task, another owner, another place."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.app.picture.rows import TaskRow
from shoal.app.record import AgentsRecord
from shoal.core.errors import RecordError, TaskRefused
from shoal.core.names import LEAD_NAME, AgentName, TeamName, agent_name, task_id
from shoal.core.tasks import RANK, Change, Draft, Task

PERSON = AgentName("user")
"""The name under which a person acts on a board."""


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
    on = record.board(board)
    waits_for = tuple(map(task_id, waits))
    for other in waits_for:
        if await on.get(other) is None:
            raise TaskRefused(f"There is no task {other} to wait for, so nothing was added.")
    task = await on.create(Draft(subject=subject, description=description))
    if not waits_for:
        return task
    try:
        return (await on.update(task.id, Change(add_blocked_by=waits_for), by=PERSON))[1]
    except RecordError:
        await on.delete(task.id)
        raise


async def assign(record: AgentsRecord, row: TaskRow, owner: str) -> Task:
    """Give it to somebody, who is told, or with an empty name to nobody. Raises `RecordError`."""
    name = agent_name(LEAD_NAME if owner == "lead" else owner) if owner else None
    before, after = await record.board(row.board).update(task_id(row.id), Change(owner=name), by=PERSON)
    if after.owner not in (None, before.owner) and row.board in await record.rosters.list():
        await record.assign(TeamName(row.board), PERSON, after.owner, after)
    return after


async def put(record: AgentsRecord, row: TaskRow, rank: float) -> None:
    await record.board(row.board).update(task_id(row.id), Change(metadata={RANK: rank}), by=PERSON)
