"""Files of one task board, with an index that is refreshed on access."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.core.errors import StateFileError
from shoal.core.names import TaskId
from shoal.core.teams.tasks import Task
from shoal.stores.files.access.directory_handle import DirectoryHandle, read_fd_from_offset
from shoal.stores.files.access.inotify import InotifyDirectoryWatch, watch_directory_with_inotify
from shoal.stores.files.access.partial_writes import WRITE_GRACE
from shoal.stores.files.access.problem_reporter import ProblemReporter
from shoal.stores.files.board.board_index import TaskBoardIndex
from shoal.stores.files.home.home_directories import (
    open_existing_home_subdirectory,
    open_or_create_home_subdirectory,
)
from shoal.stores.files.locks.board_locks import get_task_lock_slot
from shoal.wire.foreign_json import InvalidFileContent
from shoal.wire.task_codec import ParsedTaskFile, encode_new_task, parse_task

WATERMARK = ".highwatermark"
_ABANDONED_AFTER = 60.0
_TASK_FILE_NAME = re.compile(r"[1-9][0-9]{0,17}\.json")
_TEMPORARY_FILE_NAME = re.compile(r"\..{1,60}\.tmp\.[0-9a-f]{8}")
_OTHER_ENTRIES = {errno.ELOOP: "a link", errno.ENXIO: "a socket"}
"""Entries of the directory that are not files, by the error of opening them."""
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 16
FileStamp = tuple[int, int, int]


def watch_directory_fd(directory: int) -> InotifyDirectoryWatch | None:
    """Watch an open directory for files that are written, moved or removed."""
    return watch_directory_with_inotify(
        f"/proc/self/fd/{directory}", _select_inotify_change_flags, skips_locks=True
    )


def _select_inotify_change_flags(flags: Any) -> Any:
    # Not MODIFY: a program that writes in place is reported when it has finished.
    moved = flags.MOVED_TO | flags.MOVED_FROM
    return flags.CLOSE_WRITE | flags.CREATE | moved | flags.DELETE | flags.ONLYDIR


class TaskFiles:
    """Reading costs nothing while nothing changed: the kernel reports changed files. Without its events, all
    files are checked by size, time and inode."""

    def __init__(
        self, home: Path, name: str, report_problem: ProblemReporter, *, durable: bool = False
    ) -> None:
        self._home = home
        self._name = name
        self._durable = durable
        self._report_problem = report_problem
        self._directory: DirectoryHandle | None = None
        self._staging: DirectoryHandle | None = None
        self._change_events: InotifyDirectoryWatch | None = None
        self._stamps: dict[str, FileStamp] = {}
        """File stamps by name; empty if the kernel reports changes, because they are not needed then."""
        self._unreadable_ids: set[TaskId] = set()
        self._is_scan_due = False
        """True after a read that failed: the file events that it took do not come again."""
        self._written_files: dict[TaskId, ParsedTaskFile] = {}
        """Files that we wrote last and still expect to read: equal bytes are not parsed again."""
        self._highest_id = 0
        self.index = TaskBoardIndex()

    @property
    def directory(self) -> DirectoryHandle:
        """Directory of the task files, created if missing."""
        if self._directory is None or self._directory.is_removed:
            self.close()
            self._directory = open_or_create_home_subdirectory(
                self._home, "tasks", self._name, durable=self._durable
            )
            self._create_foreign_lock_file()
            self._start_watching()
        assert self._directory is not None
        return self._directory

    @property
    def change_events(self) -> InotifyDirectoryWatch | None:
        return self._change_events

    def close(self) -> None:
        for part in (self._directory, self._staging, self._change_events):
            if part is not None:
                part.close()
        self._directory = self._staging = self._change_events = None
        self._stamps.clear()
        self._unreadable_ids.clear()
        self._written_files.clear()
        self._highest_id = 0
        self.index.clear()

    def refresh_board_index(self) -> TaskBoardIndex:
        """Return the current board."""
        if self._directory is None or self._directory.is_removed:
            self.close()
            self._directory = open_existing_home_subdirectory(
                self._home, "tasks", self._name, durable=self._durable
            )
            if self._directory is None:
                return self.index
            self._start_watching()
            return self.index
        names = None
        if self._change_events is not None and not self._is_scan_due:
            names = self._change_events.take_changed_names()
        if names is None:
            self._reread_changed_task_files()
        elif names or self._unreadable_ids:
            self._reread_task_files({*names, *(f"{task}.json" for task in self._unreadable_ids)})
        return self.index

    def is_unreadable(self, task: TaskId) -> bool:
        """Return True if the task has a file that could not be read, so its state is unknown."""
        return task in self._unreadable_ids

    def reread_task(self, task: TaskId) -> ParsedTaskFile | None:
        """Read the task from its file now; return None if it is absent."""
        task_file = self._reread_task_file(task, f"{task}.json")
        self.index.record_one_sided_dependencies()
        return task_file

    def is_deleted(self, task: TaskId) -> bool:
        """Return True if the task was deleted; an unreadable file does not count as deleted."""
        found = self._read_task_file(f"{task}.json")
        return found is None or parse_task(found[0], task) is None

    def get_task_write_time(self, task: TaskId) -> float:
        """Return the Unix time of the last write."""
        status = self.directory.get_entry_stat(f"{task}.json")
        return 0.0 if status is None else status.st_mtime

    def write(self, before: ParsedTaskFile, after: Task) -> None:
        """Write the task; the caller holds its lock, which also guards the staging file."""
        name, staged_name = f"{after.id}.json", f"slot-{get_task_lock_slot(after.id)}.json"
        if self._staging is None or self._staging.is_removed:
            self._staging = open_or_create_home_subdirectory(
                self._home, "shoal", "tasks", self._name, "staging", durable=self._durable
            )
        content = before.encode_task(after)
        self._staging.rewrite_unshared_or_recreate_file(staged_name, content)
        self._staging.swap_or_move_file(staged_name, self.directory, name)
        if all(type(value) is str for value in after.metadata.values()):
            # Other values may be different after they were encoded and parsed.
            self._written_files[after.id] = ParsedTaskFile(task=after, content=content)
        self._index_written_task(after)

    def create(self, task: Task) -> bool:
        """Create the file; return False if another program created it meanwhile."""
        if not self.directory.create_file_if_missing(f"{task.id}.json", encode_new_task(task)):
            return False
        self._index_written_task(task)
        return True

    def remove(self, task: TaskId) -> None:
        self.directory.remove_file(f"{task}.json")
        self._stamps.pop(f"{task}.json", None)
        self._unreadable_ids.discard(task)
        self.index.drop_task(task)
        self.index.record_one_sided_dependencies()

    def get_highest_task_id(self) -> int:
        """Return the highest id that is or was in use."""
        content = (self.directory.read_file(WATERMARK) or b"").strip()
        return max(self._highest_id, int(content) if content.isdigit() and len(content) < 19 else 0)

    def store_highest_task_id(self, number: int) -> None:
        self.directory.replace_file(WATERMARK, str(number).encode())
        self._highest_id = max(self._highest_id, number)

    def remove_abandoned_files(self) -> None:
        """Remove partial files of writers that were killed."""
        for name in self.directory.list_names():
            if _TEMPORARY_FILE_NAME.fullmatch(name) is not None:
                status = self.directory.get_entry_stat(name)
                if status is not None and time.time() - status.st_mtime > _ABANDONED_AFTER:
                    self.directory.remove_temporary_file(name)

    def _start_watching(self) -> None:
        assert self._directory is not None
        # The watch first: changes during the scan are reported after it.
        self._change_events = watch_directory_fd(self._directory.fd)
        self._reread_changed_task_files()

    def _create_foreign_lock_file(self) -> None:
        """Create the empty file that other programs lock."""
        assert self._directory is not None
        os.close(self._directory.open_file(".lock", os.O_WRONLY | os.O_CREAT))

    def _reread_changed_task_files(self) -> None:
        assert self._directory is not None
        self._is_scan_due = True
        names = set(filter(_TASK_FILE_NAME.fullmatch, self._directory.list_names()))
        changed = {name for name in names if self._is_task_file_changed(name)}
        known_names = self._stamps.keys() | {
            f"{task}.json" for task in (*self.index.tasks, *self._unreadable_ids)
        }
        self._reread_task_files(changed | (known_names - names))

    def _reread_task_files(self, names: Iterable[str]) -> None:
        """Read the files again in the order of their numbers, which is cheapest for the index."""
        changed = [TaskId(name[:-5]) for name in names if _TASK_FILE_NAME.fullmatch(name)]
        changed.sort(key=int)
        self._is_scan_due = True
        for task in changed:
            self._reread_task_file(task, f"{task}.json")
        self._is_scan_due = False
        self.index.record_one_sided_dependencies()

    def _reread_task_file(self, task: TaskId, name: str) -> ParsedTaskFile | None:
        found = self._read_task_file(name)
        if found is None:
            self._stamps.pop(name, None)
            self._written_files.pop(task, None)
            self._unreadable_ids.discard(task)
            self.index.drop_task(task)
            return None
        content, key = found
        self._highest_id = max(self._highest_id, int(task))
        if key is not None:
            self._stamps[name] = key
        written = self._written_files.get(task)
        if written is not None:
            is_own = written.content == content
            if not is_own or written.task.status == "completed":
                # A completed task is read only once more, for the event of its last change.
                del self._written_files[task]
            if is_own:
                # It was indexed when it was written, and each file with other content ends that.
                return written
        parsed = parse_task(content, task)
        if isinstance(parsed, ParsedTaskFile):
            self._unreadable_ids.discard(task)
            self.index.put_task(parsed.task)
            return parsed
        if parsed is None:
            self.index.drop_task(task)
        else:
            self._handle_invalid_task_file(task, name, parsed)
        return None

    def _handle_invalid_task_file(self, task: TaskId, name: str, problem: InvalidFileContent) -> None:
        # Other programs write in place, so a partial file is normal for a moment: the old state is kept.
        if time.time() - self.get_task_write_time(task) < WRITE_GRACE:
            self._unreadable_ids.add(task)
            return
        self._unreadable_ids.discard(task)
        self.index.drop_task(task)
        self._report_problem(
            f"{self._home / 'tasks' / self._name / name} is not a valid task and is ignored: "
            f"{problem.reason}."
        )

    def _index_written_task(self, task: Task) -> None:
        """Index a task that we wrote. Its file event arrives later and finds the same content."""
        self._stamps.pop(f"{task.id}.json", None)
        self.index.put_task(task)
        self.index.record_one_sided_dependencies()

    def _is_task_file_changed(self, name: str) -> bool:
        key = self._stamps.get(name)
        if key is None:
            return True
        assert self._directory is not None
        status = self._directory.get_entry_stat(name)
        return status is None or key != _get_file_stamp(status)

    def _read_task_file(self, name: str) -> tuple[bytes, FileStamp | None] | None:
        # Inlined, because a board is thousands of small files: one call less matters.
        assert self._directory is not None
        try:
            fd = os.open(name, _READ_FLAGS, dir_fd=self._directory.fd)
        except OSError as error:
            if error.errno in _OTHER_ENTRIES:
                self._report_ignored_entry(name, _OTHER_ENTRIES[error.errno])
                return None
            if error.errno == errno.ENOENT:
                return None
            raise self._build_read_error(name, error) from error
        try:
            key = None if self._change_events is not None else _get_file_stamp(os.fstat(fd))
            content = os.read(fd, _CHUNK)
            if len(content) == _CHUNK:
                content += read_fd_from_offset(fd, _CHUNK)
            if not content and not stat.S_ISREG(os.fstat(fd).st_mode):
                self._report_ignored_entry(name, "a pipe")
                return None
        except OSError as error:
            if error.errno in (errno.EISDIR, errno.EAGAIN):
                self._report_ignored_entry(name, "a directory" if error.errno == errno.EISDIR else "a pipe")
                return None
            raise self._build_read_error(name, error) from error
        finally:
            os.close(fd)
        return content, key

    def _report_ignored_entry(self, name: str, kind: str) -> None:
        self._report_problem(
            f"{self._home / 'tasks' / self._name / name} is {kind} and not a task, so it is ignored. "
            "The task is lost unless you restore its file."
        )

    def _build_read_error(self, name: str, error: OSError) -> StateFileError:
        path = self._home / "tasks" / self._name / name
        return StateFileError(f"Cannot read {path}: {error.strerror or error}.", path=path)


def _get_file_stamp(status: os.stat_result) -> FileStamp:
    return (status.st_mtime_ns, status.st_size, status.st_ino)
