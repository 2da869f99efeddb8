"""A terminal (or a pipe) with scrolling text and bottom rows that are redrawn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, TextIO

from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.terminal.text_styles import (
    apply_style,
    count_fitting_characters,
    has_colours,
    is_live_terminal,
    measure_text_width,
)

_LONGEST_WORD = 4
"""A long word is kept in one piece if it fits in this many rows."""


class TerminalScreen(Protocol):
    @property
    def columns(self) -> int: ...

    @property
    def colours(self) -> bool: ...

    @property
    def live(self) -> bool: ...

    def write(self, text: str, style: str = "") -> None:
        """Write scrolling text; the next write continues an unfinished line."""
        ...

    def end_line(self) -> None:
        """End the line that is being written, if any."""
        ...

    def erase_or_end_line(self) -> None:
        """Erase the line that is being written if possible, else end it."""
        ...

    def set_bottom_rows(self, rows: Sequence[str], cursor: tuple[int, int] | None = None) -> None:
        """Set the rows below the text, and the cursor position in them (row, column)."""
        ...

    def close(self) -> None: ...


def open_terminal_screen(stream: TextIO) -> TerminalScreen:
    return LiveTerminalScreen(stream) if is_live_terminal(stream) else PlainTerminalScreen(stream)


class PlainTerminalScreen:
    """Writes no control codes: written text stays as it is."""

    live = False
    colours = False
    columns = 80

    def __init__(self, stream: TextIO) -> None:
        self._stream = _replace_unencodable_on_write(stream)
        self._in_line = False

    def write(self, text: str, style: str = "") -> None:
        text = strip_terminal_codes(text)
        if text:
            self._stream.write(text)
            self._stream.flush()
            self._in_line = not text.endswith("\n")

    def end_line(self) -> None:
        if self._in_line:
            self.write("\n")

    def erase_or_end_line(self) -> None:
        self.end_line()

    def set_bottom_rows(self, rows: Sequence[str], cursor: tuple[int, int] | None = None) -> None:
        """Do nothing: this screen cannot redraw."""

    def close(self) -> None:
        self.end_line()


class LiveTerminalScreen:
    """Wraps lines itself, between words: the bottom rows can only be found again if no row wraps."""

    live = True

    def __init__(self, stream: TextIO) -> None:
        self._stream = _replace_unencodable_on_write(stream)
        self.colours = has_colours(stream)
        self._line: list[tuple[str, str]] = []
        self._rows: Sequence[str] = ()
        self._cursor: tuple[int, int] | None = None
        self._drawn: list[int] = []
        self._cursor_row = 0
        """Index of the drawn row that holds the terminal's cursor."""
        self._at_end = True

    @property
    def columns(self) -> int:
        return max(self._get_columns() - 1, 10)

    def write(self, text: str, style: str = "") -> None:
        complete_lines: list[str] = []
        *ended_pieces, rest = strip_terminal_codes(text).split("\n")
        for piece in ended_pieces:
            self._append_text_wrapping_lines(piece, style, complete_lines)
            complete_lines.append(self._style_line(self._line))
            self._line = []
        self._append_text_wrapping_lines(rest, style, complete_lines)
        self._redraw_line_and_bottom_rows(complete_lines)

    def end_line(self) -> None:
        if self._line:
            self.write("\n")

    def erase_or_end_line(self) -> None:
        self._line = []
        self._redraw_line_and_bottom_rows(())

    def set_bottom_rows(self, rows: Sequence[str], cursor: tuple[int, int] | None = None) -> None:
        if (rows, cursor) != (self._rows, self._cursor):
            self._rows, self._cursor = rows, cursor
            self._redraw_line_and_bottom_rows(())

    def redraw(self) -> None:
        self._redraw_line_and_bottom_rows(())

    def close(self) -> None:
        self.end_line()
        self.set_bottom_rows(())

    def _get_columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except OSError:
            return 80

    def _append_text_wrapping_lines(self, text: str, style: str, complete_lines: list[str]) -> None:
        """Append to the line; move rows that are full to `whole`."""
        if not text:
            return
        self._line.append((style, text))
        columns = self.columns
        plain_text = "".join(part for _, part in self._line)
        while measure_text_width(plain_text) > columns:
            line_break = _find_line_break(plain_text, columns)
            if line_break < 0 and measure_text_width(plain_text) <= columns * _LONGEST_WORD:
                return
            end, next_start = (
                (line_break, line_break + 1) if line_break > 0 else (len(plain_text), len(plain_text))
            )
            complete_lines.append(self._style_line(_slice_line(self._line, 0, end)))
            # A wrapped line continues at the indent of its first row.
            indent = plain_text[: len(plain_text) - len(plain_text.lstrip(" "))][: columns // 2]
            rest = _slice_line(self._line, next_start, len(plain_text))
            self._line = [("", indent), *rest] if indent and rest else rest
            plain_text = "".join(part for _, part in self._line)

    def _style_line(self, line: list[tuple[str, str]]) -> str:
        return "".join(apply_style(text, style, colours=self.colours) for style, text in line)

    def _redraw_line_and_bottom_rows(self, complete_lines: Sequence[str]) -> None:
        rows = [self._style_line(self._line)] if self._line else []
        widths = [measure_text_width("".join(text for _, text in self._line))] if self._line else []
        first_bottom_row = len(rows)
        rows.extend(self._rows)
        widths.extend(measure_text_width(strip_terminal_codes(row)) for row in self._rows)
        out = [
            "\x1b[?2026h",
            self._format_move_to_first_row(),
            "\x1b[J",
            *(f"{row}\n" for row in complete_lines),
        ]
        out.append("\n".join(rows))
        cursor_row = max(len(rows) - 1, 0)
        if self._cursor is not None:
            row, column = self._cursor
            rows_up = cursor_row - (first_bottom_row + row)
            cursor_row -= rows_up
            out.append((f"\x1b[{rows_up}A" if rows_up else "") + "\r" + (f"\x1b[{column}C" if column else ""))
        out.append("\x1b[?2026l")
        self._drawn, self._cursor_row, self._at_end = widths, cursor_row, self._cursor is None
        self._stream.write("".join(out))
        self._stream.flush()

    def _format_move_to_first_row(self) -> str:
        # If the terminal became narrower, it has wrapped the rows that no longer fit.
        size = self._get_columns()
        rows_above = sum(max(1, -(-columns // size)) for columns in self._drawn[: self._cursor_row])
        if self._at_end and self._drawn:
            rows_above += max(0, self._drawn[self._cursor_row] - 1) // size
        return f"\x1b[{rows_above}A\r" if rows_above else "\r"


def _find_line_break(plain_text: str, columns: int) -> int:
    """Return the index of the space at which a long line is wrapped; negative if there is none.

    A path or command wider than a row is kept in one piece, so that it can be copied: the terminal wraps it.
    """
    fitting_count = count_fitting_characters(plain_text, columns)
    space = plain_text.rfind(" ", 1, fitting_count + 1)
    word = plain_text[space + 1 :].split(" ", 1)[0]
    if plain_text[: max(space, 0)].strip() and measure_text_width(word) <= columns:
        return space
    return plain_text.find(" ", fitting_count)


def _slice_line(line: list[tuple[str, str]], start: int, end: int) -> list[tuple[str, str]]:
    """Return characters `start` to `end` of a styled line."""
    out: list[tuple[str, str]] = []
    position = 0
    for style, text in line:
        piece = text[max(start - position, 0) : max(end - position, 0)]
        if piece:
            out.append((style, piece))
        position += len(text)
    return out


def _replace_unencodable_on_write(stream: TextIO) -> TextIO:
    """Let the stream write a question mark for a character it cannot encode."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    return stream
