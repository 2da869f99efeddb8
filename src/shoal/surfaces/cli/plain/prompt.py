"""Input prompt at the bottom of the screen, below the scrolling text."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

from shoal.surfaces.cli.plain.keyboard import Keyboard
from shoal.surfaces.cli.plain.keys import Key, Press
from shoal.surfaces.cli.plain.line import Line
from shoal.surfaces.terminal.dialogue import in_front
from shoal.surfaces.terminal.history import append_history, read_history
from shoal.surfaces.terminal.paint import BOLD_CYAN, painted
from shoal.surfaces.terminal.screen import LiveScreen, Screen

PROMPT = "› "
BETWEEN_DRAWINGS = 0.1
_MOST_ROWS = 10


class Entered(Struct, frozen=True):
    text: str


class Interrupted(Struct, frozen=True):
    """Ctrl-C was pressed; `line` is the text at the prompt."""

    line: str


class HungUp(Struct, frozen=True):
    """Ctrl-D was pressed, the terminal is gone, or a signal asks the program to end."""

    status: int = 0
    """Exit code of the program."""


class Escaped(Struct, frozen=True):
    """The escape key was pressed."""


class Toggled(Struct, frozen=True):
    """Shift-Tab was pressed."""


class Woken(Struct, frozen=True):
    """Nothing was typed; `wake` was called."""


Input: TypeAlias = Entered | Interrupted | HungUp | Escaped | Toggled | Woken
_INPUTS: dict[str, Input] = {
    "hung-up": HungUp(128 + signal.SIGHUP),
    "terminated": HungUp(128 + signal.SIGTERM),
    "escape": Escaped(),
    "back-tab": Toggled(),
}
"""Keys that do not edit the line."""


def _nobody() -> bool:
    return False


class Prompt(Protocol):
    leaves_lines: bool
    """True if typed text stays on the screen by itself, so that it need not be printed again."""
    to_background: Callable[[], bool]
    """Called at Ctrl-B; if it moves no agent, the key moves the cursor."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    async def input(self) -> Input: ...

    def wake(self) -> None:
        """Wake whoever awaits input."""
        ...

    def status(self, rows: Callable[[int], Sequence[str]] | None) -> None:
        """Set the rows above the prompt; they are redrawn ten times a second while they are set."""
        ...

    def label(self, text: str) -> None:
        """Set the text before the line while no question is open: the recipient and the active mode."""
        ...

    def ask(self, question: str) -> None:
        """Let the next typed line answer this; a half-typed line is put aside until `end_question`."""
        ...

    def asked(self) -> None: ...

    def clear(self) -> None:
        """Drop the half-typed text."""
        ...

    def offer(self, text: str) -> None:
        """Put a text at the prompt for editing, in front of the half-typed text."""
        ...


