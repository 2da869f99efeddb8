"""Helpers for tests of the full screen: wait for a question, and run a program under a pty."""

from __future__ import annotations

import os
import pty
import select
import sys
from pathlib import Path

from shoal.surfaces.tui.answer_screen import AnswerScreen
from tui_driver import TuiDriver


async def wait_for_question(at: TuiDriver) -> AnswerScreen:
    """Wait until a question is on the screen and accepts keys."""
    await at.wait_until(lambda: isinstance(at.app.screen, AnswerScreen), "the question")
    screen = at.app.screen
    assert isinstance(screen, AnswerScreen)
    await screen.ready.wait()
    return screen


class PtyChild:
    """Python code in a child process whose terminal is a pty, with the full screen enabled."""

    def __init__(self, directory: Path, code: str, *arguments: str) -> None:
        self.output = b""
        environ = {
            name: value for name, value in os.environ.items() if name not in ("SHOAL_PLAIN", "NO_COLOR")
        }
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            argv = [sys.executable, "-c", code, *arguments]
            os.execve(sys.executable, argv, {**environ, "TERM": "xterm-256color"})

    def wait_for(self, text: bytes) -> None:
        while text not in self.output:
            assert select.select([self.terminal], [], [], 30)[0], self.output[-2000:]
            self.output += os.read(self.terminal, 65536)

    def type_keys(self, keys: bytes) -> None:
        os.write(self.terminal, keys)

    def read_rest(self) -> None:
        """Read until the child closes its terminal."""
        while True:
            try:
                more = os.read(self.terminal, 65536)
            except OSError:
                return
            if not more:
                return
            self.output += more
