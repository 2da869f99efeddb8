"""A fault of the full screen itself: the person is told in plain words, and goes on."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import shoal
from shoal.core.events import Event
from shoal.models.scripted import ScriptedModel

_BROKEN = """
import sys
from shoal.surfaces.tui.app import ShoalApp

def broken(self):
    private = "what nobody else " + "should read"
    return {}["no such thing"]

async def broken_beside(self):
    broken(self)

ShoalApp.action_fold = broken
ShoalApp.action_redraw = lambda self: self.run_worker(broken_beside(self))
"""
_OWN = """
from shoal.app.options import Options
from shoal.models.scripted import ScriptedModel
from shoal.surfaces.cli.interactive import interactive
sys.exit(interactive(Options(model=ScriptedModel(["I work on."] * 9), debug="--debug" in sys.argv), "go"))
"""
_FAR = """
from shoal.surfaces.cli.main import run
sys.exit(run(["attach", *sys.argv[1:]]))
"""


class Person:
    def __init__(self, directory: Path, program: str, *flags: str) -> None:
        not_so = ("SHOAL_PLAIN", "NO_COLOR")
        environ = {name: value for name, value in os.environ.items() if name not in not_so}
        argv = [sys.executable, "-c", _BROKEN + program, *flags]
        self.seen = b""
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.chdir(directory)
            os.execve(sys.executable, argv, {**environ, "TERM": "xterm-256color"})

    def sees(self, words: bytes) -> None:
        while words not in self.seen:
            assert select.select([self.terminal], [], [], 30)[0], self.seen[-2000:]
            self.seen += os.read(self.terminal, 65536)

    def press(self, keys: bytes) -> None:
        os.write(self.terminal, keys)

    def end(self) -> tuple[int, str]:
        """The exit status, and what stands on the terminal below the full screen."""
        while True:
            try:
                more = os.read(self.terminal, 65536)
            except OSError:
                break
            if not more:
                break
            self.seen += more
        _, status = os.waitpid(self.child, 0)
        os.close(self.terminal)
        left = self.seen.rpartition(b"\x1b[?1049l")[2].decode().replace("\r\n", "\n")
        return os.waitstatus_to_exitcode(status), re.sub(r"\x1b[\[>][?\d;]*[a-zA-Z]", "", left)


@pytest.mark.parametrize("key", [b"\x0f", b"\x0c"], ids=["in a key", "beside"])
def test_a_person_is_told_plainly_where_the_fault_is_kept_and_how_to_go_on(
    tmp_path: Path, key: bytes
) -> None:
    person = Person(tmp_path, _OWN)
    person.sees(b"I work on.")
    person.press(b"half a thought")
    person.sees(b"thought")
    person.press(key)
    status, left = person.end()
    (transcript,) = Path(os.environ["SHOAL_HOME"]).glob("projects/*/*.jsonl")
    session = transcript.stem
    log = Path(os.environ["SHOAL_HOME"]) / "debug" / f"{session}.txt"
    assert status == 1
    assert "shoal: The full screen broke, which is a fault of Shoal's: KeyError: 'no such thing'." in left
    assert f"Where it broke: {log}" in left
    assert f"Go on without the full screen: shoal --plain --resume {session}" in left
    assert "it was not sent:\nhalf a thought" in left
    assert f"Go on with: shoal --resume {session}" in left
    for told in (left, log.read_text()):
        assert "should read" not in told
        assert "private =" not in told.replace('private = "what nobody else "', "")
    assert "Traceback" not in left
    assert "in broken" in log.read_text()
    assert "I work on." in transcript.read_text()
    listed = subprocess.run(
        [sys.executable, "-m", "shoal", "sessions"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert session in listed.stdout


def test_with_debug_the_traceback_is_shown(tmp_path: Path) -> None:
    person = Person(tmp_path, _OWN, "--debug")
    person.sees(b"I work on.")
    person.press(b"\x0f")
    status, left = person.end()
    assert status == 1
    assert "in broken" in left
    assert "should read" not in left


async def test_a_run_of_another_process_goes_on_and_can_be_come_back_to(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["I work on."] * 2)) as session:
        await all_of(session.run("go"))
        person = Person(tmp_path, _FAR, session.id[:8])
        await asyncio.to_thread(person.sees, b"I work on.")
        person.press(b"\x0f")
        status, left = await asyncio.to_thread(person.end)
        assert status == 1
        assert "KeyError: 'no such thing'. The run goes on without it." in left
        assert f"Come back: shoal attach {session.id[:8]}" in left
        assert "Traceback" not in left
        log = Path(os.environ["SHOAL_HOME"]) / "debug" / f"{session.id}.txt"
        assert f"Where it broke: {log}" in left
        assert "in broken" in log.read_text()
        await all_of(session.run("go on"))


async def all_of(turn: AsyncIterator[Event]) -> None:
    assert [event async for event in turn]
