"""A terminal that is closed while the full screen runs on it."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

import pytest

from tui.tui_helpers import PtyChild

_PROGRAM = """
import sys
from shoal.app.options import Options
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.cli.interactive_session import run_interactive_session
sys.exit(run_interactive_session(Options(model=ScriptedModel(["I work on."] * 9)), "go"))
"""


@pytest.mark.spec("USR-23")
def test_the_program_ends_when_its_terminal_is_gone(tmp_path: Path) -> None:
    child = PtyChild(tmp_path, _PROGRAM)
    try:
        child.wait_for(b"I work on.")
        assert b"\x1b[?1049h" in child.output, "it is not on the full screen"
    finally:
        os.close(child.terminal)
    last = time.monotonic() + 15
    while (ended := os.waitpid(child.pid, os.WNOHANG)) == (0, 0) and time.monotonic() < last:
        select.select([], [], [], 0.05)
    if ended == (0, 0):
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
    assert os.waitstatus_to_exitcode(ended[1]) == 128 + signal.SIGHUP
