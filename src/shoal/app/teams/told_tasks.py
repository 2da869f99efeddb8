"""Task board that journals every change of its tasks.

Changes through this board are journaled at once. Changes by other processes are detected in the directory,
shortly after.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from shoal.core.errors import ShoalError, StoreError
from shoal.core.events import Journaled, TaskChanged
from shoal.core.ids import LEAD
from shoal.core.names import AgentName, TaskId
from shoal.core.packed import ByTask
from shoal.core.tasks import Change, Claim, Draft, Task
from shoal.stores.files.board import FileTaskBoard
from shoal.stores.files.watch import DirectoryWatch

SOON = 0.1
"""Seconds during which changes by other processes are collected."""


class ToldBoard:
    def __init__(
        self, board: FileTaskBoard, name: str, directory: Path, emit: Callable[[Journaled], None]
    ) -> None:
        self._board = board
        self._name = name
        self._directory = directory
        self._emit = emit
        self._told = ByTask(TaskChanged)
        self._untold: set[TaskId] = set()
        """Tasks whose change did not fit into the journal; it is emitted with the next change."""
        self._under_way = 0
        self._watch: DirectoryWatch | None = None
        self._due: asyncio.TimerHandle | None = None
        self._closed = False

    async def create(self, draft: Draft) -> Task:
        async with self._changing():
            task = await self._board.create(draft)
            self._tell(task)
        return task

    async def get(self, task: TaskId) -> Task | None:
        return await self._board.get(task)

    async def list(self) -> Sequence[Task]:
        return await self._board.list()

    async def unfinished(self) -> Sequence[Task]:
        return await self._board.unfinished()

    async def look(self) -> Mapping[TaskId, Task]:
        return await self._board.look()

    async def update(self, task: TaskId, change: Change, *, by: AgentName) -> tuple[Task, Task]:
        async with self._changing():
            before, after = await self._board.update(task, change, by=by)
            if change.status == "deleted":
                self._tell_gone(task)
            else:
                self._tell(after)
            if change.add_blocks or change.status == "deleted":
                self._tell_these((*change.add_blocks, *before.blocks))
        return before, after

    async def claim(self, task: TaskId, *, by: AgentName) -> Claim:
        async with self._changing():
            claim = await self._board.claim(task, by=by)
            self._tell_claim(claim)
        return claim

    async def claim_next(self, *, by: AgentName) -> Claim | None:
        async with self._changing():
            claim = await self._board.claim_next(by=by)
            self._tell_claim(claim)
        return claim

    async def reclaim(self, owner: AgentName) -> tuple[TaskId, ...]:
        async with self._changing():
            held = await self._board.reclaim(owner)
            self._tell_these(held)
        return held

    async def release(self, task: TaskId, *, attempt: str) -> bool:
        async with self._changing():
            released = await self._board.release(task, attempt=attempt)
            self._tell_these((task,))
        return released

    async def release_all(self, owner: AgentName) -> tuple[TaskId, ...]:
        async with self._changing():
            released = await self._board.release_all(owner)
            self._tell_these(released)
        return released

    async def delete(self, task: TaskId) -> None:
        async with self._changing():
            before = self._board.glance().get(task)
            await self._board.delete(task)
            self._tell_gone(task)
            self._tell_these(() if before is None else before.blocks)

    async def wait_claimable(self) -> None:
        await self._board.wait_claimable()

    async def aclose(self) -> None:
        self._closed = True
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
        if self._due is not None:
            self._due.cancel()
        await self._board.aclose()

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Suspend the check of the directory: a change through this board is journaled by its method."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self.follow()

    def follow(self) -> None:
        """Watch for changes by other processes, if the board exists."""
        if self._watch is None and not self._closed and self._directory.is_dir():
            self._watch = DirectoryWatch(self._directory, self._changed, anyway=lambda: None, removals=True)
            self._changed()

    def _changed(self) -> None:
        if self._due is None and not self._closed:
            self._due = asyncio.get_running_loop().call_later(SOON, self._look)

    def _look(self) -> None:
        self._due = None
        if self._under_way:
            self._changed()
            return
        with suppress(ShoalError):  # an unreadable board is checked again with its next change
            tasks = self._board.glance()
            touched = self._board.touched()
            if touched is None:
                touched = {*tasks, *self._told}
            for ident in sorted({*touched, *self._untold}, key=int):
                if (task := tasks.get(ident)) is not None:
                    self._tell(task)
                else:
                    self._tell_gone(ident)

    def _tell_these(self, tasks: Iterable[TaskId]) -> None:
        board = self._board.glance()
        for ident in dict.fromkeys(tasks):
            if (task := board.get(ident)) is not None:
                self._tell(task)

    def _tell_claim(self, claim: Claim | None) -> None:
        if claim is not None and claim.success and claim.task is not None:
            self._tell(claim.task)

    def _tell(self, task: Task) -> None:
        event = TaskChanged(
            agent=LEAD,
            board=self._name,
            task=task.id,
            subject=task.subject,
            status=task.status,
            owner=task.owner or "",
            blocked_by=task.blocked_by,
            rank=task.rank,
        )
        if self._told.get(task.id) == event:
            self._untold.discard(task.id)
        elif self._told_of(task.id, event):
            self._told[task.id] = event

    def _tell_gone(self, task: TaskId) -> None:
        told = self._told.get(task)
        if told is None:
            self._untold.discard(task)
        elif self._told_of(task, replace(told, status="deleted", blocked_by=(), rank=None)):
            del self._told[task]

    def _told_of(self, task: TaskId, event: TaskChanged) -> bool:
        # The change is valid even if the journal is full.
        try:
            self._emit(event)
        except StoreError:
            self._untold.add(task)
            return False
        self._untold.discard(task)
        return True
