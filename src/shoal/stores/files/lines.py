"""Append-only files of lines, written under a lock. A partial line of a killed writer is removed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from shoal.stores.files.handles import Directory, read_from
from shoal.stores.files.places import unwritable, write_all

_TAIL = 1 << 16


def append_lines(directory: Directory, name: str, lines: Sequence[bytes], *, durable: bool = False) -> None:
    """Append all lines, or raise an error and append none. The caller holds the lock of the file."""
    fd = directory.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        size = whole_size(fd)
        try:
            write_all(fd, b"".join([line + b"\n" for line in lines]))
            if durable:
                os.fdatasync(fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, size)
            raise
    except OSError as error:
        raise unwritable(directory.path / name, error) from error
    finally:
        os.close(fd)


def whole_size(fd: int) -> int:
    """Truncate a partial last line and return the size; its writer died before anybody relied on it."""
    size = os.fstat(fd).st_size
    whole = end_of_whole_lines(fd, size)
    if whole < size:
        os.ftruncate(fd, whole)
    return whole


def end_of_whole_lines(fd: int, size: int) -> int:
    """Return the size of the file without a partial last line."""
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return size
    end = size
    while end > 0:
        start = max(0, end - _TAIL)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def read_lines(directory: Directory, name: str, offset: int = 0) -> Iterator[bytes]:
    """Yield the complete lines from the offset on. Needs no lock."""
    try:
        fd = directory.open(name, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        content = read_from(fd, offset)
    finally:
        os.close(fd)
    *whole, _half = content.split(b"\n")
    yield from (line for line in whole if line)
