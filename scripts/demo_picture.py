"""Draws docs/pictures/demo.svg from a real run of `shoal demo`; standard library only.

Usage: python3 scripts/demo_picture.py [--until TEXT] [--rows N] [COMMAND …]

The picture is the screen when TEXT appeared: its last N rows, including scrolled-off rows. With an empty TEXT
it shows the whole run. The default moment is when a permission that the team asked for is given.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
COLUMNS, ROWS = 80, 24
DEFAULT_MOMENT, DEFAULT_ROWS = "in your place)", 54
END_OF_DRAWING = "\x1b[?2026l"
"""Ends each drawing of the screen."""

CELL, LINE, LEFT, TOP, BOTTOM = 8.43, 19.0, 22.0, 58.0, 22.0
PAPER, FRAME, INK, DIM = "#10171e", "#26313c", "#d5dde5", "#7f8d9a"
COLOURS = {31: "#f07178", 32: "#8bd47b", 33: "#f2c572", 34: "#7aa8f0", 35: "#c792ea", 36: "#5fc9d8"}
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"

_CODE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class TextStyle(NamedTuple):
    colour: str = INK
    bold: bool = False
    italic: bool = False


class StyledCell(NamedTuple):
    character: str
    style: TextStyle


BLANK = StyledCell(" ", TextStyle())


class TerminalPage:
    """The terminal contents of the run, scrolled-off rows included."""

    def __init__(self) -> None:
        self.rows: list[list[StyledCell]] = [[]]
        self.row = self.column = 0
        self.style = TextStyle()

    def feed_output(self, text: str) -> None:
        position = 0
        while position < len(text):
            code = _CODE.match(text, position)
            if code is not None:
                self._apply_code(code[1], code[2])
                position = code.end()
            else:
                self._put_character(text[position])
                position += 1

    def _apply_code(self, numbers: str, letter: str) -> None:
        if letter == "m":
            self._change_style([int(number or 0) for number in numbers.split(";")])
        elif letter == "A":
            self.row -= int(numbers or 1)
        elif letter == "C":
            self.column += int(numbers or 1)
        elif letter == "J":
            del self.rows[self.row + 1 :]
            del self.rows[self.row][self.column :]

    def _change_style(self, numbers: list[int]) -> None:
        for number in numbers:
            if number == 0:
                self.style = TextStyle()
            elif number == 1:
                self.style = self.style._replace(bold=True)
            elif number == 2:
                self.style = self.style._replace(colour=DIM)
            elif number == 3:
                self.style = self.style._replace(italic=True)
            elif number in COLOURS:
                self.style = self.style._replace(colour=COLOURS[number])

    def _put_character(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append([])
        else:
            row = self.rows[self.row]
            row.extend([BLANK] * (self.column + 1 - len(row)))
            row[self.column] = StyledCell(character, self.style)
            self.column += 1


def record_terminal(command: list[str]) -> str:
    """Return what the command writes to a terminal of 80 × 24."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.environ.pop("NO_COLOR", None)
        os.execvp(command[0], command)  # noqa: S606 - the person names the command
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    parts = []
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(f"`{' '.join(command)}` failed, so there is nothing to draw.")
    return b"".join(parts).decode()


def render_svg(rows: list[list[StyledCell]], title: str) -> str:
    while rows and not any(cell.character.strip() for cell in rows[-1]):
        rows.pop()
    wide, high = LEFT * 2 + CELL * COLUMNS, TOP + LINE * len(rows) + BOTTOM
    lights = "".join(
        f'<circle cx="{22 + 20 * place}" cy="21" r="6" fill="{colour}"/>'
        for place, colour in enumerate(("#f07178", "#f2c572", "#8bd47b"))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" '
            f'width="{wide:.0f}" height="{high:.0f}" role="img" aria-label="{escape(title)}">',
            f'<rect x=".5" y=".5" width="{wide - 1:.0f}" height="{high - 1:.0f}" rx="10" '
            f'fill="{PAPER}" stroke="{FRAME}"/>',
            lights,
            f'<text x="{wide / 2:.0f}" y="26" text-anchor="middle" fill="{DIM}" '
            f'font-family="system-ui,sans-serif" font-size="13">{escape(title)}</text>',
            f'<g font-family="{FONT}" font-size="14" fill="{INK}" xml:space="preserve">',
            *(line for number, row in enumerate(rows) if (line := _render_line(row, TOP + LINE * number))),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _render_line(row: list[StyledCell], y: float) -> str:
    pieces = []
    for start, style, text in _split_by_style(row):
        # The length is fixed, so that columns stay aligned in any font.
        attributes = f'x="{LEFT + CELL * start:.1f}" textLength="{CELL * len(text):.1f}"'
        if style.colour != INK:
            attributes += f' fill="{style.colour}"'
        if style.bold:
            attributes += ' font-weight="700"'
        if style.italic:
            attributes += ' font-style="italic"'
        pieces.append(f"<tspan {attributes}>{escape(text, quote=False)}</tspan>")
    return f'<text y="{y:.1f}">{"".join(pieces)}</text>' if pieces else ""


def _split_by_style(row: list[StyledCell]) -> list[tuple[int, TextStyle, str]]:
    """Group neighbouring cells of one style, without spaces at the ends of a group."""
    runs: list[tuple[int, TextStyle, str]] = []
    start = 0
    while start < len(row):
        end = start
        while end < len(row) and row[end].style == row[start].style:
            end += 1
        text = "".join(cell.character for cell in row[start:end])
        lead = len(text) - len(text.lstrip())
        if text.strip():
            runs.append((start + lead, row[start].style, text.strip()))
        start = end
    return runs


def cut_after_text(written: str, text: str) -> str:
    """Return the output up to the first complete drawing that contains the text."""
    before, found, after = written.partition(text)
    if not found:
        sys.exit(f"The run never showed {text!r}.")
    rest, end, _ = after.partition(END_OF_DRAWING)
    return before + found + rest + end


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw docs/pictures/demo.svg from a run of the demo.")
    parser.add_argument("--until", default=DEFAULT_MOMENT, metavar="TEXT")
    parser.add_argument("--rows", type=int, default=DEFAULT_ROWS)
    parser.add_argument("command", nargs="*", default=["shoal", "demo"])
    options = parser.parse_args()
    page, output = TerminalPage(), record_terminal(options.command)
    page.feed_output(cut_after_text(output, options.until) if options.until else output)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(render_svg(page.rows[-options.rows :], " ".join(options.command)), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
