"""Journal on disk: appended by every process of a run, read by offset by everyone else."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from shoal.core.clock import Clock
from shoal.core.errors import StateFileError
from shoal.core.events import AgentEnded, JournaledEvent, JournalRecord, SessionEnded, WorktreeWorkRetained
from shoal.core.journal_progress import journal_damage
from shoal.core.ports import JournalState
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR, SecretRedactor
from shoal.stores.files.access.file_watch import DirectoryWatch
from shoal.stores.files.access.problem_reporter import ProblemReporter, ignore_problem
from shoal.stores.files.home.home_paths import (
    build_write_error,
    open_private_file,
    open_state_file,
    sync_file_data,
    write_all_bytes,
)
from shoal.stores.files.locks.pid_locks import is_pid_lock_free
from shoal.stores.journal_records import parse_journal_records
from shoal.wire.journal_codec import encode_journal_line

S = TypeVar("S", bound=JournalState)
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20
GROWTH_CHECK = 256
_WRITING_SECONDS = 10.0
"""A journal that has not changed for this long is not being written, even if a process works on the run."""
_END_EVENTS = (AgentEnded, WorktreeWorkRetained)


class FileJournal:
    """Journal file; nothing is created before the first event."""

    def __init__(
        self, path: Path, clock: Clock, *, durable: bool = False, secrets: SecretRedactor = KEY_SHAPE_REDACTOR
    ) -> None:
        self.path = path
        self._secrets = secrets
        self._clock = clock
        self._durable = durable
        self._fd: int | None = None
        self._is_torn = False
        self._append_count = 0
        self._growth_listeners: list[Callable[[int], None]] = []
        self._unwritten: deque[bytes] = deque()
        """End events that could not be written yet; they are written before the next event."""

    def add_growth_listener(self, listener: Callable[[int], None]) -> None:
        """Call the listener with the journal's size after every `GROWTH_CHECK` events of this process."""
        self._growth_listeners.append(listener)

    def _notify_growth_listeners(self) -> None:
        for listener in self._growth_listeners:
            listener(self.get_position())

    def append(self, event: JournaledEvent) -> None:
        line = encode_journal_line(event, self._clock.now(), self._secrets)
        try:
            if self._unwritten:
                self._write_unwritten_lines()
            self._append_line(line)
        except StateFileError:
            if isinstance(event, _END_EVENTS):
                self._unwritten.append(line)
            raise
        # Not written again if this fails: the event is in the file, and the next flush includes it.
        self._flush_if_durable()
        self._append_count += 1
        if not self._append_count % GROWTH_CHECK:
            self._notify_growth_listeners()

    def append_all(self, events: Sequence[JournaledEvent]) -> None:
        for event in events:
            self.append(event)

    def _write_unwritten_lines(self) -> None:
        while self._unwritten:
            self._append_line(self._unwritten[0])
            self._unwritten.popleft()

    def _flush_if_durable(self) -> None:
        if self._durable and self._fd is not None:
            try:
                sync_file_data(self._fd)
            except OSError as error:
                raise self._build_write_error(error) from error

    def _append_line(self, line: bytes) -> None:
        fd = self._open_file() if self._fd is None else self._fd
        if self._is_torn:
            line = b"\n" + line
        try:
            # Others write here too, so a partial line is not truncated: the next event starts a new line.
            self._is_torn = True
            if (written := os.write(fd, line)) != len(line):
                write_all_bytes(fd, line[written:])
            self._is_torn = False
        except OSError as error:
            raise self._build_write_error(error) from error

    def _build_write_error(self, error: OSError) -> StateFileError:
        return StateFileError(
            f"Cannot write to the journal {self.path}: {error.strerror}. Everything written so far "
            "is kept. Free some space on that disk, then resume with --resume.",
            path=self.path,
        )

    def read_records(self, offset: int = 0) -> Iterator[JournalRecord]:
        return read_journal(self.path, offset)

    def replay(
        self,
        kind: type[S],
        settle: Callable[[S], None] | None = None,
        *,
        report_problem: Callable[[str], None] = lambda _: None,
    ) -> S:
        from shoal.stores.files.sessions.journal_snapshots import load_journal_state

        return load_journal_state(self.path, kind, settle=settle, report_problem=report_problem)[0]

    def get_position(self) -> int:
        """Return the offset at which this process's latest event ends."""
        fd = self._open_file() if self._fd is None else self._fd
        return os.lseek(fd, 0, os.SEEK_CUR)

    def close(self) -> None:
        with suppress(StateFileError):
            self._write_unwritten_lines()
            self._flush_if_durable()
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)

    def _open_file(self) -> int:
        try:
            fd = open_private_file(self.path, _FLAGS, durable=self._durable)
            size = os.lseek(fd, 0, os.SEEK_END)
            self._is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        except OSError as error:
            raise build_write_error(self.path, error) from error
        self._fd = fd
        return fd


