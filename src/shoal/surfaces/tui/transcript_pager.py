"""Transcript read from its end: the newest part first, older parts on demand, new entries as they come."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from shoal.core.conversation.transcript_entries import (
    TranscriptCompactionMarker,
    TranscriptEntry,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.stores.files.home.home_paths import open_state_file
from shoal.wire.transcript_codec import parse_transcript_line

CHUNK = 256 * 1024
"""Number of bytes read at a time: a long transcript is never read as a whole."""


class PagedTranscriptReader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._start: int | None = None
        """Offset of the part that was read; None before the first read."""
        self._end = 0
        self._rest = b""

    @property
    def has_older_entries(self) -> bool:
        return bool(self._start)

    def read_new_entries(self) -> list[TranscriptEntry]:
        """Return the entries written since the last read; at the first read, the last part of the file."""
        if self._start is None:
            return self._read_last_entries()
        data = self._read_file_range(self._end, None)
        self._end += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return _parse_transcript_entries(lines)

    def skip_new_entries(self) -> None:
        """Skip the entries written since the last read."""
        self._start, self._rest = self._start or 0, b""
        with suppress(OSError):
            self._end = self._path.stat().st_size

    def rewind_to_entry(self, entry: str) -> None:
        """Treat everything before this entry as older again, although it was read."""
        start = self._end - len(self._rest)
        while start:
            data, start = self._read_lines_before(start)
            for line in data.split(b"\n"):
                if any(each.id == entry for each in _parse_transcript_entries([line])):
                    self._start = start
                    return
                start += len(line) + 1
            start -= len(data) + 1
        self._start = 0

    def read_older_entries(self) -> list[TranscriptEntry]:
        """Return the entries before the part that was read."""
        if not self._start:
            return []
        data, start = self._read_lines_before(self._start)
        self._start = start
        return _parse_transcript_entries(data.split(b"\n"))

    def _read_last_entries(self) -> list[TranscriptEntry]:
        try:
            size = self._path.stat().st_size
        except OSError:
            return []
        data, self._start = self._read_lines_before(size)
        self._end = size
        *lines, self._rest = data.split(b"\n")
        return _parse_transcript_entries(lines)

    def _read_lines_before(self, end: int) -> tuple[bytes, int]:
        """Return whole lines before an offset, and the offset of the first."""
        span = CHUNK
        while True:
            start = max(0, end - span)
            data = self._read_file_range(start, end)
            if start == 0:
                return data, 0
            newline_index = data.find(b"\n")
            if 0 <= newline_index < len(data) - 1:
                return data[newline_index + 1 :], start + newline_index + 1
            span *= 2

    def _read_file_range(self, start: int, end: int | None) -> bytes:
        try:
            with open_state_file(self._path) as file:
                file.seek(start)
                return file.read() if end is None else file.read(end - start)
        except OSError:
            return b""


def _parse_transcript_entries(lines: list[bytes]) -> list[TranscriptEntry]:
    entries: list[TranscriptEntry] = []
    for line in lines:
        if not line.strip():
            continue
        try:
            parsed_line = parse_transcript_line(line)
        except ValueError:
            continue
        if isinstance(
            parsed_line.entry, TranscriptMessageEntry | TranscriptCompactionMarker | TranscriptRewindMarker
        ):
            entries.append(parsed_line.entry)
    return entries
