"""Recovery of a task board after dead processes: half-written dependencies and abandoned tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import structs

from shoal.core.names import TaskId
from shoal.core.tasks import ATTEMPT, Task
from shoal.stores.files.handles import Directory
from shoal.stores.files.leases import Lease, is_alive

FOREIGN_PATIENCE = 3600.0
"""Seconds without a write after which a task held by another program, without a lease, is abandoned."""


def lease_of(task: Task) -> str | None:
    return None if task.attempt is None else task.attempt.partition("-")[0]


def mended(task: Task, dependants: Iterable[TaskId], gone: Callable[[TaskId], bool]) -> Task:
    """Return the task with both sides of its dependencies consistent.

    `blocked_by` is authoritative and is written first, so a dependency that has only that side was being
    created: the other side is added. A reference to a deleted task is dropped: it was being deleted.
    """
    blocked_by = tuple(other for other in task.blocked_by if not gone(other))
    missing = sorted(set(dependants) - set(task.blocks), key=int)
    blocks = tuple(other for other in (*task.blocks, *missing) if not gone(other))
    if (blocks, blocked_by) == (task.blocks, task.blocked_by):
        return task
    return structs.replace(task, blocks=blocks, blocked_by=blocked_by)


def given_back(task: Task) -> Task:
    """Return the task as pending, without owner and attempt."""
    metadata = {key: value for key, value in task.metadata.items() if key != ATTEMPT}
    return structs.replace(task, status="pending", owner=None, metadata=metadata)


def left_by_the_dead(
    tasks: Iterable[Task],
    leases: Callable[[], Directory | None],
    own: Lease | None,
    silent: Callable[[TaskId], bool],
) -> Iterator[Task]:
    """Yield tasks in progress whose holder is dead. `is_silent` decides for tasks of other programs."""
    alive: dict[str, bool] = {} if own is None else {own.id: own.held}
    for task in tasks:
        if task.status != "in_progress":
            continue
        lease = lease_of(task)
        if lease is None:
            if task.owner is not None and silent(task.id):
                yield task
            continue
        if lease not in alive:
            directory = leases()
            alive[lease] = directory is not None and is_alive(directory, lease)
        if not alive[lease]:
            yield task
