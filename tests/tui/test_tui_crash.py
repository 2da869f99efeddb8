"""A crash of the full screen: the error message is plain, and the session can be resumed."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import shoal
from session_helpers import collect_events
from shoal.models.scripted_model import ScriptedModel
from tui.tui_helpers import PtyChild

_BREAK_SCREEN = """
import sys
from shoal.surfaces.tui.app import ShoalApp

def fail(self):
    private = "what nobody else " + "should read"
    return {}["no such thing"]

async def fail_in_worker(self):
    fail(self)

ShoalApp.action_fold = fail
ShoalApp.action_redraw = lambda self: self.run_worker(fail_in_worker(self))
"""
_LOCAL_SESSION = """
from shoal.app.options import Options
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.cli.interactive_session import run_interactive_session
options = Options(model=ScriptedModel(["I work on."] * 9), debug="--debug" in sys.argv)
sys.exit(run_interactive_session(options, "go"))
"""
_ATTACHED_RUN = """
from shoal.surfaces.cli.main import run_command_line
sys.exit(run_command_line(["attach", *sys.argv[1:]]))
"""


class BrokenScreen(PtyChild):
    """A full screen that raises when Ctrl-O or Ctrl-L is pressed."""

    def __init__(self, directory: Path, program: str, *flags: str) -> None:
        super().__init__(directory, _BREAK_SCREEN + program, *flags)

    def wait_for_end(self) -> tuple[int, str]:
        """Return the exit status, and the text on the terminal below the full screen."""
        self.read_rest()
        _, status = os.waitpid(self.pid, 0)
        os.close(self.terminal)
        rest = self.output.rpartition(b"\x1b[?1049l")[2].decode().replace("\r\n", "\n")
        return os.waitstatus_to_exitcode(status), re.sub(r"\x1b[\[>][?\d;]*[a-zA-Z]", "", rest)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("key", [b"\x0f", b"\x0c"], ids=["in a key", "in a worker"])
def test_a_crash_names_the_log_and_the_command_to_resume(tmp_path: Path, key: bytes) -> None:
    child = BrokenScreen(tmp_path, _LOCAL_SESSION)
    child.wait_for(b"I work on.")
    child.type_keys(b"half a thought")
    child.wait_for(b"thought")
    child.type_keys(key)
    status, rest = child.wait_for_end()
    (transcript,) = Path(os.environ["SHOAL_HOME"]).glob("projects/*/*.jsonl")
    session = transcript.stem
    log = Path(os.environ["SHOAL_HOME"]) / "debug" / f"{session}.txt"
    assert status == 1
    assert "shoal: The full screen failed because of a bug in Shoal: KeyError: 'no such thing'." in rest
    assert f"Traceback: {log}" in rest
    assert f"Continue in the plain terminal: shoal --plain --resume {session}" in rest
    assert "This text was not sent:\nhalf a thought" in rest
    assert f"Resume it:  shoal --resume {session}" in rest
    for text in (rest, log.read_text()):
        assert "should read" not in text
        assert "private =" not in text.replace('private = "what nobody else "', "")
    assert "Traceback (most recent call last)" not in rest
    assert "in fail" not in rest
    assert "in fail" in log.read_text()
    assert "I work on." in transcript.read_text()
    listed = subprocess.run(
        [sys.executable, "-m", "shoal", "sessions"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert session in listed.stdout


def test_debug_shows_the_traceback_of_a_crash(tmp_path: Path) -> None:
    child = BrokenScreen(tmp_path, _LOCAL_SESSION, "--debug")
    child.wait_for(b"I work on.")
    child.type_keys(b"\x0f")
    status, rest = child.wait_for_end()
    assert status == 1
    assert "in fail" in rest
    assert "should read" not in rest


async def test_an_attached_run_survives_a_crash_of_the_screen(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["I work on."] * 2)) as session:
        assert await collect_events(session.run("go"))
        child = BrokenScreen(tmp_path, _ATTACHED_RUN, session.id[:8])
        await asyncio.to_thread(child.wait_for, b"I work on.")
        child.type_keys(b"\x0f")
        status, rest = await asyncio.to_thread(child.wait_for_end)
        assert status == 1
        assert "KeyError: 'no such thing'. The run continues." in rest
        assert f"Come back: shoal attach {session.id[:8]}" in rest
        assert "Traceback (most recent call last)" not in rest
        assert "in fail" not in rest
        log = Path(os.environ["SHOAL_HOME"]) / "debug" / f"{session.id}.txt"
        assert f"Traceback: {log}" in rest
        assert "in fail" in log.read_text()
        assert await collect_events(session.run("go on"))
