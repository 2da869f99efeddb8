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

from shoal.surfaces.cli.plain.key_decoder import KeyPress, NamedKeyPress
from shoal.surfaces.cli.plain.keyboard import RawModeKeyboard
from shoal.surfaces.cli.plain.line_editor import TerminalLineEditor
from shoal.surfaces.terminal.foreign_keys import FOREIGN_KEYS
from shoal.surfaces.terminal.prompt_history import (
    append_prompt_history,
    prepend_to_draft,
    read_prompt_history,
)
from shoal.surfaces.terminal.screen import LiveTerminalScreen, TerminalScreen
from shoal.surfaces.terminal.text_styles import BOLD_CYAN, apply_style

PROMPT = "› "
REDRAW_INTERVAL = 0.1
_MAX_ROWS = 10


class LineEntered(Struct, frozen=True):
    text: str


class InterruptPressed(Struct, frozen=True):
    """Ctrl-C was pressed; `line` is the text at the prompt."""

    line: str


class InputClosed(Struct, frozen=True):
    """Ctrl-D was pressed, the terminal is gone, or a signal asks the program to end."""

    status: int = 0
    """Exit code of the program."""


class EscapePressed(Struct, frozen=True):
    """The escape key was pressed."""


class ShiftTabPressed(Struct, frozen=True):
    """Shift-Tab was pressed."""


class ForeignKeyPressed(Struct, frozen=True):
    """A key of Claude Code was pressed that does nothing here."""

    key: str


class PromptWoken(Struct, frozen=True):
    """Nothing was typed; `wake` was called."""


PromptInput: TypeAlias = (
    LineEntered
    | InterruptPressed
    | InputClosed
    | EscapePressed
    | ShiftTabPressed
    | ForeignKeyPressed
    | PromptWoken
)
_KEY_INPUTS: dict[str, PromptInput] = {
    "hung-up": InputClosed(128 + signal.SIGHUP),
    "terminated": InputClosed(128 + signal.SIGTERM),
    "escape": EscapePressed(),
    "back-tab": ShiftTabPressed(),
    **{key: ForeignKeyPressed(key) for key in FOREIGN_KEYS},
}
"""Keys that do not edit the line."""


