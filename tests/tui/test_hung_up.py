"""A terminal that goes away while the full screen is drawn on it."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

_PROGRAM = """
import sys
from shoal.app.options import Options
from shoal.models.scripted import ScriptedModel
from shoal.surfaces.cli.interactive import interactive
sys.exit(interactive(Options(model=ScriptedModel(["I work on."] * 9)), "go"))
"""


@pytest.mark.spec("USR-23")
def test_nothing_is_left_when_the_terminal_is_gone(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name not in ("SHOAL_PLAIN", "NO_COLOR")}
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execve(sys.executable, [sys.executable, "-c", _PROGRAM], {**environ, "TERM": "xterm-256color"})
    seen = b""
    try:
        while b"I work on." not in seen:
            assert select.select([terminal], [], [], 30)[0], seen[-2000:]
            seen += os.read(terminal, 65536)
        assert b"\x1b[?1049h" in seen, "it is not on the full screen"
    finally:
        os.close(terminal)
    last = time.monotonic() + 15
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < last:
        select.select([], [], [], 0.05)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended[1]) == 128 + signal.SIGHUP
