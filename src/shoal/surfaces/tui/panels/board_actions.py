"""Actions on the board: add a task, assign it, and change its rank."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.app.run_view.view_rows import RunViewTaskRow
from shoal.app.teams.board_changes import add_board_task, change_task_and_notify_owners
from shoal.app.teams.team_store import TeamStore
from shoal.core.names import LEAD_NAME, USER_NAME, parse_agent_name, parse_task_id
from shoal.core.tasks import RANK_KEY, Task, TaskDraft, TaskUpdate


def get_task_sort_key(row: RunViewTaskRow) -> tuple[float, int]:
    """Return the sort key; of two claimable tasks the lower one is claimed first."""
    number = int(row.id) if row.id.isdigit() else 0
    return (number if row.rank is None else row.rank, number)


def compute_moved_rank(order: Sequence[RunViewTaskRow], row: RunViewTaskRow, by: int) -> float | None:
    """Return the rank that moves the task one place up or down; None if it is at the end."""
    old_index = next(index for index, each in enumerate(order) if each.id == row.id)
    new_index = old_index + by
    if not 0 <= new_index < len(order):
        return None
    next_index = new_index + by
    neighbor_rank = get_task_sort_key(order[new_index])[0]
    if not 0 <= next_index < len(order):
        return neighbor_rank + by
    return (neighbor_rank + get_task_sort_key(order[next_index])[0]) / 2


async def add_task_to_board(
    team_store: TeamStore, board: str, subject: str, description: str, waits: Sequence[str]
) -> Task:
    """Raises `TeamStoreError` and adds nothing if it fails."""
    draft = TaskDraft(subject=subject, description=description)
    return await add_board_task(
        team_store, board, draft, blocked_by=tuple(map(parse_task_id, waits)), by=USER_NAME
    )


async def assign_task_owner(team_store: TeamStore, row: RunViewTaskRow, owner: str) -> Task:
    """Assign the task to an agent, who is notified; an empty name unassigns it. Raises `TeamStoreError`."""
    name = parse_agent_name(LEAD_NAME if owner == "lead" else owner) if owner else None
    return await change_task_and_notify_owners(
        team_store, row.board, parse_task_id(row.id), TaskUpdate(owner=name), by=USER_NAME
    )


async def set_task_rank(team_store: TeamStore, row: RunViewTaskRow, rank: float) -> None:
    await team_store.open_board(row.board).update(
        parse_task_id(row.id), TaskUpdate(metadata={RANK_KEY: rank}), by=USER_NAME
    )
