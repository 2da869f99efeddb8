"""Changes to a board from outside a run: add and change tasks, and notify the members concerned."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.app.teams.record import AgentsRecord
from shoal.core.errors import RecordError, TaskRefused
from shoal.core.names import AgentName, TaskId, TeamName
from shoal.core.tasks import Change, Draft, Task, begun_by


async def add_task(
    record: AgentsRecord, board: str, draft: Draft, *, blocked_by: Sequence[TaskId] = (), by: AgentName
) -> Task:
    """Add a task; nothing is added if a blocker does not exist."""
    tasks = record.board(board)
    for other in blocked_by:
        if await tasks.get(other) is None:
            raise TaskRefused(f"There is no task {other} to wait for, so nothing was added.")
    task = await tasks.create(draft)
    if not blocked_by:
        return task
    try:
        return (await tasks.update(task.id, Change(add_blocked_by=tuple(blocked_by)), by=by))[1]
    except RecordError:
        await tasks.delete(task.id)
        raise


async def change_task(
    record: AgentsRecord, board: str, task: TaskId, change: Change, *, by: AgentName
) -> Task:
    """Return the changed task. Notifies a new owner and the owners of tasks that waited for this one."""
    before, after = await record.board(board).update(task, change, by=by)
    assigned = after.owner if after.owner != before.owner else None
    done = after.status == "completed" != before.status
    if (assigned is not None or done) and board in await record.rosters.list():
        if assigned is not None:
            await record.assign(TeamName(board), by, assigned, after)
        if done:
            await _tell_owners(record, board, after, by)
    return after


async def _tell_owners(record: AgentsRecord, board: str, done: Task, by: AgentName) -> None:
    """Notify the owners of tasks that waited for this one: nobody else will claim those."""
    for task in begun_by(done.id, {each.id: each for each in await record.board(board).list()}):
        if task.owner is not None:
            await record.assign(TeamName(board), by, task.owner, task)
