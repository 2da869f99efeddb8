"""The locks of one board: one for the list as a whole, one for each task."""

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
"""Tasks whose numbers agree modulo this share a flock; what other programs see is a lock for each."""
_LIST = ".lock"


def slot_of(task: TaskId) -> int:
    return int(task) % SLOTS


class BoardLocks:
    """The list's lock is for what makes, removes or relates tasks; a task's own for every write of its file.

    Claims need only the second, so those of different tasks do not wait for each other. Who needs both takes
    the list's first, and tasks in the order of their slots.
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
        """`directory` holds the tasks."""
        own = self._opened(directory)
        if self._list is None:
            self._list = RecordLock(own, "list", beside=directory, file=_LIST, patience=self._patience)
        async with self._list:
            yield

    @asynccontextmanager
    async def tasks(self, directory: Directory, tasks: Iterable[TaskId]) -> AsyncIterator[None]:
        """What the files hold is to be read inside."""
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
        """As `tasks`, but False at once where somebody has it, or another program is changing the list."""
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
        # A spare for each flock: two who share one would have to make and remove directories.
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
