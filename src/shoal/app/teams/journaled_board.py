"""Task board that journals every change to its tasks.

Changes through this board are journaled at once. Changes by others are detected shortly after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from shoal.core.errors import ShoalError, StateFileError
from shoal.core.events import JournaledEvent, TaskChanged
from shoal.core.ids import LEAD_ID
from shoal.core.names import AgentName, TaskId
from shoal.core.teams.packed_task_map import PackedTaskMap
from shoal.core.teams.tasks import Task, TaskClaimResult, TaskDraft, TaskUpdate
from shoal.core.teams.team_storage import ChangeWatch, StoredTaskBoard

CHECK_DELAY = 0.1
"""Seconds during which changes by other processes are collected."""


class _SuspendedCheck:
    """Context of one change. Not a generator, which would cost as much as encoding the task."""

    __slots__ = ("_board",)

    def __init__(self, board: JournaledTaskBoard) -> None:
        self._board = board

    def __enter__(self) -> None:
        self._board.begin_change()

    def __exit__(self, *_: object) -> None:
        self._board.end_change()


class JournaledTaskBoard:
    def __init__(
        self,
        board: StoredTaskBoard,
        name: str,
        emit_all: Callable[[Sequence[JournaledEvent]], None],
        emitted: PackedTaskMap[TaskChanged] | None = None,
    ) -> None:
        """Journal changes of the board; `emitted` has the tasks that are already in the journal."""
        self._board = board
        self._name = name
        self._emit_all = emit_all
        self._emitted = PackedTaskMap(TaskChanged) if emitted is None else emitted
        self._pending: set[TaskId] = set()
        """Tasks whose change did not fit into the journal; it is emitted with the next change."""
        self._changes_running = 0
        self._suspended_check = _SuspendedCheck(self)
        self._watch: ChangeWatch | None = None
        self._scheduled_check: asyncio.TimerHandle | None = None
        self._closed = False

    async def create(self, draft: TaskDraft) -> Task:
        with self._suspended_check:
            task = await self._board.create(draft)
            self._emit_task_changed(task)
        return task

    async def get(self, task: TaskId) -> Task | None:
        return await self._board.get(task)

    async def list_tasks(self) -> Sequence[Task]:
        return await self._board.list_tasks()

    async def list_unfinished(self) -> Sequence[Task]:
        return await self._board.list_unfinished()

    async def list_abandoned(self) -> frozenset[TaskId]:
        return await self._board.list_abandoned()

    async def get_live_task_mapping(self) -> Mapping[TaskId, Task]:
        return await self._board.get_live_task_mapping()

    async def update(self, task: TaskId, change: TaskUpdate, *, by: AgentName) -> tuple[Task, Task]:
        with self._suspended_check:
            before, after = await self._board.update(task, change, by=by)
            if change.status == "deleted":
                self._emit_task_deleted(task)
            else:
                self._emit_task_changed(after)
            if change.add_blocks or change.status == "deleted":
                self._emit_tasks_by_id((*change.add_blocks, *before.blocks))
        return before, after

    async def claim(self, task: TaskId, *, by: AgentName) -> TaskClaimResult:
        with self._suspended_check:
            claim = await self._board.claim(task, by=by)
            self._emit_claimed_task(claim)
        return claim

    async def claim_next(self, *, by: AgentName) -> TaskClaimResult | None:
        with self._suspended_check:
            claim = await self._board.claim_next(by=by)
            self._emit_claimed_task(claim)
        return claim

    async def reclaim_owner_tasks(self, owner: AgentName) -> tuple[TaskId, ...]:
        with self._suspended_check:
            reclaimed = await self._board.reclaim_owner_tasks(owner)
            self._emit_tasks_by_id(reclaimed)
        return reclaimed

    async def release(self, task: TaskId, *, attempt: str) -> bool:
        with self._suspended_check:
            released = await self._board.release(task, attempt=attempt)
            self._emit_tasks_by_id((task,))
        return released

    async def release_owner_tasks(self, owner: AgentName) -> tuple[TaskId, ...]:
        with self._suspended_check:
            released = await self._board.release_owner_tasks(owner)
            self._emit_tasks_by_id(released)
        return released

    async def delete(self, task: TaskId) -> None:
        with self._suspended_check:
            before = self._board.peek_tasks().get(task)
            await self._board.delete(task)
            self._emit_task_deleted(task)
            self._emit_tasks_by_id(() if before is None else before.blocks)

    async def emit_changes_now(self) -> None:
        """Emit now the changes by other processes that a check would emit a moment later."""
        self._emit_tasks_by_id([task.id for task in await self._board.list_tasks()])

    def is_task_claimable_now(self) -> bool:
        return self._board.is_task_claimable_now()

    async def wait_for_claimable(self) -> None:
        await self._board.wait_for_claimable()

    async def aclose(self) -> None:
        self._closed = True
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        if self._scheduled_check is not None:
            self._scheduled_check.cancel()
        await self._board.aclose()

    def begin_change(self) -> None:
        """Suspend the check for changes: a change through this board is journaled by its method."""
        self._changes_running += 1

    def end_change(self) -> None:
        self._changes_running -= 1
        if self._watch is None:
            self.start_watching()

    def start_watching(self) -> None:
        """Watch for changes by other processes, if the board exists."""
        if self._watch is None and not self._closed:
            self._watch = self._board.watch_changes(self._schedule_check)
            if self._watch is not None:
                self._schedule_check()

    def _schedule_check(self) -> None:
        if self._scheduled_check is None and not self._closed:
            self._scheduled_check = asyncio.get_running_loop().call_later(
                CHECK_DELAY, self._emit_changes_by_others
            )

    def _emit_changes_by_others(self) -> None:
        self._scheduled_check = None
        if self._changes_running:
            self._schedule_check()
            return
        with suppress(ShoalError):  # an unreadable board is checked again with its next change
            tasks = self._board.peek_tasks()
            changed = self._board.take_changed_ids()
            if changed is None:
                changed = {*tasks, *self._emitted}
            ids = sorted({*changed, *self._pending}, key=int)
            self._emit_or_mark_pending([self._build_event(task_id, tasks.get(task_id)) for task_id in ids])

    def _emit_tasks_by_id(self, tasks: Iterable[TaskId]) -> None:
        current = self._board.peek_tasks()
        found = [current[task_id] for task_id in dict.fromkeys(tasks) if task_id in current]
        self._emit_or_mark_pending([self._build_event(task.id, task) for task in found])

    def _emit_claimed_task(self, claim: TaskClaimResult | None) -> None:
        if claim is not None and claim.success and claim.task is not None:
            self._emit_task_changed(claim.task)

    def _emit_task_changed(self, task: Task) -> None:
        self._emit_or_mark_pending([self._build_event(task.id, task)])

    def _emit_task_deleted(self, task: TaskId) -> None:
        self._emit_or_mark_pending([self._build_event(task, None)])

    def _build_event(self, task_id: TaskId, task: Task | None) -> TaskChanged | None:
        """Build the event for a task, or for a deleted one; None if the journal has it already."""
        last_event = self._emitted.find_value(task_id)
        if task is not None:
            event = TaskChanged(
                agent=LEAD_ID,
                board=self._name,
                task=task.id,
                subject=task.subject,
                status=task.status,
                owner=task.owner or "",
                blocked_by=task.blocked_by,
                rank=task.rank,
            )
        elif last_event is not None:
            event = replace(last_event, status="deleted", blocked_by=(), rank=None)
        if (task is None and last_event is None) or last_event == event:
            self._pending.discard(task_id)
            return None
        return event

    def _emit_or_mark_pending(self, events: Iterable[TaskChanged | None]) -> None:
        """Emit events together: in a database, each alone would be a commit that the session waits for."""
        new_events = [event for event in events if event is not None]
        if not new_events:
            return
        # The changes are valid even if the journal is full.
        try:
            self._emit_all(new_events)
        except StateFileError:
            self._pending.update(TaskId(event.task) for event in new_events)
            return
        for event in new_events:
            task_id = TaskId(event.task)
            self._pending.discard(task_id)
            if event.status == "deleted":
                del self._emitted[task_id]
            else:
                self._emitted[task_id] = event
