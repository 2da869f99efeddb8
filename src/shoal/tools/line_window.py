"""Reads a range of lines from a large file without loading the rest."""

from __future__ import annotations

from typing import BinaryIO

from msgspec import Struct

from shoal.tools.text_files import MAX_LINE_CHARACTERS, shorten_long_line

_CHUNK = 1024 * 1024
_MAX_SCANNED_BYTES = 64 * _CHUNK
# A character has at most four bytes.
_LINE_BYTES = MAX_LINE_CHARACTERS * 4


class FileLineWindow(Struct, frozen=True, kw_only=True):
    lines: tuple[str, ...]
    lines_passed: int
    """Lines read or skipped in total."""
    is_at_end: bool
    """True if the file ends here."""


def read_line_window(file: BinaryIO, first: int, limit: int, max_characters: int) -> FileLineWindow:
    """Read `limit` lines from line `first` on, or as many as reach `max_characters`."""
    file.seek(0)
    skipped = _skip_lines(file, first - 1)
    lines: list[str] = []
    length = 0
    while len(lines) < limit and length < max_characters:
        line, is_complete = _read_shortened_line(file)
        if line is None:
            return FileLineWindow(lines=tuple(lines), lines_passed=skipped + len(lines), is_at_end=True)
        lines.append(line)
        length += len(line)
        if not is_complete:
            break
    return FileLineWindow(lines=tuple(lines), lines_passed=skipped + len(lines), is_at_end=not file.peek(1))  # type: ignore[attr-defined]


def _skip_lines(file: BinaryIO, count: int) -> int:
    """Skip up to `count` lines; return how many were skipped."""
    skipped = 0
    while skipped < count:
        chunk = file.read(_CHUNK)
        if not chunk:
            break
        line_ends = chunk.count(b"\n")
        if skipped + line_ends < count:
            skipped += line_ends
            continue
        position = -1
        for _ in range(count - skipped):
            position = chunk.index(b"\n", position + 1)
        file.seek(position + 1 - len(chunk), 1)
        return count
    return skipped


def _read_shortened_line(file: BinaryIO) -> tuple[str | None, bool]:
    """Return the next line, shortened for display, and True if its end was found."""
    start = file.readline(_LINE_BYTES)
    if not start:
        return None, True
    if start.endswith(b"\n") or len(start) < _LINE_BYTES:
        return shorten_long_line(start.removesuffix(b"\n").decode(errors="replace")), True
    length = len(start)
    while length < _MAX_SCANNED_BYTES:
        rest = file.readline(_CHUNK)
        length += len(rest)
        if not rest or rest.endswith(b"\n"):
            return shorten_long_line(start.decode(errors="replace"), length), True
    return shorten_long_line(
        start.decode(errors="replace"), length
    ) + " [and it goes on; stopped here]", False
