"""A terminal (or a pipe) with scrolling text and bottom rows that are redrawn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, TextIO

from shoal.core.wording import clean
from shoal.surfaces.terminal.paint import fitting, has_colours, is_live, painted, width

_LONGEST_WORD = 4
"""Rows up to which a long word is kept in one piece."""


class Screen(Protocol):
    @property
    def columns(self) -> int: ...

    @property
    def colours(self) -> bool: ...

    @property
    def live(self) -> bool: ...

    def write(self, text: str, style: str = "") -> None:
        """Write scrolling text; the next write continues an unfinished line."""
        ...

    def fresh_line(self) -> None:
        """End the line that is being written, if any."""
        ...

    def take_back(self) -> None:
        """Erase the line that is being written if possible, else end it."""
        ...

    def bottom(self, rows: Sequence[str], cursor: tuple[int, int] | None = None) -> None:
        """Set the rows below the text, and the cursor position in them (row, column)."""
        ...

    def close(self) -> None: ...


def screen_for(stream: TextIO) -> Screen:
    return LiveScreen(stream) if is_live(stream) else PlainScreen(stream)


class PlainScreen:
    """Writes no control codes: written text stays as it is."""

    live = False
    colours = False
    columns = 80

    def __init__(self, stream: TextIO) -> None:
        self._stream = _lenient(stream)
        self._in_line = False

    def write(self, text: str, style: str = "") -> None:
        text = clean(text)
        if text:
            self._stream.write(text)
            self._stream.flush()
            self._in_line = not text.endswith("\n")

    def fresh_line(self) -> None:
        if self._in_line:
            self.write("\n")

    def take_back(self) -> None:
        self.fresh_line()

    def bottom(self, rows: Sequence[str], cursor: tuple[int, int] | None = None) -> None:
        """Do nothing: this screen cannot redraw."""

    def close(self) -> None:
        self.fresh_line()


class LiveScreen:
    """Wraps lines itself, between words: the bottom rows can only be found again if no row wraps."""

    live = True

    def __init__(self, stream: TextIO) -> None:
        self._stream = _lenient(stream)
        self.colours = has_colours(stream)
        self._line: list[tuple[str, str]] = []
        self._rows: Sequence[str] = ()
        self._cursor: tuple[int, int] | None = None
        self._drawn: list[int] = []
        self._at = 0
        """Index of the drawn row that holds the terminal's cursor."""
        self._at_end = True

    @property
    def columns(self) -> int:
        return max(self._size() - 1, 10)

    def write(self, text: str, style: str = "") -> None:
        whole: list[str] = []
        *ended, rest = clean(text).split("\n")
        for piece in ended:
            self._add(piece, style, whole)
            whole.append(self._paint(self._line))
            self._line = []
        self._add(rest, style, whole)
        self._draw(whole)

    def fresh_line(self) -> None:
        if self._line:
            self.write("\n")

    def take_back(self) -> None:
        self._line = []
        self._draw(())

    def bottom(self, rows: Sequence[str], cursor: tuple[int, int] | None = None) -> None:
        if (rows, cursor) != (self._rows, self._cursor):
            self._rows, self._cursor = rows, cursor
            self._draw(())

    def redraw(self) -> None:
        self._draw(())

    def close(self) -> None:
        self.fresh_line()
        self.bottom(())

    def _size(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except OSError:
            return 80

    def _add(self, text: str, style: str, whole: list[str]) -> None:
        """Append to the line; move rows that are full to `whole`."""
        if not text:
            return
        self._line.append((style, text))
        columns = self.columns
        plain = "".join(part for _, part in self._line)
        while width(plain) > columns:
            space = _break(plain, columns)
            if space < 0 and width(plain) <= columns * _LONGEST_WORD:
                return
            end, after = (space, space + 1) if space > 0 else (len(plain), len(plain))
            whole.append(self._paint(_part(self._line, 0, end)))
            # A wrapped line continues at the indent of its first row.
            indent = plain[: len(plain) - len(plain.lstrip(" "))][: columns // 2]
            rest = _part(self._line, after, len(plain))
            self._line = [("", indent), *rest] if indent and rest else rest
            plain = "".join(part for _, part in self._line)

    def _paint(self, line: list[tuple[str, str]]) -> str:
        return "".join(painted(text, style, colours=self.colours) for style, text in line)

    def _draw(self, whole: Sequence[str]) -> None:
        rows = [self._paint(self._line)] if self._line else []
        widths = [width("".join(text for _, text in self._line))] if self._line else []
        shift = len(rows)
        rows.extend(self._rows)
        widths.extend(width(clean(row)) for row in self._rows)
        out = ["\x1b[?2026h", self._to_first_row(), "\x1b[J", *(f"{row}\n" for row in whole)]
        out.append("\n".join(rows))
        at = max(len(rows) - 1, 0)
        if self._cursor is not None:
            row, column = self._cursor
            up = at - (shift + row)
            at -= up
            out.append((f"\x1b[{up}A" if up else "") + "\r" + (f"\x1b[{column}C" if column else ""))
        out.append("\x1b[?2026l")
        self._drawn, self._at, self._at_end = widths, at, self._cursor is None
        self._stream.write("".join(out))
        self._stream.flush()

    def _to_first_row(self) -> str:
        # If the terminal became narrower, it has wrapped the rows that no longer fit.
        size = self._size()
        above = sum(max(1, -(-columns // size)) for columns in self._drawn[: self._at])
        if self._at_end and self._drawn:
            above += max(0, self._drawn[self._at] - 1) // size
        return f"\x1b[{above}A\r" if above else "\r"


def _break(plain: str, columns: int) -> int:
    """Return the index of the space at which a long line is wrapped; negative if there is none.

    A path or command wider than a row is kept in one piece, so that it can be copied: the terminal wraps it.
    """
    most = fitting(plain, columns)
    space = plain.rfind(" ", 1, most + 1)
    word = plain[space + 1 :].split(" ", 1)[0]
    if plain[: max(space, 0)].strip() and width(word) <= columns:
        return space
    return plain.find(" ", most)


def _part(line: list[tuple[str, str]], start: int, end: int) -> list[tuple[str, str]]:
    """Return characters `start` to `end` of a styled line."""
    out: list[tuple[str, str]] = []
    at = 0
    for style, text in line:
        piece = text[max(start - at, 0) : max(end - at, 0)]
        if piece:
            out.append((style, piece))
        at += len(text)
    return out


def _lenient(stream: TextIO) -> TextIO:
    """Let the stream write a question mark for a character it cannot encode."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    return stream
