"""The locks of one board: the board's own, and those of its files that other programs take."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from shoal.core.names import TaskId
from shoal.stores.files.below_home import inside
from shoal.stores.files.foreign_lock import ForeignLock
from shoal.stores.files.handles import Directory
from shoal.stores.files.record_locks import PATIENCE, RecordLock
from shoal.stores.files.spare import Spare

_NOTES = 32
"""Files in which the holder of a task's foreign lock notes it, for the one who comes after a death."""


class BoardLocks:
    """Our processes queue for the board as a whole. Other programs lock the list for some changes and a task
    for others: we hold both while we write, so that either kind is kept out."""

    def __init__(self, home: Path, name: str, *, patience: float = PATIENCE) -> None:
        self._home = home
        self._name = name
        self._patience = patience
        self._notes: Directory | None = None
        self._lock: RecordLock | None = None
        self._beside: Directory | None = None

    def close(self) -> None:
        if self._notes is not None:
            self._notes.close()
        self._notes = self._lock = self._beside = None

    @asynccontextmanager
    async def board(self, directory: Directory) -> AsyncIterator[None]:
        """`directory` holds the tasks."""
        if self._lock is None or self._beside is not directory or self._notes is None or self._notes.gone:
            self.close()
            self._notes = inside(self._home, "shoal", "tasks", self._name)
            self._beside = directory
            self._lock = RecordLock(
                self._notes, "lock", beside=directory, file=".lock", patience=self._patience
            )
        async with self._lock:
            yield

    @asynccontextmanager
    async def tasks(self, tasks: Iterable[TaskId]) -> AsyncIterator[None]:
        """To be entered while the board is held; what they hold is to be read after that."""
        assert self._lock is not None
        async with AsyncExitStack() as leave:
            for task in sorted(set(tasks), key=int):
                await self._take(task, leave)
            yield

    async def _take(self, task: TaskId, leave: AsyncExitStack) -> None:
        assert self._lock is not None
        assert self._notes is not None
        assert self._beside is not None
        slot = f"note-{int(task) % _NOTES}"
        note = self._notes.open(slot, os.O_RDWR | os.O_CREAT)
        leave.callback(os.close, note)
        lock = ForeignLock(self._beside, f"{task}.json", Spare(self._notes, f"{slot}.spare"))
        await lock.take(note, self._lock.own.deadline)
        leave.callback(lock.release)