class LivePrompt:
    leaves_lines = False
    any_key_ends = False
    """True if the next key press closes the input."""

    def __init__(self, screen: LiveScreen, history: Path, words: Callable[[], Sequence[str]] = tuple) -> None:
        self._screen = screen
        self._history = history
        self._words = words
        """Returns the texts that a line can be completed to."""
        self._line = Line(read_history(history))
        self._keyboard = Keyboard(self._heard, self._redraw)
        self._inputs: asyncio.Queue[Input] = asyncio.Queue()
        self._draft = ""
        self._asking = self._label = ""
        self._status: Callable[[int], Sequence[str]] | None = None
        self.to_background = _nobody
        self._ticking: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._keyboard.open()
        self._draw()

    def close(self) -> None:
        self.status(None)
        self._screen.close()
        self._keyboard.close()

    async def input(self) -> Input:
        return await self._inputs.get()

    def wake(self) -> None:
        self._inputs.put_nowait(Woken())

    def status(self, rows: Callable[[int], Sequence[str]] | None) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        self._status = rows
        self._tick() if rows is not None else self._draw()

    def label(self, text: str) -> None:
        if text != self._label:
            self._label = text
            self._draw()

    def ask(self, question: str) -> None:
        if not self._asking:
            self._draft = self._line.text
            self._line.put("")
        self._asking = question
        self._draw()

    def asked(self) -> None:
        if self._asking:
            self._asking = ""
            self._line.put(self._draft)
            self._draw()

    def clear(self) -> None:
        self._line.put("")
        self._draw()

    def offer(self, text: str) -> None:
        if self._asking:
            self._draft = in_front(text, self._draft)  # it is not an answer
        else:
            self._line.put(in_front(text, self._line.text))
            self._draw()

    def _heard(self, press: Press) -> None:
        if self.any_key_ends:
            self._inputs.put_nowait(HungUp())
        else:
            self._pressed(press)

    def _pressed(self, press: Press) -> None:
        match press:
            case Key("interrupt"):
                self._inputs.put_nowait(Interrupted(self._line.text))
            case Key("hung-up" | "terminated" | "escape" | "back-tab"):
                self._inputs.put_nowait(_INPUTS[press.name])
            case Key("end-of-input") if not self._line.text:
                self._inputs.put_nowait(HungUp())
            case Key("end-of-input"):
                self._line.press(Key("delete"))
            case Key("to-background"):
                if not self.to_background():
                    self._line.press(Key("left"))
            case Key("tab"):
                self._line.complete(self._words())
            case Key("redraw"):
                self._redraw()
            case _:
                entered = self._line.press(press)
                if entered is not None:
                    self._entered(entered)
        self._draw()

    def _entered(self, text: str) -> None:
        if not self._asking and self._line.remember(text):
            append_history(self._history, text)
        self._inputs.put_nowait(Entered(text))

    def _tick(self) -> None:
        self._draw()
        self._ticking = asyncio.get_running_loop().call_later(BETWEEN_DRAWINGS, self._tick)

    def _redraw(self) -> None:
        self._draw()
        self._screen.redraw()

    def _draw(self) -> None:
        columns, colours = self._screen.columns, self._screen.colours
        before = self._asking or self._label
        prompt = f"{before} {PROMPT}" if before else PROMPT
        rows, (row, column) = self._line.rows(prompt, columns)
        first = max(0, min(row - _MOST_ROWS + 2, len(rows) - _MOST_ROWS))
        rows, row = rows[first : first + _MOST_ROWS], row - first
        if first == 0:
            rows[0] = painted(prompt, BOLD_CYAN, colours=colours) + rows[0][len(prompt) :]
        above = () if self._status is None else self._status(columns)
        self._screen.bottom([*above, *rows], (row + len(above), column))


class PlainPrompt:
    """For terminals that cannot move the cursor: whole lines, edited by the terminal itself."""

    leaves_lines = True

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.to_background = _nobody
        self._inputs: asyncio.Queue[Input] = asyncio.Queue()
        self._rest = b""
        self._draft = ""

    def open(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._readable)
        loop.add_signal_handler(signal.SIGINT, self._inputs.put_nowait, Interrupted(""))
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._inputs.put_nowait, HungUp(128 + number))

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(sys.stdin.fileno())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
        self._screen.close()

    async def input(self) -> Input:
        return await self._inputs.get()

    def wake(self) -> None:
        self._inputs.put_nowait(Woken())

    def status(self, rows: Callable[[int], Sequence[str]] | None) -> None:
        """Do nothing: there is no room for rows."""

    def label(self, text: str) -> None:
        """Do nothing: there is no room for a label, and changes are reported as notes."""

    def ask(self, question: str) -> None:
        self._screen.fresh_line()
        self._screen.write(f"{question}\n")

    def asked(self) -> None:
        """Do nothing: no line was put aside."""

    def clear(self) -> None:
        self._draft = ""

    def offer(self, text: str) -> None:
        self._screen.fresh_line()
        self._screen.write(f"Not said: {text}\n")

    def _readable(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 65_536)
        except OSError:
            data, left = b"", _INPUTS["hung-up"]
        else:
            left = HungUp()
        if not data:
            # It stays readable forever and would be read in every iteration of the loop.
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._inputs.put_nowait(left)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = self._draft + line.decode(errors="replace")
            if text.endswith("\\"):
                self._draft = text[:-1] + "\n"
            else:
                self._draft = ""
                self._inputs.put_nowait(Entered(text))
