"""Recovery of a task board after dead processes: half-written dependencies and abandoned tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import structs

from shoal.core.names import TaskId
from shoal.core.tasks import ATTEMPT_KEY, Task
from shoal.stores.files.directory_handle import DirectoryHandle
from shoal.stores.files.process_leases import ProcessLease, is_process_lease_alive

FOREIGN_TASK_TIMEOUT = 3600.0
"""Seconds without a write after which a task held by another program, without a lease, is abandoned."""


def get_task_claim_lease_id(task: Task) -> str | None:
    return None if task.claim_attempt is None else task.claim_attempt.partition("-")[0]


def repair_task_dependencies(
    task: Task, dependants: Iterable[TaskId], is_deleted: Callable[[TaskId], bool]
) -> Task:
    """Return the task with both sides of its dependencies consistent.

    `blocked_by` is authoritative and is written first, so a dependency that has only that side was being
    created: the other side is added. A reference to a deleted task is dropped: it was being deleted.
    """
    blocked_by = tuple(other for other in task.blocked_by if not is_deleted(other))
    missing = sorted(set(dependants) - set(task.blocks), key=int)
    blocks = tuple(other for other in (*task.blocks, *missing) if not is_deleted(other))
    if (blocks, blocked_by) == (task.blocks, task.blocked_by):
        return task
    return structs.replace(task, blocks=blocks, blocked_by=blocked_by)


def reset_task_to_pending(task: Task) -> Task:
    """Return the task as pending, without owner and attempt."""
    metadata = {key: value for key, value in task.metadata.items() if key != ATTEMPT_KEY}
    return structs.replace(task, status="pending", owner=None, metadata=metadata)


def find_abandoned_tasks(
    tasks: Iterable[Task],
    open_leases: Callable[[], DirectoryHandle | None],
    own_lease: ProcessLease | None,
    is_silent: Callable[[TaskId], bool],
) -> Iterator[Task]:
    """Yield tasks in progress whose holder is dead. `is_silent` decides for tasks of other programs."""
    alive: dict[str, bool] = {} if own_lease is None else {own_lease.id: own_lease.is_held}
    for task in tasks:
        if task.status != "in_progress":
            continue
        lease = get_task_claim_lease_id(task)
        if lease is None:
            if task.owner is not None and is_silent(task.id):
                yield task
            continue
        if lease not in alive:
            directory = open_leases()
            alive[lease] = directory is not None and is_process_lease_alive(directory, lease)
        if not alive[lease]:
            yield task
