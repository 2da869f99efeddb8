"""Transcript on disk: one line per entry, each in one write, and never a partial line before the next."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from shoal.core.clock import iso
from shoal.core.entries import Entry
from shoal.core.errors import StoreError
from shoal.stores.files.lines import end_of_whole_lines
from shoal.stores.files.places import open_below, unwritable, write_all
from shoal.wire.content import load
from shoal.wire.transcript import Lines

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class FileTranscript:
    """Only writer of its file, ensured by the session lock. Nothing is created before the first entry."""

    def __init__(self, path: Path, lines: Lines, *, durable: bool = False) -> None:
        self.path = path
        self._lines = lines
        self._durable = durable
        self._fd: int | None = None
        self._whole = 0

    def append(self, entry: Entry) -> None:
        line = self._lines.line(entry)
        fd = self._open(entry.at) if self._fd is None else self._fd
        try:
            write_all(fd, line)
            if self._durable:
                os.fdatasync(fd)
        except OSError as error:
            self._take_back()
            raise StoreError(
                f"The conversation could not be written to {self.path}: {error.strerror}. "
                "What was said before is kept. Make room on that disk, then go on with --resume.",
                path=self.path,
            ) from error
        self._whole += len(line)

    def _take_back(self) -> None:
        """Truncate a partially written line. If that fails too, the next open finds and repairs it."""
        with suppress(OSError):
            if self._fd is not None:
                os.ftruncate(self._fd, self._whole)
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)

    def _open(self, at: int) -> int:
        try:
            fd = open_below(self.path, _FLAGS)
        except OSError as error:
            raise unwritable(self.path, error) from error
        try:
            self._whole = _mend(fd, self.path, at)
        except OSError as error:
            os.close(fd)
            raise unwritable(self.path, error) from error
        self._fd = fd
        return fd


def _mend(fd: int, path: Path, at: int) -> int:
    """Make the file end with a complete line and return its size. Torn bytes move to a separate file."""
    size = os.fstat(fd).st_size
    start = end_of_whole_lines(fd, size)
    if start == size:
        return size
    torn = os.pread(fd, size - start, start)
    if is_whole(torn):
        return size + os.write(fd, b"\n")
    aside = path.with_name(f"{path.name}.torn-{iso(at).replace(':', '')}")
    beside = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        write_all(beside, torn)
    finally:
        os.close(beside)
    os.ftruncate(fd, start)
    return start


def is_whole(line: bytes) -> bool:
    """Return True if a last line without newline is otherwise complete."""
    try:
        return isinstance(load(line), dict)
    except ValueError:
        return False
