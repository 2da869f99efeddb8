"""Locks of one task board: one for the whole list, one for each task."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from shoal.core.errors import LockUnavailable
from shoal.core.names import TaskId
from shoal.stores.files.below_home import inside
from shoal.stores.files.foreign_lock import ForeignLock
from shoal.stores.files.handles import Directory
from shoal.stores.files.record_locks import PATIENCE, OwnLock, RecordLock

SLOTS = 64
"""Tasks whose numbers are equal modulo this share a flock; other programs see one lock per task."""
_LIST = ".lock"


def slot_of(task: TaskId) -> int:
    return int(task) % SLOTS


class BoardLocks:
    """The list lock guards creation, removal and dependencies of tasks; a task lock every write of its file.

    Claims need only the task lock, so claims of different tasks do not wait for each other. Code that needs
    both takes the list lock first, and task locks in the order of their slots.
    """

    def __init__(self, home: Path, name: str, *, patience: float = PATIENCE) -> None:
        self._home = home
        self._name = name
        self._patience = patience
        self._own: Directory | None = None
        self._beside: Directory | None = None
        self._list: RecordLock | None = None
        self._slots: dict[int, OwnLock] = {}

    def close(self) -> None:
        if self._own is not None:
            self._own.close()
        self._own = self._beside = self._list = None
        self._slots.clear()

    @asynccontextmanager
    async def board(self, directory: Directory) -> AsyncIterator[None]:
        """Hold the list lock; `directory` holds the task files."""
        own = self._opened(directory)
        if self._list is None:
            self._list = RecordLock(own, "list", beside=directory, file=_LIST, patience=self._patience)
        async with self._list:
            yield

    @asynccontextmanager
    async def tasks(self, directory: Directory, tasks: Iterable[TaskId]) -> AsyncIterator[None]:
        """Hold the locks of these tasks; read the files only inside."""
        self._opened(directory)
        by_slot: dict[int, list[TaskId]] = {}
        for task in sorted(set(tasks), key=int):
            by_slot.setdefault(slot_of(task), []).append(task)
        async with AsyncExitStack() as leave:
            for slot, those in sorted(by_slot.items()):
                own = await leave.enter_async_context(self._slot(slot))
                for task in those:
                    await self._take(task, own.deadline, leave)
            yield

    @asynccontextmanager
    async def free_task(self, directory: Directory, task: TaskId) -> AsyncIterator[bool]:
        """Lock one task without waiting; yield False if it is locked or another program changes the list."""
        self._opened(directory)
        slot = self._slot(slot_of(task))
        if directory.status(f"{_LIST}.lock") is not None or not await slot.take_now():
            yield False
            return
        async with AsyncExitStack() as leave:
            leave.push_async_exit(slot)
            try:
                await self._take(task, 0.0, leave)
            except LockUnavailable:
                yield False
            else:
                yield True

    async def _take(self, task: TaskId, deadline: float, leave: AsyncExitStack) -> None:
        assert self._beside is not None
        assert self._own is not None
        # One spare per flock: with a shared spare, lock directories would have to be created and removed.
        spare = f"spare-of-slot-{slot_of(task)}"
        lock = ForeignLock(self._beside, f"{task}.json", self._own, spare=spare)
        await lock.take(deadline)
        leave.callback(lock.release)

    def _slot(self, number: int) -> OwnLock:
        assert self._own is not None
        if number not in self._slots:
            self._slots[number] = OwnLock(self._own, f"slot-{number}", patience=self._patience)
        return self._slots[number]

    def _opened(self, directory: Directory) -> Directory:
        if self._own is None or self._own.gone or self._beside is not directory:
            self.close()
            self._own = inside(self._home, "shoal", "tasks", self._name)
            self._beside = directory
        return self._own
