"""Task board on plain files: one file per task, changed under locks, claimed under a lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import structs

from shoal.core.clock import Clock
from shoal.core.errors import LockUnavailable, StoreError, TaskRefused
from shoal.core.ids import Ids
from shoal.core.names import AgentName, TaskId, name_from, task_id
from shoal.core.tasks import (
    ATTEMPT,
    Change,
    Claim,
    ClaimRefusal,
    Draft,
    Task,
    changed,
    claim_refusal,
    laid_over,
    mark_of,
    with_dependencies,
)
from shoal.stores.files.below_home import found_inside, inside
from shoal.stores.files.board_index import BoardIndex
from shoal.stores.files.board_locks import BoardLocks
from shoal.stores.files.board_recovery import FOREIGN_PATIENCE, given_back, left_by_the_dead, mended
from shoal.stores.files.board_waiting import Turns, Waiters
from shoal.stores.files.handles import Directory
from shoal.stores.files.inotify import Notices
from shoal.stores.files.leases import Lease, clear_dead
from shoal.stores.files.record_locks import PATIENCE
from shoal.stores.files.reporting import Report, unreported
from shoal.stores.files.task_files import TaskFiles
from shoal.stores.files.watch import UNTOLD
from shoal.wire.tasks import TaskFile

SWEEP = 5.0
"""Seconds between checks for dead holders while somebody waits."""
PER_TASK = 0.0001
"""Poll delay per task if the system sends no file events: twenty times the cost of one check."""
OFTEN = 0.5
"""Seconds for which a reader assumes that live holders are still alive."""


class FileTaskBoard:
    """Tasks in `tasks/{name}/`, shared with any number of processes and with other programs."""

    def __init__(
        self,
        home: Path,
        name: str,
        *,
        clock: Clock,
        ids: Ids,
        report: Report = unreported,
        patience: float = PATIENCE,
        foreign_patience: float = FOREIGN_PATIENCE,
    ) -> None:
        self._home = home
        self._clock = clock
        self._ids = ids
        self._foreign_patience = foreign_patience
        self._files = TaskFiles(home, name_from(name), report)
        self._locks = BoardLocks(home, name_from(name), patience=patience)
        self._leases: Directory | None = None
        self._lease: Lease | None = None
        self._waiters = Waiters()
        self._turns = Turns()
        self._turn: asyncio.TimerHandle | None = None
        self._reading: Notices | None = None
        self._swept = -OFTEN
        self._tidy = False

    async def create(self, draft: Draft) -> Task:
        async with self._held() as index:
            number = self._files.highest()
            while True:
                number += 1
                self._files.keep_highest(number)
                task = Task(
                    id=TaskId(str(number)),
                    subject=draft.subject,
                    description=draft.description,
                    active_form=draft.active_form,
                    metadata=draft.metadata,
                )
                if self._files.create(task):
                    break
            self._waiters.notice(index)
        return task

    async def get(self, task: TaskId) -> Task | None:
        index = await self._settled()
        return index.tasks.get(task)

    async def list(self) -> Sequence[Task]:
        index = await self._settled()
        return index.in_order()

    async def unfinished(self) -> Sequence[Task]:
        index = await self._settled()
        return index.unfinished()

    async def look(self) -> Mapping[TaskId, Task]:
        return (await self._settled()).tasks

    def glance(self) -> Mapping[TaskId, Task]:
        """Return the tasks as in the files, without changes: tasks of dead holders are not released."""
        return self._files.look().tasks

    def touched(self) -> Collection[TaskId] | None:
        """Return the ids of tasks whose files changed since the last call; None at the first call."""
        return self._files.look().touched()

    async def update(self, task: TaskId, change: Change, *, by: AgentName) -> tuple[Task, Task]:
        if change.status == "deleted":
            before = await self._delete(task)
            return before, before
        self._known(task)
        if not change.add_blocks and not change.add_blocked_by:
            return await self._update(task, change)
        # Under the list lock, because changes of other tasks may close a cycle.
        async with self._held():
            return await self._update(task, change)

    async def _update(self, task: TaskId, change: Change) -> tuple[Task, Task]:
        index = self._files.look()
        ends = (*change.add_blocks, *change.add_blocked_by)
        involved = {task, *(end for end in ends if end in index.tasks)}
        async with self._locks.tasks(self._files.directory, involved):
            files = {name: file for name in involved if (file := self._files.fresh(name)) is not None}
            if task not in files:
                raise _not_found(task)
            after = changed(files[task].task, change)
            others = with_dependencies(laid_over(index.tasks, {task: after}), task, change)
            self._write(files, {task: after, **others})
        self._waiters.notice(index)
        return files[task].task, index.tasks[task]

    async def claim(self, task: TaskId, *, by: AgentName) -> Claim:
        index = self._files.look()
        refusal = self._refusal(index, index.tasks.get(task), by)
        if refusal is not None and not (refusal == "already_claimed" and self._left((index.tasks[task],))):
            return Claim(success=False, reason=refusal, task=index.tasks.get(task))
        await self._give_back_left({task})
        async with self._locks.tasks(self._files.directory, (task,)):
            return self._claim(task, by)

    async def claim_next(self, *, by: AgentName) -> Claim | None:
        claim = await self._claim_next(by)
        if claim is None:
            self._turns.came_too_late()
        else:
            self._turns.came_first()
        return claim

    async def _claim_next(self, by: AgentName) -> Claim | None:
        index = self._files.look()
        left = self._left_now_and_then(index) if next(index.claimable(), None) else self._left_all(index)
        await self._give_back_left(left)
        while True:
            busy = None
            for task in self._files.look().claimable():
                async with self._locks.free_task(self._files.directory, task.id) as free:
                    claim = self._claim(task.id, by) if free else None
                if claim is not None and claim.success:
                    return claim
                if claim is None:
                    # Somebody is changing it, most likely claiming it: try the next one first.
                    busy = busy or task
            if busy is None:
                return None
            claim = await self.claim(busy.id, by=by)
            if claim.success:
                return claim

    async def reclaim(self, owner: AgentName) -> tuple[TaskId, ...]:
        # Not by `list_tasks`, which releases the tasks of dead holders.
        index = self._files.look()
        theirs = [task for task in index.unfinished() if task.owner == owner and task.status == "in_progress"]
        held = tuple([task.id for task in theirs if await self._hold_again(task.id, owner)])
        if (leases := self._found_leases()) is not None:
            clear_dead(leases)
        return held

    async def _hold_again(self, task: TaskId, owner: AgentName) -> bool:
        async with self._locks.tasks(self._files.directory, (task,)):
            file = self._files.fresh(task)
            if file is None or file.task.owner != owner or file.task.status != "in_progress":
                return False
            return self._claim(task, owner).success

    async def release(self, task: TaskId, *, attempt: str) -> bool:
        if task not in self._files.look().tasks:
            return False
        return await self._give_back(task, lambda current: current.attempt == attempt)

    async def release_all(self, owner: AgentName) -> tuple[TaskId, ...]:
        def has(task: Task) -> bool:
            return task.owner == owner and task.status != "completed"

        theirs = [task.id for task in self._files.look().unfinished() if has(task)]
        return tuple([task for task in theirs if await self._give_back(task, has)])

    async def delete(self, task: TaskId) -> None:
        await self._delete(task)

    async def wait_claimable(self) -> None:
        while True:
            index = self._files.look()
            if next(index.claimable(), None) is not None:
                return
            if left := self._left_all(index):
                await self._give_back_left(left)
            else:
                await self._wait()

    async def aclose(self) -> None:
        """Close the board; its lease ends, so unfinished claims return to pending."""
        self._stop_reading()
        if self._lease is not None:
            self._lease.end()
            self._lease = None
        if self._leases is not None:
            self._leases.close()
            self._leases = None
        self._files.close()
        self._locks.close()

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[BoardIndex]:
        """Hold the list lock and yield the current board, with partial changes of dead processes repaired."""
        async with self._locks.board(self._files.directory):
            index = self._files.look()
            if not self._tidy:
                self._tidy = True
                self._files.clear_abandoned()
            if index.torn:
                await self._mend(index)
            yield index

    async def _mend(self, index: BoardIndex) -> None:
        for task in sorted(index.torn, key=int):
            async with self._locks.tasks(self._files.directory, (task,)):
                file = self._files.fresh(task)
                if file is not None:
                    whole = mended(file.task, index.dependants(task), self._is_gone)
                    if whole is not file.task:
                        self._files.write(file, whole)
            index.torn.discard(task)

    def _is_gone(self, task: TaskId) -> bool:
        return task not in self._files.index.tasks and self._files.is_gone(task)

    async def _settled(self) -> BoardIndex:
        """Return the board for readers, with dependencies repaired and abandoned tasks released."""
        index = self._files.look()
        left = self._left_now_and_then(index)
        # Reading works even if writing does not.
        with suppress(LockUnavailable, StoreError):
            if index.torn:
                async with self._held():
                    pass
            await self._give_back_left(left)
        return index

    def _known(self, task: TaskId) -> Task:
        found = self._files.look().tasks.get(task_id(task))
        if found is None:
            raise _not_found(task)
        return found

    async def _delete(self, task: TaskId) -> Task:
        self._known(task)
        async with self._held(), self._locks.tasks(self._files.directory, (task,)):
            file = self._files.fresh(task)
            if file is None:
                raise _not_found(task)
            self._files.keep_highest(self._files.highest())
            self._files.remove(task)
        # References are dropped under their own locks, now or, if this process dies, by the next one.
        async with self._held() as index:
            self._waiters.notice(index)
        return file.task

    def _refusal(self, index: BoardIndex, task: Task | None, by: AgentName) -> ClaimRefusal | None:
        refusal = claim_refusal(task, index.open, by=by)
        if refusal is None and task is not None and any(map(self._files.is_unsure, task.blocked_by)):
            return "blocked"
        return refusal

    def _claim(self, task: TaskId, by: AgentName) -> Claim:
        """Claim the task; the caller holds its lock."""
        index = self._files.look()
        file = self._files.fresh(task)
        current = None if file is None else file.task
        refusal = self._refusal(index, current, by)
        if refusal is not None or file is None or current is None:
            return Claim(success=False, reason=refusal, task=current)
        held = current.owner == by and current.status == "in_progress"
        mark = mark_of(current.attempt) if held else ""
        attempt = f"{self._own_lease().id}-{mark or self._ids.short()}"
        claimed = structs.replace(
            current, status="in_progress", owner=by, metadata={**current.metadata, ATTEMPT: attempt}
        )
        self._files.write(file, claimed)
        return Claim(success=True, task=claimed, attempt=attempt)

    async def _give_back(self, task: TaskId, still: Callable[[Task], bool]) -> bool:
        async with self._locks.tasks(self._files.directory, (task,)):
            file = self._files.fresh(task)
            if file is None or file.task.status == "completed" or not still(file.task):
                return False
            self._files.write(file, given_back(file.task))
        self._waiters.notice(self._files.index)
        return True

    async def _give_back_left(self, tasks: Collection[TaskId]) -> None:
        for task in sorted(tasks, key=int):
            await self._give_back(task, lambda now: bool(self._left((now,))))

    def _left(self, tasks: Iterable[Task]) -> set[TaskId]:
        """Return the tasks whose holder is dead."""
        left = left_by_the_dead(tasks, self._found_leases, self._lease, self._is_silent)
        return {task.id for task in left}

    def _left_all(self, index: BoardIndex) -> set[TaskId]:
        self._swept = self._clock.monotonic()
        return self._left(index.tasks[task] for task in index.held)

    def _left_now_and_then(self, index: BoardIndex) -> set[TaskId]:
        return self._left_all(index) if self._clock.monotonic() - self._swept >= OFTEN else set()

    def _is_silent(self, task: TaskId) -> bool:
        return self._clock.now() / 1000 - self._files.changed_at(task) > self._foreign_patience

    def _write(self, files: dict[TaskId, TaskFile], after: dict[TaskId, Task]) -> None:
        """Write the tasks, `blocked_by` first: a reader that finds only that side can add the other."""

        def is_truth(task: Task) -> bool:
            return task.blocked_by != files[task.id].task.blocked_by

        for task in sorted(after.values(), key=is_truth, reverse=True):
            if task != files[task.id].task:
                self._files.write(files[task.id], task)

    def _own_lease(self) -> Lease:
        if self._lease is None or not self._lease.held:
            if self._leases is None or self._leases.gone:
                self._leases = inside(self._home, "shoal", "leases")
            clear_dead(self._leases)
            self._lease = Lease(self._leases)
        return self._lease

    def _found_leases(self) -> Directory | None:
        if self._leases is None or self._leases.gone:
            self._leases = found_inside(self._home, "shoal", "leases")
        return self._leases

    async def _wait(self) -> None:
        self._start_reading()
        # Without file events all files are checked: the more files, the less often.
        untold = max(UNTOLD, PER_TASK * len(self._files.index.tasks))
        pause = SWEEP if self._files.news is not None else min(SWEEP, untold)
        try:
            with suppress(TimeoutError):
                async with self._clock.deadline(pause):
                    await self._waiters.wait()
        finally:
            if not len(self._waiters):
                self._stop_reading()

    def _start_reading(self) -> None:
        """Watch for changes by other processes while somebody waits."""
        _ = self._files.directory  # creates it, so that it can be watched
        news = self._files.news
        if self._reading is not news:
            self._stop_reading()
        if self._reading is None and news is not None:
            self._reading = news
            news.tell(self._heard)

    def _stop_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.tell(None)
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _heard(self) -> None:
        if self._files.news is not self._reading:
            self._stop_reading()
            return
        first = next(self._files.look().claimable(), None)
        pause = 0.0 if first is None else self._turns.pause(first.id)
        if not pause:
            self._waiters.notice(self._files.index)
        elif self._turn is None:
            self._turn = asyncio.get_running_loop().call_later(pause, self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        self._waiters.notice(self._files.look())


def _not_found(task: TaskId) -> TaskRefused:
    return TaskRefused(f"There is no task {task}; it may have been deleted. List the tasks to see the ids.")
