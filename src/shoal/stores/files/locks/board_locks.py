"""Locks of one task board: one for the whole list, one for each task."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from shoal.core.errors import LockUnavailable
from shoal.core.names import TaskId
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.home.home_directories import open_or_create_home_subdirectory
from shoal.stores.files.locks.directory_flock import SharedDirectoryFlock
from shoal.stores.files.locks.foreign_lock import ForeignProgramLock
from shoal.stores.files.locks.shared_file_lock import LOCK_TIMEOUT, AsyncFlock, SharedFileLock

LOCK_SLOTS = 64
"""Tasks whose numbers are equal modulo this share a flock; other programs see one lock per task."""
_BOARD_LOCK_FILE = ".lock"


def get_task_lock_slot(task: TaskId) -> int:
    return int(task) % LOCK_SLOTS


def _get_lock_order(task: TaskId) -> tuple[int, int]:
    return get_task_lock_slot(task), int(task)


class HeldTaskLocks:
    """Locks of some tasks. Written without an exit stack: each claim and each change takes them."""

    __slots__ = ("_directory", "_directory_flock", "_foreign_locks", "_locks", "_slot_locks", "_tasks")

    def __init__(self, locks: TaskBoardLocks, directory: DirectoryHandle, tasks: Sequence[TaskId]) -> None:
        """`tasks` are in the order of their slots."""
        self._locks = locks
        self._directory = directory
        self._tasks = tasks
        self._directory_flock: SharedDirectoryFlock | None = None
        self._slot_locks: dict[int, AsyncFlock] = {}
        self._foreign_locks: list[ForeignProgramLock] = []

    async def __aenter__(self) -> None:
        flock = self._locks.get_directory_flock(self._directory)
        await flock.acquire(self._locks.compute_deadline())
        self._directory_flock = flock
        try:
            for task in self._tasks:
                slot = get_task_lock_slot(task)
                if slot not in self._slot_locks:
                    self._slot_locks[slot] = await self._locks.get_slot_lock(slot).__aenter__()
                await self._acquire_foreign_lock(task, self._slot_locks[slot].deadline)
        except BaseException:
            self.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.release()

    async def try_acquire(self) -> bool:
        """Take the locks if they are free, without waiting."""
        flock = self._locks.get_directory_flock(self._directory)
        if not flock.try_acquire():
            return False
        self._directory_flock = flock
        try:
            for task in self._tasks:
                slot = get_task_lock_slot(task)
                slot_lock = self._locks.get_slot_lock(slot)
                if not await slot_lock.try_acquire():
                    self.release()
                    return False
                self._slot_locks[slot] = slot_lock
                await self._acquire_foreign_lock(task, 0.0)
        except LockUnavailable:
            self.release()
            return False
        except BaseException:
            self.release()
            raise
        return True

    def release(self) -> None:
        try:
            for lock in self._foreign_locks:
                lock.release()
        finally:
            self._foreign_locks.clear()
            for slot_lock in self._slot_locks.values():
                slot_lock.release()
            self._slot_locks.clear()
            if self._directory_flock is not None:
                self._directory_flock.release()
                self._directory_flock = None

    async def _acquire_foreign_lock(self, task: TaskId, deadline: float) -> None:
        lock = self._locks.build_foreign_task_lock(task)
        # Nothing awaits after the last lock is taken.
        await lock.acquire(deadline, is_brief=task == self._tasks[-1])
        self._foreign_locks.append(lock)


class TaskBoardLocks:
    """The list lock guards creation, removal and dependencies of tasks; a task lock every write of its file.

    Claims need only the task lock, so claims of different tasks do not wait for each other. Code that needs
    both takes the list lock first, and task locks in the order of their slots.
    """

    def __init__(self, home: Path, name: str, *, timeout: float = LOCK_TIMEOUT) -> None:
        self._home = home
        self._name = name
        self._timeout = timeout
        self._lock_directory: DirectoryHandle | None = None
        self._task_directory: DirectoryHandle | None = None
        self._board_lock: SharedFileLock | None = None
        self._slot_locks: dict[int, AsyncFlock] = {}
        self._directory_flock: SharedDirectoryFlock | None = None
        """Taken before task locks: a process that waits for a task lock would block their holder with it."""

    def close(self) -> None:
        if self._lock_directory is not None:
            self._lock_directory.close()
        self._lock_directory = self._task_directory = self._board_lock = None
        self._slot_locks.clear()
        self._directory_flock = None

    @asynccontextmanager
    async def lock_board(self, directory: DirectoryHandle) -> AsyncIterator[None]:
        """Hold the list lock; `directory` holds the task files."""
        lock_directory = self._open_lock_directory(directory)
        if self._board_lock is None:
            self._board_lock = SharedFileLock(
                lock_directory,
                "list",
                directory=directory,
                file=_BOARD_LOCK_FILE,
                timeout=self._timeout,
                directory_flock=self._directory_flock,
            )
        async with self._board_lock:
            yield

    def lock_tasks(self, directory: DirectoryHandle, tasks: Iterable[TaskId]) -> HeldTaskLocks:
        """Return a context that holds the locks of these tasks; read the files only inside, without await."""
        return HeldTaskLocks(self, directory, sorted(set(tasks), key=_get_lock_order))

    async def try_lock_task(self, directory: DirectoryHandle, task: TaskId) -> HeldTaskLocks | None:
        """Lock one task without waiting; return None if it is locked or another program changes the list.

        The caller releases it, and does not await before.
        """
        if directory.has_entry(f"{_BOARD_LOCK_FILE}.lock"):
            return None
        locks = HeldTaskLocks(self, directory, [task])
        return locks if await locks.try_acquire() else None

    def build_foreign_task_lock(self, task: TaskId) -> ForeignProgramLock:
        """Return the lock of the task that other programs see."""
        assert self._task_directory is not None
        assert self._lock_directory is not None
        # One spare per flock: with a shared spare, lock directories would have to be created and removed.
        spare_name = f"spare-of-slot-{get_task_lock_slot(task)}"
        return ForeignProgramLock(
            self._task_directory, f"{task}.json", self._lock_directory, spare=spare_name
        )

    def get_directory_flock(self, directory: DirectoryHandle) -> SharedDirectoryFlock:
        """Return the flock of the directory: while it is held, no other process starts to change tasks."""
        self._open_lock_directory(directory)
        assert self._directory_flock is not None
        return self._directory_flock

    def compute_deadline(self) -> float:
        return time.monotonic() + self._timeout

    def get_slot_lock(self, number: int) -> AsyncFlock:
        assert self._lock_directory is not None
        if number not in self._slot_locks:
            self._slot_locks[number] = AsyncFlock(
                self._lock_directory, f"slot-{number}", timeout=self._timeout
            )
        return self._slot_locks[number]

    def _open_lock_directory(self, directory: DirectoryHandle) -> DirectoryHandle:
        if (
            self._lock_directory is None
            or self._lock_directory.is_removed
            or self._task_directory is not directory
        ):
            self.close()
            self._lock_directory = open_or_create_home_subdirectory(self._home, "shoal", "tasks", self._name)
            self._task_directory = directory
            self._directory_flock = SharedDirectoryFlock(directory)
        return self._lock_directory