def read_journal(
    path: Path, offset: int = 0, *, report_problem: ProblemReporter | None = None
) -> Iterator[JournalRecord]:
    """Yield the events from `offset` up to the last complete line; invalid lines are reported.

    Without `report_problem`, they are reported to `journal_damage`. If that is set, the caller is a view,
    and a journal that cannot be read at all is reported too instead of raised.
    """
    report_damage = journal_damage.get() if report_problem is None else None
    if report_problem is None:
        report_problem = ignore_problem if report_damage is None else partial(report_damage, path)
    try:
        file = open_state_file(path)
    except FileNotFoundError:
        return
    except OSError as error:
        if report_damage is not None:
            report_problem(f"It cannot be read: {error.strerror}.")
            return
        raise StateFileError(f"Cannot read the journal {path}: {error.strerror}.", path=path) from error
    with file:
        if report_damage is not None and (missing := _describe_missing_end(file, path)) is not None:
            report_problem(missing)
        file.seek(offset)
        yield from parse_journal_records(iter(lambda: file.read(_CHUNK), b""), offset, report_problem)


def _describe_missing_end(file: BinaryIO, path: Path) -> str | None:
    """Return a sentence if the journal is empty or its last line is incomplete, and nobody is writing it."""
    # Checked before the end is read: what the last process of the run wrote is read below.
    may_be_written = not is_pid_lock_free(path.with_name("lock"))
    status = os.fstat(file.fileno())
    if may_be_written and time.time() - status.st_mtime < _WRITING_SECONDS:
        return None
    if not status.st_size:
        return "It is empty."
    if os.pread(file.fileno(), 1, status.st_size - 1) != b"\n":
        return "The end of the journal is missing."
    return None


def find_offset_of_last_bytes(path: Path, size: int, end: int) -> int:
    """Return the offset of the first line that starts in the last `size` bytes before `end`; 0 for all."""
    if end <= size:
        return 0
    try:
        with open_state_file(path) as file:
            file.seek(end - size)
            return end - size + len(file.readline())
    except OSError as error:
        raise StateFileError(f"Cannot read the journal {path}: {error.strerror}.", path=path) from error


async def follow_journal(
    path: Path,
    offset: int = 0,
    *,
    is_running: Callable[[], bool] = lambda: True,
    delay: float = 0.0,
) -> AsyncIterator[JournalRecord]:
    """Yield present and future events until the run ends or `is_running` returns False.

    Neither the file nor its directory need to exist yet. After `delay` seconds, several events are read at
    once.
    """
    changed = asyncio.Event()
    watch = DirectoryWatch(path.parent, changed.set)
    try:
        ended = False
        while True:
            changed.clear()
            # Checked before reading: the last events of a writer that ended are still read below.
            was_running = is_running()
            for record in read_journal(path, offset):
                ended = isinstance(record.event, SessionEnded)
                offset = record.next
                yield record
            if ended or not was_running:
                return
            await changed.wait()
            if delay:
                await watch.ignore_events_for(delay)
    finally:
        watch.close()
