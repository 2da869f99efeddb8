"""Transcript read from its end: the newest part first, older parts on demand, new entries as they come."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from shoal.core.entries import Compacted, Entry, Rewound, Said
from shoal.wire.transcript import read_line

CHUNK = 256 * 1024
"""Bytes that are read at a time: a long transcript is never read as a whole."""


class Transcript:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._start: int | None = None
        """Offset of the part that was read; None before the first read."""
        self._end = 0
        self._rest = b""

    @property
    def has_older(self) -> bool:
        return bool(self._start)

    def new(self) -> list[Entry]:
        """Return the entries written since the last read; at the first read, the last part of the file."""
        if self._start is None:
            return self._first()
        data = self._read(self._end, None)
        self._end += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return _entries(lines)

    def pass_by(self) -> None:
        """Skip the entries written since the last read."""
        self._start, self._rest = self._start or 0, b""
        with suppress(OSError):
            self._end = self._path.stat().st_size

    def go_back_to(self, entry: str) -> None:
        """Treat everything before this entry as older again, although it was read."""
        begin = self._end - len(self._rest)
        while begin:
            data, begin = self._back_from(begin)
            for line in data.split(b"\n"):
                if any(each.id == entry for each in _entries([line])):
                    self._start = begin
                    return
                begin += len(line) + 1
            begin -= len(data) + 1
        self._start = 0

    def older(self) -> list[Entry]:
        """Return the entries before the part that was read."""
        if not self._start:
            return []
        data, begin = self._back_from(self._start)
        self._start = begin
        return _entries(data.split(b"\n"))

    def _first(self) -> list[Entry]:
        try:
            size = self._path.stat().st_size
        except OSError:
            return []
        data, self._start = self._back_from(size)
        self._end = size
        *lines, self._rest = data.split(b"\n")
        return _entries(lines)

    def _back_from(self, end: int) -> tuple[bytes, int]:
        """Return whole lines before an offset, and the offset of the first."""
        span = CHUNK
        while True:
            begin = max(0, end - span)
            data = self._read(begin, end)
            if begin == 0:
                return data, 0
            cut = data.find(b"\n")
            if 0 <= cut < len(data) - 1:
                return data[cut + 1 :], begin + cut + 1
            span *= 2

    def _read(self, begin: int, end: int | None) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(begin)
                return file.read() if end is None else file.read(end - begin)
        except OSError:
            return b""


def _entries(lines: list[bytes]) -> list[Entry]:
    found: list[Entry] = []
    for line in lines:
        if not line.strip():
            continue
        try:
            read = read_line(line)
        except ValueError:
            continue
        if isinstance(read.entry, Said | Compacted | Rewound):
            found.append(read.entry)
    return found
