"""Files of one task board, with an index that is refreshed on access."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from shoal.core.errors import StoreError
from shoal.core.names import TaskId
from shoal.core.tasks import Task
from shoal.stores.files.below_home import found_inside, inside
from shoal.stores.files.board_index import BoardIndex
from shoal.stores.files.board_locks import slot_of
from shoal.stores.files.handles import Directory, read_from
from shoal.stores.files.inotify import Notices
from shoal.stores.files.news import news_of
from shoal.stores.files.reporting import Report
from shoal.wire.foreign import Invalid
from shoal.wire.tasks import TaskFile, read_task, task_bytes

WATERMARK = ".highwatermark"
SETTLED = 1.0
"""Seconds during which an unreadable file may still be in the middle of a write."""
_ABANDONED = 60.0
_FILE = re.compile(r"[1-9][0-9]{0,17}\.json")
_TEMPORARY = re.compile(r"\..{1,60}\.tmp\.[0-9a-f]{8}")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 16
Key = tuple[int, int, int]


class TaskFiles:
    """Reading costs nothing while nothing changed: the kernel reports changed files. Without its events, all
    files are checked by size, time and inode."""

    def __init__(self, home: Path, name: str, report: Report) -> None:
        self._home = home
        self._name = name
        self._report = report
        self._directory: Directory | None = None
        self._staging: Directory | None = None
        self._news: Notices | None = None
        self._keys: dict[str, Key] = {}
        """File stamps by name; empty if the kernel reports changes, because they are not needed then."""
        self._unsure: set[TaskId] = set()
        self._highest = 0
        self.index = BoardIndex()

    @property
    def directory(self) -> Directory:
        """Directory of the task files, created if missing."""
        if self._directory is None or self._directory.gone:
            self.close()
            self._directory = inside(self._home, "tasks", self._name)
            self._touch_lock()
            self._begin()
        assert self._directory is not None
        return self._directory

    @property
    def news(self) -> Notices | None:
        return self._news

    def close(self) -> None:
        for part in (self._directory, self._staging, self._news):
            if part is not None:
                part.close()
        self._directory = self._staging = self._news = None
        self._keys.clear()
        self._unsure.clear()
        self._highest = 0
        self.index.clear()

    def look(self) -> BoardIndex:
        """Return the current board."""
        if self._directory is None or self._directory.gone:
            self.close()
            self._directory = found_inside(self._home, "tasks", self._name)
            if self._directory is None:
                return self.index
            self._begin()
            return self.index
        names = None if self._news is None else self._news.taken()
        if names is None:
            self._scan()
        elif names or self._unsure:
            self._reread({*names, *(f"{task}.json" for task in self._unsure)})
        return self.index

    def is_unsure(self, task: TaskId) -> bool:
        """Return True if the task has a file that could not be read, so its state is unknown."""
        return task in self._unsure

    def fresh(self, task: TaskId) -> TaskFile | None:
        """Read the task from its file now; return None if it is absent."""
        read = self._reread_one(task, f"{task}.json")
        self.index.check((task,))
        return read

    def is_gone(self, task: TaskId) -> bool:
        """Return True if the task was deleted; an unreadable file does not count as deleted."""
        found = self._read(f"{task}.json")
        return found is None or read_task(found[0], task) is None

    def changed_at(self, task: TaskId) -> float:
        """Return the Unix time of the last write."""
        status = self.directory.status(f"{task}.json")
        return 0.0 if status is None else status.st_mtime

    def write(self, before: TaskFile, after: Task) -> None:
        """Write the task; the caller holds its lock, which also guards the staging file."""
        name, staged = f"{after.id}.json", f"slot-{slot_of(after.id)}.json"
        if self._staging is None or self._staging.gone:
            self._staging = inside(self._home, "shoal", "tasks", self._name, "staging")
        self._staging.write_again(staged, before.rewritten(after))
        self._staging.swap(staged, self.directory, name)
        self._take_in(after)

    def create(self, task: Task) -> bool:
        """Create the file; return False if another program created it meanwhile."""
        if not self.directory.create(f"{task.id}.json", task_bytes(task)):
            return False
        self._take_in(task)
        return True

    def remove(self, task: TaskId) -> None:
        self.directory.remove(f"{task}.json")
        self._keys.pop(f"{task}.json", None)
        self._unsure.discard(task)
        self.index.drop(task)
        self.index.check((task,))

    def highest(self) -> int:
        """Return the highest id that is or was in use."""
        content = (self.directory.read(WATERMARK) or b"").strip()
        return max(self._highest, int(content) if content.isdigit() and len(content) < 19 else 0)

    def keep_highest(self, number: int) -> None:
        self.directory.replace(WATERMARK, str(number).encode())
        self._highest = max(self._highest, number)

    def clear_abandoned(self) -> None:
        """Remove partial files of writers that were killed."""
        for name in self.directory.names():
            if _TEMPORARY.fullmatch(name) is not None:
                status = self.directory.status(name)
                if status is not None and time.time() - status.st_mtime > _ABANDONED:
                    self.directory.remove(name)

    def _begin(self) -> None:
        assert self._directory is not None
        # The watch first: changes during the scan are reported after it.
        self._news = news_of(self._directory.fd)
        self._scan()

    def _touch_lock(self) -> None:
        """Create the empty file that other programs lock."""
        assert self._directory is not None
        os.close(self._directory.open(".lock", os.O_WRONLY | os.O_CREAT))

    def _scan(self) -> None:
        assert self._directory is not None
        names = set(filter(_FILE.fullmatch, self._directory.names()))
        changed = {name for name in names if self._is_changed(name)}
        known = self._keys.keys() | {f"{task}.json" for task in (*self.index.tasks, *self._unsure)}
        self._reread(changed | (known - names))

    def _reread(self, names: Iterable[str]) -> None:
        """Read the files again in the order of their numbers, which is cheapest for the index."""
        changed = [TaskId(name[:-5]) for name in names if _FILE.fullmatch(name)]
        changed.sort(key=int)
        for task in changed:
            self._reread_one(task, f"{task}.json")
        self.index.check(changed)

    def _reread_one(self, task: TaskId, name: str) -> TaskFile | None:
        found = self._read(name)
        if found is None:
            self._keys.pop(name, None)
            self._unsure.discard(task)
            self.index.drop(task)
            return None
        content, key = found
        self._highest = max(self._highest, int(task))
        if key is not None:
            self._keys[name] = key
        read = read_task(content, task)
        if isinstance(read, TaskFile):
            self._unsure.discard(task)
            self.index.put(read.task)
            return read
        if read is None:
            self.index.drop(task)
        else:
            self._invalid(task, name, read)
        return None

    def _invalid(self, task: TaskId, name: str, why: Invalid) -> None:
        # Other programs write in place, so a partial file is normal for a moment: the old state is kept.
        if time.time() - self.changed_at(task) < SETTLED:
            self._unsure.add(task)
            return
        self._unsure.discard(task)
        self.index.drop(task)
        self._report(
            f"{self._home / 'tasks' / self._name / name} is no task and is passed over: {why.reason}."
        )

    def _take_in(self, task: Task) -> None:
        """Index a task that we wrote. Its file event arrives later and finds the same content."""
        self._keys.pop(f"{task.id}.json", None)
        self.index.put(task)
        self.index.check((task.id,))

    def _is_changed(self, name: str) -> bool:
        key = self._keys.get(name)
        if key is None:
            return True
        assert self._directory is not None
        status = self._directory.status(name)
        return status is None or key != _key_of(status)

    def _read(self, name: str) -> tuple[bytes, Key | None] | None:
        # Inlined, because a board is thousands of small files: one call less matters.
        assert self._directory is not None
        try:
            fd = os.open(name, _READ, dir_fd=self._directory.fd)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):
                return None
            raise self._unreadable(name, error) from error
        try:
            key = None if self._news is not None else _key_of(os.fstat(fd))
            content = os.read(fd, _CHUNK)
            if len(content) == _CHUNK:
                content += read_from(fd, _CHUNK)
        except OSError as error:
            if error.errno in (errno.EISDIR, errno.EAGAIN):
                return None
            raise self._unreadable(name, error) from error
        finally:
            os.close(fd)
        return content, key

    def _unreadable(self, name: str, error: OSError) -> StoreError:
        path = self._home / "tasks" / self._name / name
        return StoreError(f"{path} cannot be read: {error.strerror or error}.", path=path)


def _key_of(status: os.stat_result) -> Key:
    return (status.st_mtime_ns, status.st_size, status.st_ino)
