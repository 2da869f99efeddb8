"""Transcript on disk: one line per entry, each in one write, and never a partial line before the next."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from shoal.core.clock import format_iso_time
from shoal.core.conversation.transcript_entries import TranscriptEntry
from shoal.core.errors import StateFileError
from shoal.stores.files.access.line_files import find_end_of_complete_lines
from shoal.stores.files.home.home_paths import (
    build_write_error,
    open_private_file,
    sync_file_data,
    write_all_bytes,
)
from shoal.wire.json_codec import is_complete_json_line
from shoal.wire.transcript_codec import TranscriptEncoder

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class FileTranscript:
    """Only writer of its file, ensured by the session lock. Nothing is created before the first entry."""

    def __init__(self, path: Path, encoder: TranscriptEncoder, *, durable: bool = False) -> None:
        self.path = path
        self._encoder = encoder
        self._durable = durable
        self._fd: int | None = None
        self._complete_size = 0

    def append(self, entry: TranscriptEntry) -> None:
        line = self._encoder.encode_entry(entry)
        fd = self._open_file(entry.at) if self._fd is None else self._fd
        try:
            write_all_bytes(fd, line)
            if self._durable:
                sync_file_data(fd)
        except OSError as error:
            self._truncate_partial_line()
            raise StateFileError(
                f"Cannot write the conversation to {self.path}: {error.strerror}. The earlier part is "
                "kept. Free some space on that disk, then resume with --resume.",
                path=self.path,
            ) from error
        self._complete_size += len(line)

    def set_title(self, title: str) -> None:
        self._encoder.set_title(title)

    def _truncate_partial_line(self) -> None:
        """Truncate a partially written line. If that fails too, the next open finds and repairs it."""
        with suppress(OSError):
            if self._fd is not None:
                os.ftruncate(self._fd, self._complete_size)
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)

    def _open_file(self, at: int) -> int:
        try:
            fd = open_private_file(self.path, _FLAGS, durable=self._durable)
        except OSError as error:
            raise build_write_error(self.path, error) from error
        try:
            self._complete_size = _repair_torn_transcript_end(fd, self.path, at)
        except OSError as error:
            os.close(fd)
            raise build_write_error(self.path, error) from error
        self._fd = fd
        return fd


def _repair_torn_transcript_end(fd: int, path: Path, at: int) -> int:
    """Make the file end with a complete line and return its size. Torn bytes move to a separate file."""
    size = os.fstat(fd).st_size
    start = find_end_of_complete_lines(fd, size)
    if start == size:
        return size
    torn_bytes = os.pread(fd, size - start, start)
    if is_complete_json_line(torn_bytes):
        return size + os.write(fd, b"\n")
    backup_path = path.with_name(f"{path.name}.torn-{format_iso_time(at).replace(':', '')}")
    backup_fd = os.open(
        backup_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        write_all_bytes(backup_fd, torn_bytes)
    finally:
        os.close(backup_fd)
    os.ftruncate(fd, start)
    return start
