"""In-memory index of a task board: claimable, held and inconsistent tasks without a search."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping

from shoal.core.names import TaskId
from shoal.core.packed import ByTask
from shoal.core.tasks import Task, by_number, open_blockers


class BoardIndex:
    """Index updated task by task. `blocked_by` is authoritative; `blocks` follows from it."""

    def __init__(self) -> None:
        self._tasks = ByTask(Task)
        self._dependants: dict[TaskId, set[TaskId]] = {}
        """Dependants of each task, except completed ones that are in its `blocks`."""
        self._ready: list[tuple[float, int]] = []
        """Sort keys of candidates, in order: every claimable task, and some that are no longer claimable."""
        self._sorted: tuple[Task, ...] | None = None
        self.held: set[TaskId] = set()
        """Tasks in progress."""
        self.torn: set[TaskId] = set()
        """Tasks whose dependencies may be written on one side only."""
        self._touched: set[TaskId] | None = None

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        return self._tasks

    @property
    def open(self) -> Mapping[TaskId, Task]:
        """Tasks that are not completed: only these can block another."""
        return self._tasks.open

    def touched(self) -> set[TaskId] | None:
        """Return the ids put or dropped since the last call; None at the first call."""
        touched, self._touched = self._touched, set()
        return touched

    def in_order(self) -> tuple[Task, ...]:
        if self._sorted is None:
            self._sorted = tuple(self._tasks.by_number())
        return self._sorted

    def unfinished(self) -> list[Task]:
        """Return the tasks that are not completed, by number."""
        return by_number(self._tasks.open.values())

    def dependants(self, task: TaskId) -> Iterable[TaskId]:
        return self._dependants.get(task, ())

    def put(self, task: Task) -> None:
        old = self._tasks.get(task.id)
        if old == task:
            return
        self._sorted = None
        self._touch(task.id)
        if old is not None and _is_free(old) and not (_is_free(task) and task.place == old.place):
            self._no_candidate(old)
        self._tasks[task.id] = task
        if task.blocked_by or old is not None:
            self._relate(task.id, old.blocked_by if old is not None else (), task.blocked_by)
        if task.status == "in_progress":
            self.held.add(task.id)
        else:
            self.held.discard(task.id)
        if _is_free(task):
            self._candidate(task)
        elif task.status == "completed":
            self._candidates_behind(task.id)

    def drop(self, task: TaskId) -> None:
        old = self._tasks.pop(task, None)
        if old is None:
            return
        self._sorted = None
        self._touch(task)
        if _is_free(old):
            self._no_candidate(old)
        self._relate(task, old.blocked_by, ())
        self.held.discard(task)
        self.torn.discard(task)
        self.torn.update(other for other in (*old.blocked_by, *old.blocks) if other in self._tasks)
        self._candidates_behind(task)

    def clear(self) -> None:
        touched = None if self._touched is None else self._touched.union(self._tasks)
        self.__init__()  # type: ignore[misc]
        self._touched = touched

    def claimable(self) -> Iterator[Task]:
        """Yield claimable tasks in the order of their sort keys. The board may change meanwhile."""
        at = 0
        while at < len(self._ready):
            place = self._ready[at]
            task = self._tasks.open.get(TaskId(str(place[1])))
            if task is not None and task.place == place and self._is_claimable(task):
                yield task
                at = bisect_right(self._ready, place)
            else:
                del self._ready[at]

    def check(self, changed: Iterable[TaskId]) -> None:
        """Record which changed tasks or neighbours have only one side of a dependency."""
        for name in changed:
            task = self._tasks.get(name)
            if task is None:
                self.torn.update(other for other in self.dependants(name) if other in self._tasks)
                continue
            if not (task.blocks or task.blocked_by or name in self._dependants):
                continue
            for blocker in task.blocked_by:
                other = self._tasks.get(blocker)
                if other is None:
                    self.torn.add(name)
                elif name not in other.blocks:
                    self.torn.add(blocker)
                elif task.status == "completed":
                    self._relate(name, (blocker,), ())
            if any(other not in self._tasks for other in task.blocks):
                self.torn.add(name)
            if any(other not in task.blocks for other in self.dependants(name)):
                self.torn.add(name)

    def _touch(self, task: TaskId) -> None:
        if self._touched is not None:
            self._touched.add(task)

    def _is_claimable(self, task: Task) -> bool:
        return _is_free(task) and not open_blockers(task, self._tasks.open)

    def _candidate(self, task: Task) -> None:
        place = task.place
        if not self._ready or self._ready[-1] < place:
            self._ready.append(place)
            return
        at = bisect_left(self._ready, place)
        if self._ready[at] != place:
            self._ready.insert(at, place)

    def _no_candidate(self, task: Task) -> None:
        place = task.place
        at = bisect_left(self._ready, place)
        if at < len(self._ready) and self._ready[at] == place:
            del self._ready[at]

    def _candidates_behind(self, blocker: TaskId) -> None:
        for name in self.dependants(blocker):
            if (task := self._tasks.open.get(name)) is not None and _is_free(task):
                self._candidate(task)

    def _relate(self, task: TaskId, before: Iterable[TaskId], after: Iterable[TaskId]) -> None:
        for blocker in set(before) - set(after):
            waiting = self._dependants.get(blocker, set())
            waiting.discard(task)
            if not waiting:
                self._dependants.pop(blocker, None)
        for blocker in after:
            self._dependants.setdefault(blocker, set()).add(task)


def _is_free(task: Task) -> bool:
    return task.status == "pending" and task.owner is None
