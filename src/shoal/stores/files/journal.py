"""Journal on disk: appended by every process of a run, read by offset by everyone else."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

from shoal.core.clock import Clock
from shoal.core.errors import StoreError
from shoal.core.events import AgentEnded, Journaled, SessionEnded, WorkKept
from shoal.core.secrets import SHAPES_ALONE, Secrets
from shoal.stores.files.places import make_private, unwritable, write_all
from shoal.stores.files.reporting import Report, unreported
from shoal.stores.files.watch import DirectoryWatch
from shoal.wire.journal import Recorded, journal_line, read_event, rescued_event

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_CHUNK = 1 << 20
_ENDS = (AgentEnded, WorkKept)


class FileJournal:
    """Journal file; nothing is created before the first event."""

    def __init__(
        self, path: Path, clock: Clock, *, durable: bool = False, secrets: Secrets = SHAPES_ALONE
    ) -> None:
        self.path = path
        self._secrets = secrets
        self._clock = clock
        self._durable = durable
        self._fd: int | None = None
        self._torn = False
        self._owed: deque[bytes] = deque()
        """End events that could not be written yet; they are written before the next event."""

    def append(self, event: Journaled) -> None:
        line = self._secrets.redacted_bytes(journal_line(event, self._clock.now()))
        try:
            if self._owed:
                self._pay()
            self._append(line)
        except StoreError:
            if isinstance(event, _ENDS):
                self._owed.append(line)
            raise

    def _pay(self) -> None:
        while self._owed:
            self._append(self._owed[0])
            self._owed.popleft()

    def _append(self, line: bytes) -> None:
        fd = self._open() if self._fd is None else self._fd
        if self._torn:
            line = b"\n" + line
        try:
            # Others write here too, so a partial line is not truncated: the next event starts a new line.
            self._torn = True
            write_all(fd, line)
            self._torn = False
            if self._durable:
                os.fdatasync(fd)
        except OSError as error:
            raise StoreError(
                f"The journal {self.path} could not be written: {error.strerror}. "
                "What is in it is kept. Make room on that disk, then go on with --resume.",
                path=self.path,
            ) from error

    def position(self) -> int:
        """Return the offset at which this process's latest event ends."""
        fd = self._open() if self._fd is None else self._fd
        return os.lseek(fd, 0, os.SEEK_CUR)

    def close(self) -> None:
        with suppress(StoreError):
            self._pay()
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)

    def _open(self) -> int:
        make_private(self.path.parent)
        try:
            fd = os.open(self.path, _FLAGS, 0o600)
            size = os.lseek(fd, 0, os.SEEK_END)
            self._torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        except OSError as error:
            raise unwritable(self.path, error) from error
        self._fd = fd
        return fd


def read_journal(path: Path, offset: int = 0, *, report: Report = unreported) -> Iterator[Recorded]:
    """Yield the events from `offset` up to the last complete line; invalid lines are reported."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"The journal {path} cannot be read: {error.strerror}.", path=path) from error
    with file:
        file.seek(offset)
        rest = b""
        while chunk := file.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                end = offset + len(line) + 1
                recorded = _recorded(line, offset, end, report)
                if recorded is not None:
                    yield recorded
                offset = end


def _recorded(line: bytes, offset: int, end: int, report: Report) -> Recorded | None:
    try:
        at, event = read_event(line)
    except ValueError:
        if line:
            report(f"The journal has a line at {offset} that is not a whole event ({len(line)} bytes).")
        rescued = rescued_event(line)
        if rescued is None:
            return None
        at, event = rescued
    return Recorded(offset=offset, next=end, at=at, event=event)


async def follow_journal(
    path: Path,
    offset: int = 0,
    *,
    alive: Callable[[], bool] = lambda: True,
) -> AsyncIterator[Recorded]:
    """Yield present and future events until the run ends or `is_running` returns False.

    Neither the file nor its directory need to exist yet.
    """
    changed = asyncio.Event()
    watch = DirectoryWatch(path.parent, changed.set)
    try:
        ended = False
        while True:
            changed.clear()
            # Checked before reading: the last events of a writer that ended are still read below.
            living = alive()
            for recorded in read_journal(path, offset):
                ended = isinstance(recorded.event, SessionEnded)
                offset = recorded.next
                yield recorded
            if ended or not living:
                return
            await changed.wait()
    finally:
        watch.close()
