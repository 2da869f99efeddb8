"""The locks of one board: the board's own, and those of its files that other programs take."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from shoal.core.names import TaskId
from shoal.stores.files.below_home import inside
from shoal.stores.files.foreign_lock import ForeignLock
from shoal.stores.files.handles import Directory
from shoal.stores.files.record_locks import PATIENCE, RecordLock


class BoardLocks:
    """Our processes queue for the board as a whole. Other programs lock the list for some changes and a task
    for others: we hold both while we write, so that either kind is kept out."""

    def __init__(self, home: Path, name: str, *, patience: float = PATIENCE) -> None:
        self._home = home
        self._name = name
        self._patience = patience
        self._places: Directory | None = None
        self._lock: RecordLock | None = None
        self._beside: Directory | None = None

    def close(self) -> None:
        if self._places is not None:
            self._places.close()
        self._places = self._lock = self._beside = None

    @asynccontextmanager
    async def board(self, directory: Directory) -> AsyncIterator[None]:
        """`directory` holds the tasks."""
        if self._lock is None or self._beside is not directory or self._places is None or self._places.gone:
            self.close()
            self._places = inside(self._home, "shoal", "tasks", self._name)
            self._beside = directory
            self._lock = RecordLock(
                self._places, "lock", beside=directory, file=".lock", patience=self._patience
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
        assert self._places is not None
        assert self._beside is not None
        lock = ForeignLock(self._beside, f"{task}.json", self._places)
        await lock.take(self._lock.own.deadline)
        leave.callback(lock.release)
