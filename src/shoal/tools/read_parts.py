"""Reads a range of lines from a large file without loading the rest."""

from __future__ import annotations

from typing import BinaryIO

from msgspec import Struct

from shoal.tools.texts import LONGEST_LINE, cut

_CHUNK = 1024 * 1024
_LONGEST_SCANNED = 64 * _CHUNK
# A character has at most four bytes.
_LINE_BYTES = LONGEST_LINE * 4


class Window(Struct, frozen=True, kw_only=True):
    lines: tuple[str, ...]
    passed: int
    """Lines read or skipped in total."""
    ended: bool
    """True if the file ends here."""


def window(file: BinaryIO, first: int, limit: int, most: int) -> Window:
    """Read `limit` lines from line `first` on, or as many as reach `max_characters`."""
    file.seek(0)
    passed = _skip(file, first - 1)
    lines: list[str] = []
    length = 0
    while len(lines) < limit and length < most:
        line, whole = _line(file)
        if line is None:
            return Window(lines=tuple(lines), passed=passed + len(lines), ended=True)
        lines.append(line)
        length += len(line)
        if not whole:
            break
    return Window(lines=tuple(lines), passed=passed + len(lines), ended=not file.peek(1))  # type: ignore[attr-defined]


def _skip(file: BinaryIO, count: int) -> int:
    """Skip up to `count` lines; return how many were skipped."""
    passed = 0
    while passed < count:
        chunk = file.read(_CHUNK)
        if not chunk:
            break
        ends = chunk.count(b"\n")
        if passed + ends < count:
            passed += ends
            continue
        at = -1
        for _ in range(count - passed):
            at = chunk.index(b"\n", at + 1)
        file.seek(at + 1 - len(chunk), 1)
        return count
    return passed


def _line(file: BinaryIO) -> tuple[str | None, bool]:
    """Return the next line, shortened for display, and True if its end was found."""
    start = file.readline(_LINE_BYTES)
    if not start:
        return None, True
    if start.endswith(b"\n") or len(start) < _LINE_BYTES:
        return cut(start.removesuffix(b"\n").decode(errors="replace")), True
    length = len(start)
    while length < _LONGEST_SCANNED:
        more = file.readline(_CHUNK)
        length += len(more)
        if not more or more.endswith(b"\n"):
            return cut(start.decode(errors="replace"), length), True
    return cut(start.decode(errors="replace"), length) + " [and it goes on; stopped here]", False
