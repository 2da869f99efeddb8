"""Append-only files of lines, written under a lock. A partial line of a killed writer is removed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from shoal.stores.files.access.directory_handle import DirectoryHandle, read_fd_from_offset
from shoal.stores.files.home.home_paths import build_write_error, sync_file_data, write_all_bytes

_TAIL_CHUNK = 1 << 16


def append_lines(directory: DirectoryHandle, name: str, lines: Sequence[bytes]) -> None:
    """Append all lines, or raise an error and append none. The caller holds the lock of the file."""
    fd = directory.open_file_for_append(name)
    try:
        size = truncate_partial_last_line(fd)
        try:
            write_all_bytes(fd, b"".join([line + b"\n" for line in lines]))
            if directory.durable:
                sync_file_data(fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, size)
            raise
    except OSError as error:
        raise build_write_error(directory.path / name, error) from error
    finally:
        os.close(fd)


def truncate_partial_last_line(fd: int) -> int:
    """Truncate a partial last line and return the size; its writer died before anybody relied on it."""
    size = os.fstat(fd).st_size
    complete_size = find_end_of_complete_lines(fd, size)
    if complete_size < size:
        os.ftruncate(fd, complete_size)
    return complete_size


def find_end_of_complete_lines(fd: int, size: int) -> int:
    """Return the size of the file without a partial last line."""
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return size
    end = size
    while end > 0:
        start = max(0, end - _TAIL_CHUNK)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def read_complete_lines(directory: DirectoryHandle, name: str, offset: int = 0) -> Iterator[bytes]:
    """Yield the complete lines from the offset on. Needs no lock."""
    try:
        fd = directory.open_file(name, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        content = read_fd_from_offset(fd, offset)
    finally:
        os.close(fd)
    *complete_lines, _half = content.split(b"\n")
    yield from (line for line in complete_lines if line)
