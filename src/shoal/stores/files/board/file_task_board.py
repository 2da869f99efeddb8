"""Task board on plain files: one file per task, changed under locks, claimed under a lease."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from shoal.core.clock import Clock
from shoal.core.errors import LockUnavailable, StateFileError, TaskUpdateRefused
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TaskId, parse_safe_name, parse_task_id
from shoal.core.teams.tasks import (
    ATTEMPT_KEY,
    ClaimRefusalReason,
    Task,
    TaskClaimResult,
    TaskDraft,
    TaskUpdate,
    apply_added_task_dependencies,
    apply_task_update,
    extract_stable_claim_attempt_part,
    find_claim_refusal_reason,
    overlay_tasks_on_board,
    refuse_blank_subject,
    refuse_blocked_status,
)
from shoal.stores.board_waiters import TaskClaimBackoff, TaskClaimWaiters
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.access.file_watch import POLL_INTERVAL, DirectoryWatch
from shoal.stores.files.access.inotify import InotifyDirectoryWatch
from shoal.stores.files.access.problem_reporter import ProblemReporter, ignore_problem
from shoal.stores.files.board.board_index import TaskBoardIndex
from shoal.stores.files.board.task_files import TaskFiles
from shoal.stores.files.home.home_directories import (
    open_existing_home_subdirectory,
    open_or_create_home_subdirectory,
)
from shoal.stores.files.locks.board_locks import TaskBoardLocks
from shoal.stores.files.locks.process_leases import (
    ProcessLease,
    is_process_lease_alive,
    remove_dead_process_leases,
)
from shoal.stores.files.locks.shared_file_lock import LOCK_TIMEOUT
from shoal.stores.files.teams.foreign_lead_process import find_live_lead_process
from shoal.stores.store_texts import format_store_notice
from shoal.wire.task_codec import ParsedTaskFile

_Result = TypeVar("_Result")
_WRITE_POLL_SECONDS, _MAX_WRITE_SECONDS = 0.01, 3.0
"""Pause between two looks at a file that another program is writing, and time until a change gives up."""
RECOVERY_INTERVAL = 5.0
"""Seconds between checks for dead holders while somebody waits."""
POLL_DELAY_PER_TASK = 0.0001
"""Poll delay per task if the system sends no file events: twenty times the cost of one check."""
MIN_RECOVERY_INTERVAL = 0.5
"""Seconds for which a reader assumes that live holders are still alive."""
FOREIGN_TASK_TIMEOUT = 3600.0
"""Seconds without a write after which a task that another program holds without a lease counts as
abandoned."""


class _TaskInAWriteError(TaskUpdateRefused):
    """The file of the task is incomplete, and was written so recently that the write may not be finished."""


async def _retry_while_in_a_write(change: Callable[[], Awaitable[_Result]]) -> _Result:
    """Make the change, and try again while another program writes the file of the task in place."""
    deadline = time.monotonic() + _MAX_WRITE_SECONDS
    while True:
        try:
            return await change()
        except _TaskInAWriteError:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(_WRITE_POLL_SECONDS)


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
    *,
    keeps_dead: bool = False,
) -> Iterator[Task]:
    """Yield tasks in progress whose holder is dead. `is_silent` decides for tasks of other programs.

    Leases of dead holders are removed unless `keeps_dead` is set.
    """
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
            alive[lease] = directory is not None and is_process_lease_alive(
                directory, lease, keeps_dead=keeps_dead
            )
        if not alive[lease]:
            yield task


class FileTaskBoard:
    """Tasks in `tasks/{name}/`, shared with any number of processes and with other programs."""

    def __init__(  # noqa: PLR0913 - what it uses and how
        self,
        home: Path,
        name: str,
        *,
        clock: Clock,
        ids: IdGenerator,
        report_problem: ProblemReporter = ignore_problem,
        lock_timeout: float = LOCK_TIMEOUT,
        durable: bool = False,
        read_only: bool = False,
    ) -> None:
        """With `read_only`, readers see the files as they are: nothing is repaired or released."""
        self._read_only = read_only
        self._home = home
        self._name = parse_safe_name(name)
        self._clock = clock
        self._ids = ids
        self._directory = home / "tasks" / parse_safe_name(name)
        self._files = TaskFiles(home, parse_safe_name(name), report_problem, durable=durable)
        self._locks = TaskBoardLocks(home, parse_safe_name(name), timeout=lock_timeout)
        self._leases: DirectoryHandle | None = None
        self._lease: ProcessLease | None = None
        self._waiters = TaskClaimWaiters()
        self._backoff = TaskClaimBackoff()
        self._backoff_timer: asyncio.TimerHandle | None = None
        self._watched_events: InotifyDirectoryWatch | None = None
        self._last_recovery = -MIN_RECOVERY_INTERVAL
        self._is_tidied = False

    async def create(self, draft: TaskDraft) -> Task:
        refuse_blank_subject(draft.subject)
        async with self._lock_and_repair_board() as index:
            number = self._files.get_highest_task_id()
            while True:
                number += 1
                self._files.store_highest_task_id(number)
                task = draft.to_task(TaskId(str(number)))
                if self._files.create(task):
                    break
            self._waiters.notify_claimable(index.iterate_claimable_ids())
        return task

    async def get(self, task: TaskId) -> Task | None:
        async def try_get() -> Task | None:
            found = (await self._read_repaired_board()).tasks.get(task)
            if found is None and self._files.is_unreadable(task):
                raise self._build_missing_task_error(task)
            return found

        return await _retry_while_in_a_write(try_get)

    async def list_tasks(self) -> Sequence[Task]:
        index = await self._read_repaired_board()
        return index.list_sorted_tasks()

    async def list_unfinished(self) -> Sequence[Task]:
        index = await self._read_repaired_board()
        return index.list_unfinished()

    async def list_abandoned(self) -> frozenset[TaskId]:
        index = self._files.refresh_board_index()
        return frozenset(self._find_abandoned_task_ids(index.tasks[task] for task in index.in_progress))

    async def get_live_task_mapping(self) -> Mapping[TaskId, Task]:
        return (await self._read_repaired_board()).tasks

    def peek_tasks(self) -> Mapping[TaskId, Task]:
        """Return the tasks as in the files, without changes: tasks of dead holders are not released."""
        return self._files.refresh_board_index().tasks

    def take_changed_ids(self) -> Collection[TaskId] | None:
        """Return the ids of tasks whose files changed since the last call; None at the first call."""
        return self._files.refresh_board_index().take_changed_ids()

    def watch_changes(self, on_change: Callable[[], None]) -> DirectoryWatch | None:
        if not self._directory.is_dir():
            return None
        return DirectoryWatch(
            self._directory, on_change, on_poll=lambda: None, removals=True, skips_locks=True
        )

    async def update(self, task: TaskId, change: TaskUpdate, *, by: AgentName) -> tuple[Task, Task]:
        return await _retry_while_in_a_write(lambda: self._apply_update(task, change))

    async def _apply_update(self, task: TaskId, change: TaskUpdate) -> tuple[Task, Task]:
        if change.status == "deleted":
            before = await self._delete_task(task)
            return before, before
        if not change.add_blocks and not change.add_blocked_by:
            return await self._update_task(task, change)
        self._require_task(task)
        # Under the list lock, because changes of other tasks may close a cycle.
        async with self._lock_and_repair_board():
            return await self._update_task(task, change)

    async def _update_task(self, task: TaskId, change: TaskUpdate) -> tuple[Task, Task]:
        self._require_task(task)
        index = self._files.index
        ends = (*change.add_blocks, *change.add_blocked_by)
        involved_ids = {task, *(end for end in ends if end in index.tasks)}
        async with self._locks.lock_tasks(self._files.directory, involved_ids):
            files = {
                name: file for name in involved_ids if (file := self._files.reread_task(name)) is not None
            }
            if task not in files:
                raise self._build_missing_task_error(task)
            refuse_blocked_status(files[task].task, change, index.tasks, self._files.is_unreadable)
            updated = apply_task_update(files[task].task, change)
            others = apply_added_task_dependencies(
                overlay_tasks_on_board(index.tasks, {task: updated}), task, change
            )
            self._write_changed_tasks(files, {task: updated, **others})
        self._waiters.notify_claimable(index.iterate_claimable_ids())
        return files[task].task, index.tasks[task]

    async def claim(self, task: TaskId, *, by: AgentName) -> TaskClaimResult:
        async def try_claim() -> TaskClaimResult:
            result = await self._claim_task(task, by)
            if result.reason == "task_not_found" and self._files.is_unreadable(task):
                raise self._build_missing_task_error(task)
            return result

        return await _retry_while_in_a_write(try_claim)

    async def _claim_task(self, task: TaskId, by: AgentName) -> TaskClaimResult:
        index = self._files.refresh_board_index()
        refusal = self._find_claim_refusal(index, index.tasks.get(task), by)
        if refusal is not None and not (
            refusal == "already_claimed" and self._find_abandoned_task_ids((index.tasks[task],))
        ):
            return TaskClaimResult(success=False, reason=refusal, task=index.tasks.get(task))
        await self._release_abandoned_tasks({task})
        async with self._locks.lock_tasks(self._files.directory, (task,)):
            return self._claim_locked_task(task, by)

    async def claim_next(self, *, by: AgentName) -> TaskClaimResult | None:
        claim = await self._claim_next_task(by)
        if claim is None:
            self._backoff.record_failure()
        else:
            self._backoff.record_success()
        return claim

    async def _claim_next_task(self, by: AgentName) -> TaskClaimResult | None:
        index = self._files.refresh_board_index()
        abandoned = (
            self._find_abandoned_if_check_due(index)
            if next(index.iterate_claimable_tasks(), None)
            else self._find_all_abandoned_task_ids(index)
        )
        if abandoned:
            await self._release_abandoned_tasks(abandoned)
        while True:
            busy_task = None
            directory = self._files.directory
            # Held for all attempts: without it, each of them would fail while another process claims a task.
            directory_flock = self._locks.get_directory_flock(directory)
            if not directory_flock.try_acquire():
                await directory_flock.acquire(self._locks.compute_deadline())
                self._files.refresh_board_index()
            try:
                for task in index.iterate_claimable_tasks():
                    locks = await self._locks.try_lock_task(directory, task.id)
                    if locks is None:
                        # Somebody is changing it, most likely claiming it: try the next one first.
                        busy_task = busy_task or task
                        continue
                    try:
                        claim = self._claim_locked_task(task.id, by)
                    finally:
                        locks.release()
                    if claim.success:
                        return claim
            finally:
                directory_flock.release()
            if busy_task is None:
                return None
            claim = await self.claim(busy_task.id, by=by)
            if claim.success:
                return claim
            self._files.refresh_board_index()

    async def reclaim_owner_tasks(self, owner: AgentName) -> tuple[TaskId, ...]:
        # Not by `list_tasks`, which releases the tasks of dead holders.
        index = self._files.refresh_board_index()
        owned_tasks = [
            task for task in index.list_unfinished() if task.owner == owner and task.status == "in_progress"
        ]
        reclaimed = tuple([task.id for task in owned_tasks if await self._reclaim_task(task.id, owner)])
        if (leases := self._find_lease_directory()) is not None:
            remove_dead_process_leases(leases)
        return reclaimed

    async def _reclaim_task(self, task: TaskId, owner: AgentName) -> bool:
        async with self._locks.lock_tasks(self._files.directory, (task,)):
            file = self._files.reread_task(task)
            if file is None or file.task.owner != owner or file.task.status != "in_progress":
                return False
            return self._claim_locked_task(task, owner).success

    async def release(self, task: TaskId, *, attempt: str) -> bool:
        if task not in self._files.refresh_board_index().tasks:
            return False
        return await self._release_settled_task_if(task, lambda now: now.claim_attempt == attempt)

    async def release_owner_tasks(self, owner: AgentName) -> tuple[TaskId, ...]:
        def is_held_by_owner(task: Task) -> bool:
            return task.owner == owner and task.status != "completed"

        held_ids = [
            task.id for task in self._files.refresh_board_index().list_unfinished() if is_held_by_owner(task)
        ]
        return tuple(
            [task for task in held_ids if await self._release_settled_task_if(task, is_held_by_owner)]
        )

    async def delete(self, task: TaskId) -> None:
        await _retry_while_in_a_write(lambda: self._delete_task(task))

    def is_task_claimable_now(self) -> bool:
        return next(self._files.refresh_board_index().iterate_claimable_tasks(), None) is not None

    async def wait_for_claimable(self) -> None:
        while True:
            index = self._files.refresh_board_index()
            if next(index.iterate_claimable_tasks(), None) is not None:
                return
            if abandoned := self._find_all_abandoned_task_ids(index):
                await self._release_abandoned_tasks(abandoned)
            else:
                await self._wait_for_board_change()

    async def aclose(self) -> None:
        """Close the board; its lease ends, so unfinished claims return to pending."""
        self._stop_watching_task_files()
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        if self._leases is not None:
            self._leases.close()
            self._leases = None
        self._files.close()
        self._locks.close()

    @asynccontextmanager
    async def _lock_and_repair_board(self) -> AsyncIterator[TaskBoardIndex]:
        """Hold the list lock and yield the current board, with partial changes of dead processes repaired."""
        async with self._locks.lock_board(self._files.directory):
            index = self._files.refresh_board_index()
            if not self._is_tidied:
                self._is_tidied = True
                self._files.remove_abandoned_files()
            if index.inconsistent:
                await self._repair_dependencies(index)
            yield index

    async def _repair_dependencies(self, index: TaskBoardIndex) -> None:
        for task in sorted(index.inconsistent, key=int):
            async with self._locks.lock_tasks(self._files.directory, (task,)):
                file = self._files.reread_task(task)
                if file is not None:
                    repaired = repair_task_dependencies(
                        file.task, index.get_dependants(task), self._is_task_deleted
                    )
                    if repaired is not file.task:
                        self._files.write(file, repaired)
            index.inconsistent.discard(task)

    def _is_task_deleted(self, task: TaskId) -> bool:
        return task not in self._files.index.tasks and self._files.is_deleted(task)

    async def _read_repaired_board(self) -> TaskBoardIndex:
        """Return the board for readers, with dependencies repaired and abandoned tasks released."""
        index = self._files.refresh_board_index()
        if self._read_only:
            return index
        abandoned = self._find_abandoned_if_check_due(index)
        if index.inconsistent or abandoned:
            # Reading works even if writing does not.
            with suppress(LockUnavailable, StateFileError):
                if index.inconsistent:
                    async with self._lock_and_repair_board():
                        pass
                await self._release_abandoned_tasks(abandoned)
        return index

    def _require_task(self, task: TaskId) -> Task:
        found = self._files.refresh_board_index().tasks.get(parse_task_id(task))
        if found is None:
            raise self._build_missing_task_error(task)
        return found

    def _build_missing_task_error(self, task: TaskId) -> TaskUpdateRefused:
        if self._files.is_unreadable(task):
            return _TaskInAWriteError(format_store_notice("task_in_a_write", task=task))
        return TaskUpdateRefused(format_store_notice("unknown_task", task=task))

    async def _delete_task(self, task: TaskId) -> Task:
        self._require_task(task)
        async with self._lock_and_repair_board(), self._locks.lock_tasks(self._files.directory, (task,)):
            file = self._files.reread_task(task)
            if file is None:
                raise self._build_missing_task_error(task)
            self._files.store_highest_task_id(self._files.get_highest_task_id())
            self._files.remove(task)
        # References are dropped under their own locks, now or, if this process dies, by the next one.
        async with self._lock_and_repair_board() as index:
            self._waiters.notify_claimable(index.iterate_claimable_ids())
        return file.task

    def _find_claim_refusal(
        self, index: TaskBoardIndex, task: Task | None, by: AgentName
    ) -> ClaimRefusalReason | None:
        refusal = find_claim_refusal_reason(task, index.unfinished_tasks, by=by)
        if refusal is None and task is not None and any(map(self._files.is_unreadable, task.blocked_by)):
            return "blocked"
        return refusal

    def _claim_locked_task(self, task: TaskId, by: AgentName) -> TaskClaimResult:
        """Claim the task; the caller holds its lock."""
        index = self._files.refresh_board_index()
        file = self._files.reread_task(task)
        current = None if file is None else file.task
        refusal = self._find_claim_refusal(index, current, by)
        if refusal is not None or file is None or current is None:
            return TaskClaimResult(success=False, reason=refusal, task=current)
        is_held = current.owner == by and current.status == "in_progress"
        attempt_mark = extract_stable_claim_attempt_part(current.claim_attempt) if is_held else ""
        attempt = f"{self._ensure_process_lease().id}-{attempt_mark or self._ids.new_short_id()}"
        claimed_task = structs.replace(
            current, status="in_progress", owner=by, metadata={**current.metadata, ATTEMPT_KEY: attempt}
        )
        self._files.write(file, claimed_task)
        return TaskClaimResult(success=True, task=claimed_task, attempt=attempt)

    async def _release_settled_task_if(self, task: TaskId, condition: Callable[[Task], bool]) -> bool:
        async def try_release() -> bool:
            is_released = await self._release_task_if(task, condition)
            if not is_released and self._files.is_unreadable(task):
                raise self._build_missing_task_error(task)
            return is_released

        return await _retry_while_in_a_write(try_release)

    async def _release_task_if(self, task: TaskId, condition: Callable[[Task], bool]) -> bool:
        async with self._locks.lock_tasks(self._files.directory, (task,)):
            file = self._files.reread_task(task)
            if file is None or file.task.status == "completed" or not condition(file.task):
                return False
            self._files.write(file, reset_task_to_pending(file.task))
        self._waiters.notify_claimable(self._files.index.iterate_claimable_ids())
        return True

    async def _release_abandoned_tasks(self, tasks: Collection[TaskId]) -> None:
        for task in sorted(tasks, key=int):
            await self._release_task_if(task, lambda now: bool(self._find_abandoned_task_ids((now,))))

    def _find_abandoned_task_ids(self, tasks: Iterable[Task]) -> set[TaskId]:
        """Return the tasks whose holder is dead."""
        abandoned = find_abandoned_tasks(
            tasks,
            self._find_lease_directory,
            self._lease,
            self._is_task_file_stale,
            keeps_dead=self._read_only,
        )
        return {task.id for task in abandoned}

    def _find_all_abandoned_task_ids(self, index: TaskBoardIndex) -> set[TaskId]:
        self._last_recovery = self._clock.monotonic()
        return self._find_abandoned_task_ids(index.tasks[task] for task in index.in_progress)

    def _find_abandoned_if_check_due(self, index: TaskBoardIndex) -> set[TaskId]:
        return (
            self._find_all_abandoned_task_ids(index)
            if self._clock.monotonic() - self._last_recovery >= MIN_RECOVERY_INTERVAL
            else set()
        )

    def _is_task_file_stale(self, task: TaskId) -> bool:
        age = self._clock.now() / 1000 - self._files.get_task_write_time(task)
        # A live program that leads the team knows better which of its members are gone.
        return age > FOREIGN_TASK_TIMEOUT and find_live_lead_process(self._home, self._name) is None

    def _write_changed_tasks(self, files: dict[TaskId, ParsedTaskFile], after: dict[TaskId, Task]) -> None:
        """Write the tasks, `blocked_by` first: a reader that finds only that side can add the other."""

        def changes_blocked_by(task: Task) -> bool:
            return task.blocked_by != files[task.id].task.blocked_by

        for task in sorted(after.values(), key=changes_blocked_by, reverse=True):
            if task != files[task.id].task:
                self._files.write(files[task.id], task)

    def _ensure_process_lease(self) -> ProcessLease:
        if self._lease is None or not self._lease.is_held:
            if self._leases is None or self._leases.is_removed:
                self._leases = open_or_create_home_subdirectory(self._home, "shoal", "leases")
            remove_dead_process_leases(self._leases)
            self._lease = ProcessLease(self._leases)
        return self._lease

    def _find_lease_directory(self) -> DirectoryHandle | None:
        if self._leases is None or self._leases.is_removed:
            self._leases = open_existing_home_subdirectory(self._home, "shoal", "leases")
        return self._leases

    async def _wait_for_board_change(self) -> None:
        self._start_watching_task_files()
        # Without file events all files are checked: the more files, the less often.
        poll_delay = max(POLL_INTERVAL, POLL_DELAY_PER_TASK * len(self._files.index.tasks))
        pause = (
            RECOVERY_INTERVAL if self._files.change_events is not None else min(RECOVERY_INTERVAL, poll_delay)
        )
        try:
            with suppress(TimeoutError):
                async with self._clock.deadline(pause):
                    await self._waiters.wait()
        finally:
            if not len(self._waiters):
                self._stop_watching_task_files()

    def _start_watching_task_files(self) -> None:
        """Watch for changes by other processes while somebody waits."""
        _ = self._files.directory  # creates it, so that it can be watched
        events = self._files.change_events
        if self._watched_events is not events:
            self._stop_watching_task_files()
        if self._watched_events is None and events is not None:
            self._watched_events = events
            events.set_callback(self._on_task_files_changed)

    def _stop_watching_task_files(self) -> None:
        events, self._watched_events = self._watched_events, None
        if events is not None:
            events.set_callback(None)
        if self._backoff_timer is not None:
            self._backoff_timer.cancel()
            self._backoff_timer = None

    def _on_task_files_changed(self) -> None:
        if self._files.change_events is not self._watched_events:
            self._stop_watching_task_files()
            return
        claimable = next(self._files.refresh_board_index().iterate_claimable_tasks(), None)
        pause = 0.0 if claimable is None else self._backoff.get_delay(claimable.id)
        if not pause:
            self._waiters.notify_claimable(self._files.index.iterate_claimable_ids())
        elif self._backoff_timer is None:
            self._backoff_timer = asyncio.get_running_loop().call_later(pause, self._on_claim_backoff_elapsed)

    def _on_claim_backoff_elapsed(self) -> None:
        self._backoff_timer = None
        self._waiters.notify_claimable(self._files.refresh_board_index().iterate_claimable_ids())