class InputPrompt(Protocol):
    echoes_input: bool
    """True if the terminal shows typed text, so that it need not be printed again."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    async def read_input(self) -> PromptInput: ...

    def wake_reader(self) -> None:
        """Wake the task that awaits input."""
        ...

    def set_status_rows(self, rows: Callable[[int], Sequence[str]] | None) -> None:
        """Set the rows above the prompt; they are redrawn ten times a second while they are set."""
        ...

    def set_prompt_label(self, text: str) -> None:
        """Set the text before the line while no question is open: the recipient and the active mode."""
        ...

    def begin_question(self, question: str) -> None:
        """Let the next typed line answer this; a half-typed line is set aside until `end_question`."""
        ...

    def end_question(self) -> None: ...

    def clear_input_line(self) -> None:
        """Drop the half-typed text."""
        ...

    def prepend_to_draft(self, text: str) -> None:
        """Put a text at the prompt for editing, in front of the half-typed text."""
        ...


class LiveInputPrompt:
    echoes_input = False

    def __init__(
        self,
        screen: LiveTerminalScreen,
        history: Path,
        completions: Callable[[], Sequence[str]] = tuple,
        on_background_key: Callable[[], bool] = bool,
    ) -> None:
        """`on_background_key` is called on Ctrl-B; if it moves no agent, the key moves the cursor."""
        self._screen = screen
        self._history = history
        self._completions = completions
        """Returns the texts that a line can be completed to."""
        self._line = TerminalLineEditor(read_prompt_history(history))
        self._keyboard = RawModeKeyboard(self._on_key_press, self._redraw_screen)
        self._inputs: asyncio.Queue[PromptInput] = asyncio.Queue()
        self._draft = ""
        self._question = self._label = ""
        self._status: Callable[[int], Sequence[str]] | None = None
        self._on_background_key = on_background_key
        self._closes_on_any_key = False
        self._next_draw: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._keyboard.open()
        self._draw_prompt()

    def close(self) -> None:
        self.set_status_rows(None)
        self._screen.close()
        self._keyboard.close()

    async def read_input(self) -> PromptInput:
        return await self._inputs.get()

    def wake_reader(self) -> None:
        self._inputs.put_nowait(PromptWoken())

    def set_status_rows(self, rows: Callable[[int], Sequence[str]] | None) -> None:
        if self._next_draw is not None:
            self._next_draw.cancel()
            self._next_draw = None
        self._status = rows
        self._redraw_periodically() if rows is not None else self._draw_prompt()

    def set_prompt_label(self, text: str) -> None:
        if text != self._label:
            self._label = text
            self._draw_prompt()

    def begin_question(self, question: str) -> None:
        if not self._question:
            self._draft = self._line.text
            self._line.set_text("")
        self._question = question
        self._draw_prompt()

    def close_on_any_key(self, notice: str) -> None:
        """Show a notice; the next key press closes the input, unless `end_question` comes first."""
        self._closes_on_any_key = True
        self.begin_question(notice)

    def end_question(self) -> None:
        self._closes_on_any_key = False
        if self._question:
            self._question = ""
            self._line.set_text(self._draft)
            self._draw_prompt()

    def clear_input_line(self) -> None:
        self._line.set_text("")
        self._draw_prompt()

    def prepend_to_draft(self, text: str) -> None:
        if self._question:
            self._draft = prepend_to_draft(text, self._draft)  # it is not an answer
        else:
            self._line.set_text(prepend_to_draft(text, self._line.text))
            self._draw_prompt()

    def _on_key_press(self, press: KeyPress) -> None:
        if self._closes_on_any_key and press != NamedKeyPress("terminated"):
            self._inputs.put_nowait(InputClosed())
        else:
            self._handle_key_press(press)

    def _handle_key_press(self, press: KeyPress) -> None:
        match press:
            case NamedKeyPress("interrupt"):
                self._inputs.put_nowait(InterruptPressed(self._line.text))
            case NamedKeyPress(name) if name in _KEY_INPUTS:
                self._inputs.put_nowait(_KEY_INPUTS[name])
            case NamedKeyPress("end-of-input") if not self._line.text:
                self._inputs.put_nowait(InputClosed())
            case NamedKeyPress("end-of-input"):
                self._line.handle_key_press(NamedKeyPress("delete"))
            case NamedKeyPress("to-background"):
                if not self._on_background_key():
                    self._line.handle_key_press(NamedKeyPress("left"))
            case NamedKeyPress("tab"):
                self._line.complete_text(self._completions())
            case NamedKeyPress("redraw"):
                self._redraw_screen()
            case _:
                submitted_text = self._line.handle_key_press(press)
                if submitted_text is not None:
                    self._submit_line(submitted_text)
        self._draw_prompt()

    def _submit_line(self, text: str) -> None:
        if not self._question and self._line.add_to_history(text):
            append_prompt_history(self._history, text)
        self._inputs.put_nowait(LineEntered(text))

    def _redraw_periodically(self) -> None:
        self._draw_prompt()
        self._next_draw = asyncio.get_running_loop().call_later(REDRAW_INTERVAL, self._redraw_periodically)

    def _redraw_screen(self) -> None:
        self._draw_prompt()
        self._screen.redraw()

    def _draw_prompt(self) -> None:
        columns, colours = self._screen.columns, self._screen.colours
        prompt_label = self._question or self._label
        prompt = f"{prompt_label} {PROMPT}" if prompt_label else PROMPT
        rows, (row, column) = self._line.lay_out_rows(prompt, columns)
        first = max(0, min(row - _MAX_ROWS + 2, len(rows) - _MAX_ROWS))
        rows, row = rows[first : first + _MAX_ROWS], row - first
        if first == 0:
            rows[0] = apply_style(prompt, BOLD_CYAN, colours=colours) + rows[0][len(prompt) :]
        status_rows = () if self._status is None else self._status(columns)
        self._screen.set_bottom_rows([*status_rows, *rows], (row + len(status_rows), column))


class PlainInputPrompt:
    """For terminals that cannot move the cursor: whole lines, edited by the terminal itself."""

    echoes_input = True

    def __init__(self, screen: TerminalScreen) -> None:
        self._screen = screen
        self._inputs: asyncio.Queue[PromptInput] = asyncio.Queue()
        self._rest = b""
        self._draft = ""

    def open(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._read_typed_lines)
        loop.add_signal_handler(signal.SIGINT, self._inputs.put_nowait, InterruptPressed(""))
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._inputs.put_nowait, InputClosed(128 + number))

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(sys.stdin.fileno())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
        self._screen.close()

    async def read_input(self) -> PromptInput:
        return await self._inputs.get()

    def wake_reader(self) -> None:
        self._inputs.put_nowait(PromptWoken())

    def set_status_rows(self, rows: Callable[[int], Sequence[str]] | None) -> None:
        """Do nothing: there is no room for rows."""

    def set_prompt_label(self, text: str) -> None:
        """Do nothing: there is no room for a label, and changes are reported as notes."""

    def begin_question(self, question: str) -> None:
        self._screen.end_line()
        self._screen.write(f"{question}\n")

    def end_question(self) -> None:
        """Do nothing: no line was put aside."""

    def clear_input_line(self) -> None:
        self._draft = ""

    def prepend_to_draft(self, text: str) -> None:
        self._screen.end_line()
        self._screen.write(f"Not sent: {text}\n")

    def _read_typed_lines(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 65_536)
        except OSError:
            data, closing_input = b"", _KEY_INPUTS["hung-up"]
        else:
            closing_input = InputClosed()
        if not data:
            # It stays readable forever and would be read in every iteration of the loop.
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._inputs.put_nowait(closing_input)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = self._draft + line.decode(errors="replace")
            if text.endswith("\\"):
                self._draft = text[:-1] + "\n"
            else:
                self._draft = ""
                self._inputs.put_nowait(LineEntered(text))
