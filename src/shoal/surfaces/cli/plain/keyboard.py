"""Terminal input, key by key, without blocking the loop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from shoal.surfaces.cli.plain.key_decoder import KeyPress, NamedKeyPress, TerminalKeyDecoder

_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGWINCH)
_ESCAPE_TIMEOUT = 0.05
"""Seconds within which a terminal sends the rest of an escape sequence; a lone escape is the Esc key."""
_LOCAL_FLAGS_INDEX = 3
_CHARACTERS_INDEX = 6


class RawModeKeyboard:
    """Reads single keys from `open` to `close`, and then restores the terminal mode."""

    def __init__(self, on_press: Callable[[KeyPress], None], on_resume: Callable[[], None]) -> None:
        self._on_press = on_press
        self._on_resume = on_resume
        self._fd = sys.stdin.fileno()
        self._saved_mode: list[Any] | None = None
        self._decoder = TerminalKeyDecoder()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._escape_timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._enter_raw_mode()
        self._loop.add_reader(self._fd, self._read_key_presses)
        # Ctrl-C arrives as a key; this handles an interrupt that another process sends.
        self._loop.add_signal_handler(signal.SIGINT, self._on_press, NamedKeyPress("interrupt"))
        self._loop.add_signal_handler(signal.SIGTERM, self._on_press, NamedKeyPress("terminated"))
        self._loop.add_signal_handler(signal.SIGHUP, self._on_press, NamedKeyPress("hung-up"))
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend_process)
        self._loop.add_signal_handler(signal.SIGWINCH, self._on_resume)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            if self._escape_timer is not None:
                self._escape_timer.cancel()
            for number in _SIGNALS:
                self._loop.remove_signal_handler(number)
            self._loop = None
        self._leave_raw_mode()

    def _enter_raw_mode(self) -> None:
        self._saved_mode = termios.tcgetattr(self._fd)
        mode = termios.tcgetattr(self._fd)
        mode[0] &= ~(termios.ICRNL | termios.INLCR | termios.IXON)
        mode[_LOCAL_FLAGS_INDEX] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
        # As a signal, Ctrl-C would also reach every process that shares the terminal with us.
        mode[_CHARACTERS_INDEX][termios.VINTR] = b"\x00"
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)
        _write_control_code(_PASTE_ON)

    def _leave_raw_mode(self) -> None:
        if self._saved_mode is not None:
            # The terminal may be gone.
            with suppress(OSError, termios.error):
                _write_control_code(_PASTE_OFF)
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved_mode)
            self._saved_mode = None

    def _read_key_presses(self) -> None:
        try:
            data = os.read(self._fd, 65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            assert self._loop is not None
            self._loop.remove_reader(self._fd)
            self._on_press(NamedKeyPress("hung-up"))
            return
        if self._escape_timer is not None:
            self._escape_timer.cancel()
            self._escape_timer = None
        for press in self._decoder.decode_key_presses(data):
            self._on_press(press)
        if self._decoder.has_pending_escape:
            assert self._loop is not None
            self._escape_timer = self._loop.call_later(_ESCAPE_TIMEOUT, self._flush_escape)

    def _flush_escape(self) -> None:
        for press in self._decoder.flush_escape():
            self._on_press(press)

    def _suspend_process(self) -> None:
        self._leave_raw_mode()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter_raw_mode()
        self._on_resume()


def _write_control_code(code: str) -> None:
    sys.stdout.write(code)
    sys.stdout.flush()
