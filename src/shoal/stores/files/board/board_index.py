"""In-memory index of a task board: claimable, held and inconsistent tasks without a search."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping

from shoal.core.names import TaskId
from shoal.core.teams.packed_task_map import PackedTaskMap
from shoal.core.teams.tasks import Task, find_open_blockers, sort_tasks_by_number


class TaskBoardIndex:
    """Index updated task by task. `blocked_by` is authoritative; `blocks` follows from it."""

    def __init__(self) -> None:
        self._tasks = PackedTaskMap(Task)
        self._dependants: dict[TaskId, set[TaskId]] = {}
        """Dependents of each task, except completed ones that are in its `blocks`."""
        self._candidates: list[tuple[float, int]] = []
        """Sort keys of candidates, in order: every claimable task, and some that are no longer claimable."""
        self._sorted: tuple[Task, ...] | None = None
        self.in_progress: set[TaskId] = set()
        """Tasks in progress."""
        self.inconsistent: set[TaskId] = set()
        """Tasks whose dependencies may be written on one side only."""
        self._checked_blockers: dict[TaskId, tuple[TaskId, ...]] = {}
        """Blockers of unfinished tasks that were found on both sides; a blocker that changes is checked."""
        self._unchecked_ids: dict[TaskId, bool] = {}
        """Changed tasks whose dependencies were not checked yet, in order."""
        self._changed_ids: set[TaskId] | None = None

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        return self._tasks

    @property
    def unfinished_tasks(self) -> Mapping[TaskId, Task]:
        """Tasks that are not completed: only these can block another."""
        return self._tasks.unfinished

    def take_changed_ids(self) -> set[TaskId] | None:
        """Return the ids put or dropped since the last call; None at the first call."""
        changed_ids, self._changed_ids = self._changed_ids, set()
        return changed_ids

    def list_sorted_tasks(self) -> tuple[Task, ...]:
        if self._sorted is None:
            self._sorted = tuple(self._tasks.list_values_by_task_number())
        return self._sorted

    def list_unfinished(self) -> list[Task]:
        """Return the tasks that are not completed, by number."""
        return sort_tasks_by_number(self._tasks.unfinished.values())

    def get_dependants(self, task: TaskId) -> Iterable[TaskId]:
        return self._dependants.get(task, ())

    def put_task(self, task: Task) -> None:
        old = self._tasks.find_value(task.id)
        if old == task:
            return
        self._unchecked_ids[task.id] = bool(task.blocks or task.blocked_by)
        self._sorted = None
        self._record_changed_task(task.id)
        if (
            old is not None
            and _is_task_pending_and_unowned(old)
            and not (_is_task_pending_and_unowned(task) and task.sort_key == old.sort_key)
        ):
            self._remove_claim_candidate(old)
        self._tasks[task.id] = task
        if task.blocked_by or old is not None:
            self._update_dependants_of_blockers(
                task.id, old.blocked_by if old is not None else (), task.blocked_by
            )
        if task.status == "in_progress":
            self.in_progress.add(task.id)
        else:
            self.in_progress.discard(task.id)
        if _is_task_pending_and_unowned(task):
            self._add_claim_candidate(task)
        elif task.status == "completed":
            self._add_dependants_as_claim_candidates(task.id)

    def drop_task(self, task: TaskId) -> None:
        old = self._tasks.pop(task, None)
        if old is None:
            return
        self._unchecked_ids[task] = False
        self._sorted = None
        self._record_changed_task(task)
        if _is_task_pending_and_unowned(old):
            self._remove_claim_candidate(old)
        self._update_dependants_of_blockers(task, old.blocked_by, ())
        self.in_progress.discard(task)
        self._checked_blockers.pop(task, None)
        self.inconsistent.discard(task)
        self.inconsistent.update(other for other in (*old.blocked_by, *old.blocks) if other in self._tasks)
        self._add_dependants_as_claim_candidates(task)

    def clear(self) -> None:
        changed_ids = None if self._changed_ids is None else self._changed_ids.union(self._tasks)
        self.__init__()  # type: ignore[misc]
        self._changed_ids = changed_ids

    def iterate_claimable_tasks(self) -> Iterator[Task]:
        """Yield claimable tasks in the order of their sort keys. The board may change meanwhile."""
        index = 0
        while index < len(self._candidates):
            sort_key = self._candidates[index]
            task = self._tasks.unfinished.get(TaskId(str(sort_key[1])))
            if task is not None and task.sort_key == sort_key and self._is_claimable(task):
                yield task
                index = bisect_right(self._candidates, sort_key)
            else:
                del self._candidates[index]

    def iterate_claimable_ids(self) -> Iterator[TaskId]:
        return (task.id for task in self.iterate_claimable_tasks())

    def record_one_sided_dependencies(self) -> None:
        """Record which tasks changed since the last call, or their neighbors, have only one side of a
        dependency."""
        if not self._unchecked_ids:
            return
        unchecked_ids, self._unchecked_ids = self._unchecked_ids, {}
        for name, has_links in unchecked_ids.items():
            if not has_links and name not in self._dependants:
                continue
            task = self._tasks.find_value(name)
            if task is None:
                self.inconsistent.update(other for other in self.get_dependants(name) if other in self._tasks)
                continue
            self._check_blockers(task)
            if any(other not in self._tasks for other in task.blocks):
                self.inconsistent.add(name)
            if any(other not in task.blocks for other in self.get_dependants(name)):
                self.inconsistent.add(name)

    def _check_blockers(self, task: Task) -> None:
        """Record which blockers do not name the task."""
        is_checked = self._checked_blockers.pop(task.id, None) == task.blocked_by
        for blocker in task.blocked_by:
            is_consistent = is_checked and blocker in self._tasks and blocker not in self.inconsistent
            other = None if is_consistent else self._tasks.get(blocker)
            if not is_consistent and other is None:
                self.inconsistent.add(task.id)
            elif other is not None and task.id not in other.blocks:
                self.inconsistent.add(blocker)
            elif task.status == "completed":
                self._update_dependants_of_blockers(task.id, (blocker,), ())
        if task.status != "completed" and self.inconsistent.isdisjoint((task.id, *task.blocked_by)):
            self._checked_blockers[task.id] = task.blocked_by

    def _record_changed_task(self, task: TaskId) -> None:
        if self._changed_ids is not None:
            self._changed_ids.add(task)

    def _is_claimable(self, task: Task) -> bool:
        return _is_task_pending_and_unowned(task) and not find_open_blockers(task, self._tasks.unfinished)

    def _add_claim_candidate(self, task: Task) -> None:
        sort_key = task.sort_key
        if not self._candidates or self._candidates[-1] < sort_key:
            self._candidates.append(sort_key)
            return
        index = bisect_left(self._candidates, sort_key)
        if self._candidates[index] != sort_key:
            self._candidates.insert(index, sort_key)

    def _remove_claim_candidate(self, task: Task) -> None:
        sort_key = task.sort_key
        index = bisect_left(self._candidates, sort_key)
        if index < len(self._candidates) and self._candidates[index] == sort_key:
            del self._candidates[index]

    def _add_dependants_as_claim_candidates(self, blocker: TaskId) -> None:
        for name in self.get_dependants(blocker):
            if (task := self._tasks.unfinished.get(name)) is not None and _is_task_pending_and_unowned(task):
                self._add_claim_candidate(task)

    def _update_dependants_of_blockers(
        self, task: TaskId, before: Iterable[TaskId], after: Iterable[TaskId]
    ) -> None:
        for blocker in set(before) - set(after):
            dependants = self._dependants.get(blocker, set())
            dependants.discard(task)
            if not dependants:
                self._dependants.pop(blocker, None)
        for blocker in after:
            self._dependants.setdefault(blocker, set()).add(task)


def _is_task_pending_and_unowned(task: Task) -> bool:
    return task.status == "pending" and task.owner is None
