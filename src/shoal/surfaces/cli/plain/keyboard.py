"""Terminal input, key by key, without blocking the loop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable
from typing import Any

from shoal.surfaces.cli.plain.keys import Key, Keys, Press

_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGWINCH)
_ALONE = 0.05
"""Seconds in which a terminal sends the rest of a sequence; an escape without one is the key."""
_LOCAL_FLAGS = 3
_CHARACTERS = 6


class Keyboard:
    """Reads single keys from `open` to `close`, and then restores the terminal mode."""

    def __init__(self, pressed: Callable[[Press], None], resumed: Callable[[], None]) -> None:
        self._pressed = pressed
        self._resumed = resumed
        self._fd = sys.stdin.fileno()
        self._before: list[Any] | None = None
        self._keys = Keys()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._escape: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._enter()
        self._loop.add_reader(self._fd, self._readable)
        # Ctrl-C arrives as a key; this handles an interrupt that another process sends.
        self._loop.add_signal_handler(signal.SIGINT, self._pressed, Key("interrupt"))
        self._loop.add_signal_handler(signal.SIGTERM, self._pressed, Key("terminated"))
        self._loop.add_signal_handler(signal.SIGHUP, self._pressed, Key("hung-up"))
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._loop.add_signal_handler(signal.SIGWINCH, self._resumed)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            if self._escape is not None:
                self._escape.cancel()
            for number in _SIGNALS:
                self._loop.remove_signal_handler(number)
            self._loop = None
        self._leave()

    def _enter(self) -> None:
        self._before = termios.tcgetattr(self._fd)
        mode = termios.tcgetattr(self._fd)
        mode[0] &= ~(termios.ICRNL | termios.INLCR | termios.IXON)
        mode[_LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
        # As a signal, Ctrl-C would also reach every process that shares the terminal with us.
        mode[_CHARACTERS][termios.VINTR] = b"\x00"
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)
        _say(_PASTE_ON)

    def _leave(self) -> None:
        if self._before is not None:
            _say(_PASTE_OFF)
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
            self._before = None

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, 65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            assert self._loop is not None
            self._loop.remove_reader(self._fd)
            self._pressed(Key("hung-up"))
            return
        if self._escape is not None:
            self._escape.cancel()
            self._escape = None
        for press in self._keys.presses(data):
            self._pressed(press)
        if self._keys.holds_escape:
            assert self._loop is not None
            self._escape = self._loop.call_later(_ALONE, self._alone)

    def _alone(self) -> None:
        for press in self._keys.alone():
            self._pressed(press)

    def _suspend(self) -> None:
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()
        self._resumed()


def _say(code: str) -> None:
    sys.stdout.write(code)
    sys.stdout.flush()
