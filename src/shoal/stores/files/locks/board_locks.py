"""Locks of one task board: one for the whole list, one for each task."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
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

    @asynccontextmanager
    async def lock_tasks(self, directory: DirectoryHandle, tasks: Iterable[TaskId]) -> AsyncIterator[None]:
        """Hold the locks of these tasks; read the files only inside."""
        self._open_lock_directory(directory)
        by_slot: dict[int, list[TaskId]] = {}
        for task in sorted(set(tasks), key=int):
            by_slot.setdefault(get_task_lock_slot(task), []).append(task)
        directory_flock = self._directory_flock
        assert directory_flock is not None
        async with AsyncExitStack() as exit_stack:
            await directory_flock.acquire(time.monotonic() + self._timeout)
            exit_stack.callback(directory_flock.release)
            for slot, slot_tasks in sorted(by_slot.items()):
                slot_lock = await exit_stack.enter_async_context(self._get_slot_lock(slot))
                for task in slot_tasks:
                    await self._acquire_foreign_task_lock(task, slot_lock.deadline, exit_stack)
            yield

    @asynccontextmanager
    async def lock_directory(self, directory: DirectoryHandle) -> AsyncIterator[None]:
        """Hold the flock of the directory, so that no other process starts to change tasks."""
        self._open_lock_directory(directory)
        directory_flock = self._directory_flock
        assert directory_flock is not None
        await directory_flock.acquire(time.monotonic() + self._timeout)
        try:
            yield
        finally:
            directory_flock.release()

    @asynccontextmanager
    async def try_lock_task(self, directory: DirectoryHandle, task: TaskId) -> AsyncIterator[bool]:
        """Lock one task without waiting; yield False if it is locked or another program changes the list."""
        self._open_lock_directory(directory)
        slot_lock = self._get_slot_lock(get_task_lock_slot(task))
        directory_flock = self._directory_flock
        assert directory_flock is not None
        async with AsyncExitStack() as exit_stack:
            if (
                directory.get_entry_stat(f"{_BOARD_LOCK_FILE}.lock") is not None
                or not directory_flock.try_acquire()
            ):
                yield False
                return
            exit_stack.callback(directory_flock.release)
            if not await slot_lock.try_acquire():
                yield False
                return
            exit_stack.push_async_exit(slot_lock)
            try:
                await self._acquire_foreign_task_lock(task, 0.0, exit_stack)
            except LockUnavailable:
                yield False
            else:
                yield True

    async def _acquire_foreign_task_lock(
        self, task: TaskId, deadline: float, exit_stack: AsyncExitStack
    ) -> None:
        assert self._task_directory is not None
        assert self._lock_directory is not None
        # One spare per flock: with a shared spare, lock directories would have to be created and removed.
        spare_name = f"spare-of-slot-{get_task_lock_slot(task)}"
        lock = ForeignProgramLock(
            self._task_directory, f"{task}.json", self._lock_directory, spare=spare_name
        )
        await lock.acquire(deadline)
        exit_stack.callback(lock.release)

    def _get_slot_lock(self, number: int) -> AsyncFlock:
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
