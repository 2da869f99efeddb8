"""A terminal for tests: a program under a real pty, and the screen a person would see."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from program_forks import OPEN_TERMINAL

TIMEOUT = 60.0
_CSI = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class EmulatedScreen:
    """Interprets the few codes the program uses, and fails on any other. Rows that scroll off are kept."""

    def __init__(self, columns: int = 80) -> None:
        self.columns = columns
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0
        self.codes: set[str] = set()
        self._partial_code = ""

    def feed_output(self, text: str) -> None:
        text = self._partial_code + text
        self._partial_code = ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                code = _CSI.match(text, at)
                if code is None:
                    assert len(text) - at < 16, f"unknown code {text[at : at + 16]!r}"
                    self._partial_code = text[at:]
                    return
                self._apply_code(code[1], code[2])
                at = code.end()
            else:
                self._put_character(text[at])
                at += 1

    def _apply_code(self, numbers: str, letter: str) -> None:
        self.codes.add(letter)
        match letter:
            case "m" | "h" | "l":
                pass
            case "A":
                self.row = max(self.row - int(numbers or 1), 0)
            case "C":
                self.column += int(numbers or 1)
            case "J":
                assert not numbers
                del self.rows[self.row + 1 :]
                del self.rows[self.row][self.column :]
            case _:
                raise AssertionError(f"unknown code {numbers}{letter}")

    def _put_character(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self._next_row()
        elif character == "\x07":
            pass
        else:
            assert character.isprintable(), f"control character {character!r}"
            wide = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if self.column + wide > self.columns:
                self.column = 0
                self._next_row()
            row = self.rows[self.row]
            row.extend(" " * (self.column + wide - len(row)))
            row[self.column : self.column + wide] = [character, *[""] * (wide - 1)]
            self.column += wide

    def _next_row(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.rows]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()


_open_terminals: set[PtyTerminal] = set()


class PtyTerminal:
    """Runs a program until `close`, or the end of the `with` block: nothing it started is left."""

    def __init__(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], columns: int = 80, rows: int = 24
    ) -> None:
        self.screen = EmulatedScreen(columns)
        self.raw = ""
        self.status: int | None = None
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._fd, terminal = pty.openpty()
        self.resize_screen(columns, rows)
        # Opened by the first process of a new session, a terminal becomes the one its Ctrl-C goes to.
        opening = [*OPEN_TERMINAL, os.ttyname(terminal), *argv]
        self._process = subprocess.Popen(
            opening,
            cwd=cwd,
            env=env,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        self.pid = self._process.pid
        _open_terminals.add(self)

    def __enter__(self) -> PtyTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resize_screen(self, columns: int, rows: int = 24) -> None:
        self.screen.columns = columns
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type_text(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, condition: str | Callable[[str], bool], *, timeout: float = TIMEOUT) -> str:
        """Return the screen's text once it fulfils the condition. Where the screen breaks lines, also inside
        words, depends on the length of the paths before them, so a text is found without its spaces."""
        shows = (
            (lambda text: condition in text or "".join(condition.split()) in "".join(text.split()))
            if isinstance(condition, str)
            else condition
        )
        end = time.monotonic() + timeout
        while not shows(self.screen.text):
            if not self._read_output(end - time.monotonic()):
                name = condition if isinstance(condition, str) else "what was waited for"
                raise AssertionError(f"{name!r} did not appear. The screen:\n{self.screen.text}")
        return self.screen.text

    def wait_for_end(self, *, timeout: float = TIMEOUT) -> int:
        """Return the exit status; all output is on the screen then."""
        end = time.monotonic() + timeout
        while self._read_output(end - time.monotonic()):
            pass
        if self.status is None:
            assert time.monotonic() < end, f"it did not end. The screen:\n{self.screen.text}"
            self.status = self._process.wait(end - time.monotonic())
        return self.status

    def close(self) -> None:
        if self.status is None:
            self._process.kill()
            self.status = self._process.wait()
        _open_terminals.discard(self)
        os.close(self._fd)

    def _read_output(self, seconds: float) -> bool:
        """Return False if there was no output in time, or if there will be no more.

        Every open terminal is read meanwhile: a program whose terminal is full blocks.
        """
        end = time.monotonic() + seconds
        while self in _open_terminals and (left := end - time.monotonic()) > 0:
            ready = select.select([terminal._fd for terminal in _open_terminals], [], [], left)[0]
            has_output = {
                terminal: terminal._read_available()
                for terminal in list(_open_terminals)
                if terminal._fd in ready
            }
            if self in has_output:
                return has_output[self]
        return False

    def _read_available(self) -> bool:
        try:
            data = os.read(self._fd, 65_536)
        except OSError:
            data = b""
        if not data:
            _open_terminals.discard(self)
        text = self._decode(data)
        self.raw += text
        self.screen.feed_output(text)
        return bool(data)


def build_environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment a program needs, without that of the user who runs the tests."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(home),
        "SHOAL_HOME": str(home),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "SHOAL_PLAIN": "1",
        **more,
    }
