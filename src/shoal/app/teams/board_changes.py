"""Changes to a board from outside a run: add and change tasks, and notify the members concerned."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shoal.app.model_notices import format_session_notice
from shoal.app.teams.team_store import TeamStore
from shoal.core.errors import TaskUpdateRefused, TeamStoreError
from shoal.core.names import AgentName, TaskId, TeamName
from shoal.core.teams.tasks import Task, TaskDraft, TaskUpdate, find_owned_tasks_unblocked_by


async def add_board_task(
    store: TeamStore, board: str, draft: TaskDraft, *, blocked_by: Sequence[TaskId] = (), by: AgentName
) -> Task:
    """Add a task; nothing is added if a blocker does not exist."""
    tasks = store.open_board(board)
    for other in blocked_by:
        if await tasks.get(other) is None:
            raise TaskUpdateRefused(format_session_notice("unknown_blocker", task=other))
    # Blocked from the start: a member may be waiting for the next free task.
    task = await tasks.create(replace(draft, blocked_by=tuple(blocked_by)))
    if not blocked_by:
        return task
    try:
        return (await tasks.update(task.id, TaskUpdate(add_blocked_by=tuple(blocked_by)), by=by))[1]
    except TeamStoreError:
        await tasks.delete(task.id)
        raise


async def change_task_and_notify_owners(
    store: TeamStore, board: str, task: TaskId, change: TaskUpdate, *, by: AgentName
) -> Task:
    """Return the changed task. Notifies a new owner and the owners of tasks that waited for this one."""
    before, after = await store.open_board(board).update(task, change, by=by)
    new_owner = after.owner if after.owner != before.owner else None
    is_completed = after.status == "completed" != before.status
    if (new_owner is not None or is_completed) and board in await store.rosters.list_teams():
        if new_owner is not None:
            await store.post_assignment(TeamName(board), by, new_owner, after)
        if is_completed:
            await _notify_unblocked_owners(store, board, after, by)
    return after


async def _notify_unblocked_owners(store: TeamStore, board: str, completed: Task, by: AgentName) -> None:
    """Notify the owners of tasks that waited for this one: nobody else will claim those."""
    for task in find_owned_tasks_unblocked_by(
        completed.id, {each.id: each for each in await store.open_board(board).list_tasks()}
    ):
        if task.owner is not None:
            await store.post_assignment(TeamName(board), by, task.owner, task)
